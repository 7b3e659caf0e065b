// The loss curves of finished trainings, as files have them.
//
// A plain function.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "studies/experiments/forecast_study.h"

namespace penstock {

// Reads the curves of files, and of all files in folders, that are
//
//   *.json         a run that a study kept (kept_runs.h); a setup is a job without its method, seed and microbatches, named
//                  by what the names of its files begin with. Or a result of `penstock train --json --losses`; a setup is
//                  a folder and a name of a job
//   *-curves.csv   the charts of a study, of losses over steps or time; a setup is a chart. Points that have no positive
//                  number for a loss are left out, and lines of fewer than two points
//
// Runs that diverged are left out. Errors: InvalidArgument naming the file if it is none of these, or a folder that has
// none; those of the file system.
absl::StatusOr<std::vector<FinishedCurve>> ReadCurveFiles(Files& files,
                                                          absl::Span<const std::string> paths);

}  // namespace penstock
