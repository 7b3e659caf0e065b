// UpdatePattern: the properties of a way to run a job that decide in how many steps it reaches a loss.
//
// Plain values and pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "model/graph.h"
#include "schedule/catalog/catalog.h"

namespace penstock {

struct UpdatePattern {
  std::string method;
  bool synchronous = true;  // all that are train alike
  // How late gradients are, in updates, and how many updates a step makes: means over the model's parameters.
  // Replicas of the model do not see each other's updates within a step. Each of R makes its part of them, which count
  // 1/R in the mean of the weights: the latter is what one makes, and the former (R - 1)/R of an update.
  double delay = 0;
  double updates_per_step = 1;
  friend bool operator==(const UpdatePattern&, const UpdatePattern&) = default;
};

// Returns whether a method drains at each step and holds the model once: all such methods train alike.
bool TrainsSynchronously(const Method& method);

// `layers`: by stage of the model; `lateness`: by stage of `topology`, which is the one for that many stages.
UpdatePattern UpdatePatternOf(const ResolvedJob& job, const Topology& topology,
                              absl::Span<const LayerRange> layers,
                              absl::Span<const StageLateness> lateness);

// Predicts it for a job that was not judged yet. REQUIRES: CheckStages(job, layers.size()) is OK.
// Errors: those of LatenessOf; FailedPrecondition for a recorded order, whose delays nobody knows beforehand.
absl::StatusOr<UpdatePattern> UpdatePatternOf(const ResolvedJob& job,
                                              absl::Span<const LayerRange> layers);

}  // namespace penstock
