// CostOptions: the times of actions and messages as flags; of `simulate` and `schedule search`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "schedule/simulate.h"

namespace penstock {

// A cost as a flag: one number for all stages (or links), or one for each.
struct PerStageCost {
  const char* flag;
  std::vector<double> values;
};

struct CostOptions {
  PerStageCost forward = {"--forward", {1.0}};
  PerStageCost backward_input = {"--backward-input", {0.5}};
  PerStageCost backward_weight = {"--backward-weight", {0.5}};
  PerStageCost update = {"--update", {0.0}};
  PerStageCost copy = {"--copy", {0.0}};  // of a stash
  double message_bytes = 0.0;
  // Numbers by link, between each stage of the model and the next.
  PerStageCost bytes_per_second = {"--bytes-per-second", {0.0}};  // 0: unlimited
  PerStageCost latency = {"--latency", {0.0}};
  double overhead = 0.0;
  std::optional<int32_t> capacity;  // absent: as many messages as a cluster would have
};

// Declares a flag for each, among them --capacity.
void AddCostOptions(CLI::App& app, CostOptions& options);

// By stage: replicas take the same times, and there and back so do the two passes of a part of the model.
// Errors: InvalidArgument (neither one number nor one for each stage or link of the model, with the flag).
absl::StatusOr<SimulationCosts> CostsOf(const CostOptions& options, const Topology& topology);

}  // namespace penstock
