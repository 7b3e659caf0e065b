#include "studies/theory/tuned_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace penstock {

std::vector<std::string> TunedColumns() {
  return {"learning_rate", "stable", "final_mean", "final_min", "final_max", "best_final"};
}

std::vector<StudyCell> TunedCells(const TunedMethod& method) {
  return {method.learning_rate, std::string(method.stable ? "yes" : "no"),
          method.final_mean(),  method.final_min(),
          method.final_max(),   method.best_final()};
}

ChartLine TunedLine(const std::string& label, const TunedMethod& method, CurveClock clock) {
  ChartLine line{.label = absl::StrFormat("%s, γ = %.1e", label, method.learning_rate)};
  for (size_t i = 0; i < method.mean.size(); ++i) {
    const CurvePoint& point = method.mean[i];
    const int64_t x = clock == CurveClock::kTicks ? point.tick : point.updates;
    ChartPoint drawn{static_cast<double>(x), point.gap, point.gap, point.gap};
    for (const Curve& curve : method.by_seed) {
      drawn.low = std::min(drawn.low, curve[i].gap);
      drawn.high = std::max(drawn.high, curve[i].gap);
    }
    line.points.push_back(drawn);
  }
  return line;
}

double DecadesApart(const Curve& a, const Curve& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += std::fabs(std::log10(std::max(a[i].gap, kGapMin) / std::max(b[i].gap, kGapMin)));
  }
  return sum / static_cast<double>(a.size());
}

std::string Short(double value) { return absl::StrFormat("%.2e", value); }

}  // namespace penstock
