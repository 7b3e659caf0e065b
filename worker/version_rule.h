// VersionRule: which weights a microbatch reads in a serial run, by the closed forms of the continuous methods.
//
// It asks no schedule, so that the reference can test what schedules and machines say: weights are known by the
// name that the job gives them, and version_rule.cc has the definition of each. A stage updates after every
// `interval` microbatches, and `depth` of them are on their way beyond it (MicrobatchesInFlight). With replicas these
// are the microbatches of all of a stage's replicas together, whose updates are the same. Microbatches k
// and versions are counted from the cut that a range begins at. In a run in recorded order the newest version
// that a forward found follows from the log instead; versions of a fixed age are the same in any order, and so
// are sampled ones.
//
// A value; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "job/run/run_schedule.h"
#include "schedule/block_draws.h"
#include "worker/order_replay.h"

namespace penstock {

class VersionRule {
 public:
  struct Setting {
    absl::string_view weights;  // pipeline.weights: "stash"
    int64_t stages = 1;
    std::optional<int64_t> stage =
        std::nullopt;      // absent: `depth` comes after it, one microbatch each
    int64_t replicas = 1;  // of the stage
    int64_t interval = 1;  // microbatches of an update, of all replicas
    // The method has an update for each microbatch (of each replica), not one per step.
    bool updates_each_microbatch = false;
    // The first stage's: its replicas, and its depth; absent: all stages but one.
    int64_t first_replicas = 1;
    std::optional<int64_t> first_depth = std::nullopt;
    BlockDraws draws;                     // of sampled weights
    const OrderReplay* replay = nullptr;  // of recorded order
    int64_t first = 0;                    // microbatch of the range
  };
  struct Definition;

  // REQUIRES: there are such weights.
  explicit VersionRule(const Setting& setting);

  // The versions that the passes of microbatch k read.
  int64_t Forward(int64_t k, int64_t depth) const;
  int64_t Backward(int64_t k, int64_t depth) const;
  // By how many updates the weights are moved from these versions.
  int64_t ForwardAhead(int64_t k, int64_t depth) const;
  int64_t BackwardAhead(int64_t k, int64_t depth) const;
  // Returns whether a backward may read another version than its forward.
  bool RereadsWeights() const;
  // The oldest version that microbatches from the k-th on read.
  int64_t OldestFrom(int64_t k, int64_t depth) const;
  // Returns whether the update that takes in the k-th microbatch changes the weights of the stage.
  bool Moves(int64_t k, int64_t depth) const;

  // The most updates between a gradient's forward and the update it goes into, and between its forward and its
  // backward; and the delay that its rate is rescheduled by.
  StageLateness Lateness(int64_t depth) const;
  // Returns how many updates old the weights are that any forward reads; 0 if it reads the newest.
  int64_t FixedAge() const;
  // From the oldest still to be read to the newest.
  int64_t VersionsMax(int64_t depth) const;

 private:
  int32_t StageOf(int64_t depth) const {
    return static_cast<int32_t>(setting_.stage.value_or(setting_.stages - 1 - depth));
  }

  Setting setting_;
  const Definition* definition_;
};

// By place of a pipeline whose places have this many replicas, which meet at every update (PipeDream's 1F1B-RR): counts
// the microbatches between a forward and its backward, once the pipeline is full. Without replicas the stages after a
// place.
std::vector<int64_t> MicrobatchesInFlight(absl::Span<const int32_t> replicas);

}  // namespace penstock
