// OffloadChoice: which stages keep only a few of their stashes on the device while the others wait on the host, in the words
// of a user: "none", "all", or their places in a pipeline, each with the number of stashes if it is not the default:
// "0,2", "all:4", "0:5,1".
//
// A stash is needed between the forward of a microbatch and its backward. Where several microbatches are in flight, those
// whose backward is far away may be on the host meanwhile (vDNN, Rhu et al., 2016, arXiv 1602.08124), for the price of
// a copy each way, beside the computation.
//
// Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "schedule/program.h"
#include "schedule/recompute.h"
#include "schedule/topology.h"

namespace penstock {

// One is in use, one leaves or is made, one comes back: with three every copy has a forward and a backward to hide
// behind. With fewer than two a forward would have no room.
inline constexpr int32_t kStashesOnDevice = 3;
inline constexpr int32_t kStashesOnDeviceMin = 2;
inline constexpr int32_t kStashesOnDeviceMax = 1 << 20;

struct OffloadChoice {
  struct Stage {
    int32_t place = 0;
    int32_t stashes = kStashesOnDevice;
    friend bool operator==(const Stage&, const Stage&) = default;
  };

  int32_t all = 0;            // the stashes of every stage; 0: not all
  std::vector<Stage> stages;  // by place, ascending; of `all` none

  bool none() const { return all == 0 && stages.empty(); }
  // The stashes that a stage at `place` has on its device at most; 0: as many as there are.
  int32_t StashesOf(int32_t place) const;
  friend bool operator==(const OffloadChoice&, const OffloadChoice&) = default;
};

// Errors: InvalidArgument, with what would do.
absl::StatusOr<OffloadChoice> ParseOffload(absl::string_view text);

// The text form, which ParseOffload reads.
std::string TextOf(const OffloadChoice& choice);

// Errors: InvalidArgument naming a place that a pipeline of `depth` stages does not have, and those it has; or one that
// recomputes, and so has no stash to offload.
absl::Status CheckOffload(const OffloadChoice& choice, const RecomputeChoice& recompute,
                          int32_t depth);

// The most microbatches of each stage between F and I at once, by stage; those of other workers have 0. REQUIRES: every I in
// `program` comes after its F.
std::vector<int64_t> StashesPeak(const Program& program, const Topology& topology);

// Adds OFFLOAD, EVICT and PREFETCH to the programs of all workers, so that a stage s has on the device no more than stashes[s] stashes, weight
// stashes included (0: as many as there are). Where more than that wait for their W alone, for no action puts those away, or
// several backwards overlap, it has as few as it can. The rules, which look at nothing but the actions so far and, of
// microbatches in flight, at the order of their backwards:
//
//   * after F (and its sends) all but stashes[s] - 2 of those that are not leaving begin to, the one whose backward is
//     farthest first;
//   * before F, where there is no room, the one that has been leaving for longest is evicted;
//   * before I (and the receive in front of it) its own stash is brought back if it is not there, and then those
//     of the backwards that come next, up to stashes[s] - 1. For these only stashes make room that have been leaving for a
//     whole pass.
//
// So a range that is cut short has the same actions up to the first that begins a microbatch beyond the cut or
// stands just before it (worker/executor.h).
//
// Long ranges keep their form: copies of the period that differ from those after them become part of the prologue, as many on
// every worker, so that the verifier finds their steady state (verify.cc).
// REQUIRES: the programs are lowered, have every F before its I, and no actions of this kind; stashes[s] is 0 or at
// least kStashesOnDeviceMin.
void AddOffload(absl::Span<const int32_t> stashes, std::vector<Program>& programs);

}  // namespace penstock
