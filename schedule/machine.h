// Machine: the rules of one worker, written once.
//
// The verifier owns one machine per worker, the simulator likewise, and the worker's executor owns
// one and calls Apply before it does the real work. What an action needs, takes and leaves:
//
//   action      requires                            takes       leaves
//   RECV_F s m  (the channel's next message is m)   message     input(s,m)
//   F s m       input(s,m), or s is the first       input       stash(s,m), output(s,m)
//   SEND_F s m  output(s,m)                         output      message to stage s+1
//   RECV_B s m  (the channel's next message is m)   message     outgrad(s,m)
//   I s m       stash(s,m); outgrad(s,m), or s is   both        weight_stash(s,m), ingrad(s,m)
//               the last (the loss supplies it)
//   SEND_B s m  ingrad(s,m)                         ingrad      message to stage s-1
//   W s m       weight_stash(s,m); m above the      it          accumulated(s) + 1
//               last W of s since its step
//   REDUCE g    every local member accumulated      -           reduced(g)
//   NORM        every local stage accumulated       -           -
//   STEP s      accumulated(s) > 0, groups reduced  accumulated version(s) + 1
//   FLUSH       nothing of all this is left         -           a consistent cut
//
// Where stages s and s+1 live on the same worker there is no message: output(s,m) serves as
// input(s+1,m) and ingrad(s+1,m) as outgrad(s,m). The channels are the caller's (run.h, mailbox.h).
//
// In an evaluate range F leaves only the output, and nothing but F, messages and FLUSH is allowed.
//
// Thread-compatible; performs no I/O. Memory is in proportion to what is in flight.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

// Updates of one stage between a read and the update it belongs to (docs/glossary.md).
struct StalenessCount {
  int64_t updates = 0;
  int64_t max = 0;
  int64_t sum = 0;    // over `microbatches`
  int64_t microbatches = 0;
  double mean() const { return microbatches == 0 ? 0.0 : double(sum) / double(microbatches); }
  friend bool operator==(const StalenessCount&, const StalenessCount&) = default;
};

// What one stage held and did since the machine was made. Verified before a run, measured in it: the
// two must agree exactly.
struct StageCounts {
  StalenessCount staleness;      // version replaced by the update minus version the forward read
  StalenessCount version_drift;  // version backward read minus version forward read
  int64_t versions_live = 1;     // now: the current version and those still to be read
  int64_t versions_peak = 1;
  int64_t activations_live = 0;  // microbatches between F and W
  int64_t activations_peak = 0;
  friend bool operator==(const StageCounts&, const StageCounts&) = default;
};

// What performing an action means for the weights.
struct Effect {
  // F, I, W: the version to read. STEP: the version the update makes.
  int64_t version = 0;
  // STEP: whether the replaced version is still to be read, so that it must be kept.
  bool keeps_replaced = false;
  // STEP: the microbatches whose gradients the update holds (they are consecutive).
  MicrobatchRange microbatches;
  // I, W and STEP: the oldest version of the stage still to be read; older ones may be released.
  int64_t oldest_live_version = 0;
};

class Machine {
 public:
  // Starts at weight version `initial_version` of every stage (0 for a new job, the number of updates
  // so far after a restart). REQUIRES: `topology` outlives the machine.
  Machine(const Topology& topology, WorkerId worker, WeightPolicy policy);
  void SetVersion(StageId stage, int64_t version);

  // Starts a range. REQUIRES: nothing is in flight (a new machine, or after FLUSH).
  void BeginRange(Completeness completeness);

  // Performs the bookkeeping of `action`.
  // Errors: FailedPrecondition naming worker, action and what is missing; the machine is unchanged.
  absl::StatusOr<Effect> Apply(const Action& action);

  const StageCounts& counts(StageId stage) const;
  int64_t version(StageId stage) const;

 private:
  // Filled in by machine.cc's author.
};

}  // namespace penstock
