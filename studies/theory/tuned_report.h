// Tuned methods as rows and lines: what the studies share in telling their results.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "studies/theory/line_chart.h"
#include "studies/theory/study.h"
#include "studies/theory/tuning.h"

namespace penstock {

// "learning_rate", "stable", "final_mean", "final_min", "final_max", "best_final" (of any step
// size of the grid).
std::vector<std::string> TunedColumns();
std::vector<StudyCell> TunedCells(const TunedMethod& method);

enum class CurveClock { kTicks, kUpdates };
// The mean gap with the range of the seeds. `label` is followed by the step size.
ChartLine TunedLine(const std::string& label, const TunedMethod& method, CurveClock clock);

// The distance of two curves of one plan: the mean over their ticks of |log10 of the ratio|.
double DecadesApart(const Curve& a, const Curve& b);

// "6.25e-02".
std::string Short(double value);

}  // namespace penstock
