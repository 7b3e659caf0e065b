// A job's messages as JSON, with the keys docs/cli.md documents.
//
// Keys keep their order and are always there; what is not known is null.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "penstock/v1/cluster.pb.h"
#include "schedule/prediction.h"

namespace penstock {

struct ResultJsonOptions {
  bool losses = false;  // adds the loss of every step
  std::optional<StepPrediction> prediction;
};
// A result as `train --json` prints it.
nlohmann::ordered_json ResultJson(const v1::GetJobResponse& job, const ResultJsonOptions& options);

// Adds each metric under its name.
void AddMetrics(const google::protobuf::RepeatedPtrField<v1::MetricValue>& metrics,
                nlohmann::ordered_json& json);

nlohmann::ordered_json StageJson(const v1::StageReport& stage);
// {"predicted", "measured", "drifts", "drifts_told", "replans"}; `predicted` is null without a prediction.
nlohmann::ordered_json FeedbackJson(const v1::Feedback& feedback);
// {"method", "channel_capacity", "schedule_digest", "stages"}.
nlohmann::ordered_json PlanJson(const v1::Plan& plan);
// {"chosen_by", "measuring_seconds", ..., "candidates"}, the chosen one first; null if nothing was planned.
nlohmann::ordered_json PlanningJson(const v1::JobPlanning& planning);
nlohmann::ordered_json JobJson(const v1::JobSummary& job);
nlohmann::ordered_json WorkerJson(const v1::WorkerSummary& worker);

}  // namespace penstock
