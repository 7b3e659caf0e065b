// What a job's timeline says: whether the simulator, given the costs of its first half, foretells the
// second half.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/prediction.h"
#include "schedule/timeline.h"

namespace penstock {

// Looks at the part of `timeline` after the job's last cut before its end.
// Errors: FailedPrecondition if that has fewer than four whole steps.
absl::StatusOr<StepPrediction> PredictJob(const v1::GetJobResponse& job, const Timeline& timeline);

// One line.
std::string PredictionText(const StepPrediction& prediction);

}  // namespace penstock
