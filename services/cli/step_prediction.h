// What the simulator, given the costs of the first half of a job's timeline, says of the second half.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/prediction.h"
#include "schedule/timeline.h"

namespace penstock {

// Looks at the part of `timeline` after the job's last cut before its end.
// Errors: FailedPrecondition if that has fewer than four whole steps.
absl::StatusOr<StepPrediction> PredictJob(const v1::GetJobResponse& job, const Timeline& timeline);

// {"steps", "measured_step_seconds", "predicted_step_seconds", "error", "overhead_seconds"}.
nlohmann::ordered_json PredictionJson(const StepPrediction& prediction);
// One line.
std::string PredictionText(const StepPrediction& prediction);

}  // namespace penstock
