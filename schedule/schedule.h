// Schedule: for every worker, the ordered list of actions it performs over one range.
//
// This is the value at the centre of Penstock. The verifier checks it, the simulator predicts its
// timeline, the worker executes it, and all three apply the rules of machine.h.
//
// Plain values without threads, clock or I/O.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "schedule/program.h"
#include "schedule/topology.h"
#include "schedule/weight_policy.h"

namespace penstock {

// A complete range holds these for every stage and microbatch.
enum class Completeness : uint8_t {
  kTrain,  // one F, one I, one W, and one R where the stage recomputes; an UPDATE after the last W
  kEvaluate,  // one F alone: validation, nothing is stashed
};

// The microbatches [first, first + count).
struct MicrobatchRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t end() const { return first + count; }
  friend bool operator==(const MicrobatchRange&, const MicrobatchRange&) = default;
};

struct Schedule {
  std::string name;
  Topology topology;
  WeightPolicy weight_policy;
  Completeness completeness = Completeness::kTrain;
  MicrobatchRange range;
  std::vector<Program> programs;  // by WorkerId

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Microbatches are numbered below this and a program is shorter, so that sums cannot overflow.
inline constexpr int64_t kMicrobatchMax = int64_t{1} << 48;

// Errors: InvalidArgument if the range is empty or goes beyond kMicrobatchMax.
absl::Status CheckRange(const MicrobatchRange& range);

// Checks that weights may be sampled so on this topology; other policies fit any. Errors:
// InvalidArgument, with the least delay that would do.
absl::Status CheckDraws(const WeightPolicy& policy, const Topology& topology);

// Messages that a channel holds, where the schedule needs no more: more than the least that
// completes, so that a worker that is a little ahead need not stop at once; an activation is small
// beside the stash. There and back all inputs of a round may wait for their backwards. And the most
// that a schedule may need.
inline constexpr int32_t kChannelCapacity = 4;
inline constexpr int32_t kChannelCapacityMax = 1 << 10;
inline int32_t ChannelCapacityOf(const Topology& topology) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(topology.rounds.microbatches, kChannelCapacity, kChannelCapacityMax));
}

// Checks the form alone: a valid topology, a range that is not empty, one program for each worker
// that ends with FLUSH, numbers below kMicrobatchMax, and where weights are sampled one pipeline with
// room for its delays. Whether the schedule is right is for verify.h.
// Errors: InvalidArgument.
absl::Status CheckSchedule(const Schedule& schedule);

// "train", "evaluate".
absl::string_view CompletenessName(Completeness completeness);

}  // namespace penstock
