// Tests the simulator on a job's timeline: from the costs of the first half it predicts the second.
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
