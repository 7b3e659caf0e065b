// FlightRules: what an action of one microbatch needs, takes and leaves on its stage: the table of
// machine.h, the ends and neighbours of the stage taken into account.
//
// Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "schedule/action.h"
#include "schedule/topology.h"

namespace penstock {

// A stage holds these of a microbatch: a set of bits.
using Holdings = uint16_t;
inline constexpr Holdings kInput = 1 << 0;
inline constexpr Holdings kOutput = 1 << 1;
inline constexpr Holdings kStash = 1 << 2;
inline constexpr Holdings kOutputGradient = 1 << 3;
inline constexpr Holdings kWeightStash = 1 << 4;
inline constexpr Holdings kInputGradient = 1 << 5;
inline constexpr Holdings kCheckpoint = 1 << 6;
inline constexpr Holdings kLeavingStash = 1 << 7;    // on the device, being copied to the host
inline constexpr Holdings kOffloadedStash = 1 << 8;  // on the host alone

// The name of the lowest bit of `holdings`.
absl::string_view NameOf(Holdings holdings);

struct FlightRule {
  // A stage of the same worker is handed this instead of a message.
  struct Handover {
    int32_t receiver = -1;  // its index on the worker; -1: nobody
    Holdings what = 0;
  };

  absl::string_view refusal;   // why this stage never does it, or empty
  bool reads_weights = false;  // of the stage, which must be here
  Holdings takes = 0;
  Holdings leaves = 0;
  std::array<Handover, 2> hands;  // the second: its checkpoint to its twin
};

class FlightRules {
 public:
  // `index_of`: of this worker's stages, by StageId; -1 of others. REQUIRES: both outlive this.
  FlightRules(const Topology& topology, const std::vector<int32_t>& index_of)
      : topology_(topology), index_of_(index_of) {}

  // REQUIRES: `stage` is on this worker. `train`: false in an evaluate range.
  FlightRule Of(ActionKind kind, StageId stage, bool train) const;

 private:
  // Why there is no message to or from `neighbour`, or empty.
  absl::string_view RefuseMessage(StageId neighbour) const;
  // Leaves `sent` for a message over the stage's edge, or hands `received` to a stage of the same
  // worker.
  void HandOn(EdgeKind kind, StageId stage, Holdings sent, Holdings received, FlightRule& rule,
              FlightRule::Handover& hand) const;
  int32_t IndexOf(StageId stage) const { return stage.value < 0 ? -1 : index_of_[stage.value]; }

  const Topology& topology_;
  const std::vector<int32_t>& index_of_;
};

}  // namespace penstock
