// Machine: the rules of one worker, written once.
//
// The verifier owns one machine per worker, the simulator likewise, and the worker's executor owns
// one and calls Apply before it does the real work. What an action needs, takes and leaves:
//
//   action      requires                            takes       leaves
//   RECV_F s m  (the channel's next message is m)   message     input(s,m)
//   F s m       input(s,m), or s is the first       input       stash(s,m), output(s,m)
//   (recomputes)                                                checkpoint(s,m) in place of the stash
//   SEND_F s m  output(s,m)                         output      message to stage s+1
//   RECV_B s m  (the channel's next message is m)   message     outgrad(s,m)
//   R s m       checkpoint(s,m)                     it          stash(s,m)
//   I s m       stash(s,m); outgrad(s,m), or s is   both        weight_stash(s,m), ingrad(s,m)
//               the last (the loss supplies it)
//   SEND_B s m  ingrad(s,m)                         ingrad      message to stage s-1
//   OFFLOAD s m stash(s,m)                          it          leaving_stash(s,m)
//   EVICT s m   leaving_stash(s,m)                  it          offloaded_stash(s,m)
//   PREFETCH s m  offloaded_stash(s,m)              it          stash(s,m)
//   W s m       weight_stash(s,m); m follows the    it          accumulated(s) + 1
//               last W of s since its step
//   REDUCE g    every local member accumulated      -           reduced(g)
//   (replicas)  (all of the same microbatches)      -           accumulated(s) of all replicas
//   BEGIN_REDUCE g  g of replicas, none of it       -           last W of the member announced
//               reduced or begun
//   (REDUCE of it)  that W; of those begun here the first
//   (weights)   no local member accumulated or      -           averaged(g)
//               has microbatches between F and W
//   NORM        every local stage (of a pipeline    -           normed
//               that is a model) accumulated,
//               and its groups reduced
//   UPDATE s    accumulated(s) > 0, groups reduced  accumulated version(s) + 1
//   (sampled)   accumulated(s) = 1
//   FLUSH       nothing of all this is left         -           a consistent cut
//
// and where pipelines go there and back (Topology::Rounds), s being of part d:
//
//   F s m       (there alone)                       input       output(s,m), checkpoint(s,m)
//   SEND_R s m  checkpoint(s,m)                     it          message to the twin of s
//   RECV_R s m  (the channel's next message is m)   message     checkpoint(s,m)
//   R s m       checkpoint(s,m), or s reads tokens  it          stash(s,m)
//   SEND_W s m  accumulated(s) up to m - 1          it          message to the stage of d that m visits
//   RECV_W s m  nothing accumulated                 message     accumulated(s) up to m - 1
//   W s m       nothing accumulated of a step before  (as above)
//   UPDATE s    accumulated(s) of a whole step      it          version(s) + 1
//   REDUCE g    no local member accumulated or      -           version + 1 of all members without an UPDATE
//   (copies)    has microbatches in flight; the
//               one that updates made its UPDATE
//
// and where, there, weights are streamed (Topology::streams_weights), s being a stage whose part another worker updates:
//
//   SEND_Q s m  s has no weights, nor asked for     -           request to that worker, asked(s)
//   RECV_Q s m  (there) the channel's next message  message     asked(s) there
//   SEND_P s m  (there) asked(s); there are the     asked(s)    message to s
//               weights for the step of m
//   RECV_P s m  asked(s); no other stage of the     message     weights(s), whose version is that of the step
//               part has weights here
//   F, R, I s   weights(s)                          -           (as above)
//   DROP s m    weights(s), no stash(s)             weights(s)  -
//   UPDATE s    no other stage of the part here     accumulated version + 1 of all stages of the part here
//               has microbatches in flight
//
// so that what is on a worker of the weights of others, counted from SEND_Q until DROP, follows from its list. Where weights
// live in files (Topology::weights_in_file), s being a stage whose part its own worker updates:
//
//   LOAD s m    s has no weights                    -           loading(s)
//   F, R, I s   weights(s), or loading(s) and no    loading     weights(s)
//               other stage of the part has them
//   DROP s m    weights(s), no stash(s)             weights(s)  - (accumulated(s), if SEND_W is to come and no
//                                                               other W, is in the file from now on)
//   UPDATE s    no stage of the part here has       accumulated (as above)
//               weights, or asks this worker for
//               them: what is read is not written
//
// UPDATE brings weights and optimizer's state in by itself, and puts them back.
//
// Nothing may be left twice (a second input of a microbatch is an error), and what is reduced or
// normed takes no further W before its UPDATE. Replicas whose weights a group averages leave FLUSH equal:
// after the last UPDATE of each comes a REDUCE. Averaging changes weights, but not their version.
//
// Where stage s recomputes (StageWiring::recomputes), F keeps no more than its input, the checkpoint, and R does
// the forward again. R reads the weights that I would read if it came at once, so that the backward is that
// of one set of weights; if they have changed when I comes, I is refused.
//
// A stash that OFFLOAD begins to copy to the host is on the device, but no I may have it, until EVICT; from then on it is
// on the host alone, and from PREFETCH on again on the device. So what is on the device after any action follows
// from the list, however long the copies take.
//
// Where a topology has several pipelines, a microbatch is refused outside of its own. There and
// back they are one model in several places, whose versions grow for all at once, so each F and R
// must find the weights for its microbatch's step: those that the steps before it left, or with double buffers all of
// these but the last; and W of a later round of a step goes on with
// what the rounds before it have accumulated.
//
// Where places have replicas, a microbatch is refused outside of its own replica; W of s follows the last W
// of s in the order of the microbatches that go through s. REDUCE makes the gradient that of the microbatches
// of all replicas; that they reduce the same ones is checked where all are seen (run.h). BEGIN_REDUCE says that the
// next W of the stage is the last of its gradient, parts of which may then leave before REDUCE; nothing is added to it
// after that W. Reductions that have begun end in the order in which they did, before any other REDUCE of the worker.
// REDUCE is a barrier, so two workers begin those that they have in common in the same order, whatever the timing: the
// messages between them have one order.
//
// Where stages s and s+1 live on the same worker there is no message: output(s,m) is at once
// input(s+1,m), and ingrad(s+1,m) is at once outgrad(s,m). The channels are the caller's (run.h,
// worker/mailbox.h).
//
// Where weights are sampled (Weights::draws), F takes the microbatches in order and every
// W has its UPDATE.
//
// In an evaluate range F leaves only the output, and nothing but F, messages and FLUSH is allowed.
//
// Thread-compatible; performs no I/O. Memory is in proportion to what is in flight; an action costs
// tens of nanoseconds and, once the pipeline is full, allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/action.h"
#include "schedule/flight_rules.h"
#include "schedule/gradient_ledger.h"
#include "schedule/microbatch_table.h"
#include "schedule/schedule.h"
#include "schedule/stage_counts.h"
#include "schedule/version_ledger.h"

namespace penstock {

// The effect of an action on the weights.
struct Effect {
  // F, R, I, W, SEND_P: the version to read. UPDATE, RECV_P: the version that is there from now on.
  int64_t version = 0;
  // F, R, I: the number of updates by which weight prediction moves that version along its motion; negative: back.
  int64_t ahead = 0;
  // UPDATE: the oldest version that a forward of its microbatches read.
  int64_t read_version = 0;
  // UPDATE: whether the update changes the weights. If not, the version it makes is another name for
  // those there are, and the gradient is dropped (BlockDraws).
  bool moves = true;
  // UPDATE: whether the replaced version is still to be read, so that it must be kept.
  bool keeps_replaced = false;
  // UPDATE: from the first to the last microbatch whose gradients the update holds; where there are several
  // pipelines, those between them that go through the stage's own. The same of REDUCE over replicas, and of the W
  // that completes what is to be reduced.
  MicrobatchRange microbatches;
  // DROP: whether the sum of gradients that the stage sends leaves for the file, too. SEND_W: whether it is there.
  bool sum_in_file = false;
  // W: the group whose reduction has begun and of whose gradient here this is the last; -1: none.
  GroupId completes = GroupId(-1);
  // I, W and UPDATE: the oldest version still to be read once this action is done; older ones may
  // then be released.
  int64_t oldest_live_version = 0;
};

class Machine {
 public:
  // Starts at weight version 0 of every stage. REQUIRES: `topology` is valid (CheckTopology) and
  // outlives the machine; `worker` is one of its workers.
  Machine(const Topology& topology, WorkerId worker, WeightPolicy policy);

  // After a restart: the updates that the stage has seen so far. REQUIRES: nothing is in flight.
  void SetVersion(StageId stage, int64_t version);

  // Starts a range. REQUIRES: nothing is in flight (a new machine, or after FLUSH).
  void BeginRange(Completeness completeness);
  // The policy of the ranges to come. REQUIRES: nothing is in flight.
  void SetPolicy(WeightPolicy policy);

  // Performs the bookkeeping of `action`.
  // Errors: FailedPrecondition naming worker, action and what is missing, for example
  // "worker 1: 1I0: no output gradient"; the machine is unchanged.
  absl::StatusOr<Effect> Apply(const Action& action);

  // True if F of the next microbatch of `stage` finds the weight version it reads. REQUIRES: `stage` is on this
  // worker.
  bool NextForwardVersionIsMade(StageId stage) const;

  // REQUIRES: `stage` is on this worker.
  const StageCounts& counts(StageId stage) const;
  const StageDelays& delays(StageId stage) const;
  int64_t version(StageId stage) const;

  // Appends everything that decides what the machine will do from here, microbatches counted from
  // `origin` and versions from the current one: two moments with equal state differ only by a shift
  // of microbatches and versions (verify.cc). Counts are not part of it, nor what was sampled, which
  // decides nothing but counts.
  void AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const;

 private:
  struct Flight {
    Holdings holds = 0;
    int64_t forward_version = 0;    // from F on
    int64_t aim = 0;                // from F on: the version it would have liked to read
    int64_t recompute_version = 0;  // from R to I
    int64_t drift = 0;              // from I on
  };

  struct Stage {
    StageId id;
    bool recomputes = false;
    std::array<FlightRule, kActionKinds> rules;  // by ActionKind, of those of one microbatch
    int32_t gradient_groups = 0;
    int32_t replica_group = -1;  // that of the replicas of its place
    MicrobatchTable<Flight> flights;
    VersionLedger versions;
    GradientLedger gradient;
    StageCounts counts;
    StageDelays delays;
    // Weights that come and go: from which microbatch on, and how far versions are ahead of steps, once they were streamed.
    enum class Weights : uint8_t { kNone, kAsked, kHere };
    Weights weights = Weights::kNone;
    int64_t weights_from = 0;
    std::optional<int64_t> streamed_lead;
    int64_t first_version = 0;  // SetVersion
    // There and back, once the range has read weights: their version less the number of the step.
    std::optional<int64_t> version_lead;
  };

  struct Group {
    ReduceGroup::Quantity quantity;
    ReduceGroup::Operation operation;
    bool of_replicas = false;      // of one place
    std::vector<int32_t> members;  // indices of local stages
    int32_t updates_due =
        0;                // of gradients: members that are reduced and have not made their UPDATE
    bool differ = false;  // of weights: a member made an UPDATE since they were averaged
  };

  // The index of a stage that is on this worker, or -1.
  int32_t IndexOf(StageId stage) const;

  // Apply, in a range that has begun.
  absl::StatusOr<Effect> Take(const Action& action);
  // The operations with a microbatch; the others.
  absl::StatusOr<Effect> Advance(const Action& action);
  absl::StatusOr<Effect> Update(const Action& action);
  absl::StatusOr<Effect> SendSum(const Action& action);
  absl::Status ReceiveSum(const Action& action);
  // Of streamed weights.
  absl::StatusOr<Effect> Stream(const Action& action);
  absl::Status AskForWeights(const Action& action);
  absl::StatusOr<Effect> ReceiveWeights(const Action& action);
  absl::StatusOr<Effect> DropWeights(const Action& action);
  absl::StatusOr<Effect> ServeWeights(const Action& action);
  // Why the passes of `stage` cannot read its weights, or empty.
  std::string ObstacleToRead(const Stage& stage) const;
  // Why the weights of the part of `stage` cannot be updated, or empty.
  std::string ObstacleToUpdate(const Stage& stage) const;
  bool Streams(const Stage& stage) const { return (*topology_)[stage.id].source.value >= 0; }
  // Why `action` is of no group here, or OK.
  absl::Status CheckGroup(const Action& action) const;
  absl::Status BeginReduce(const Action& action);
  absl::StatusOr<Effect> Reduce(const Action& action);
  // The microbatches of the stage's gradient together with those between them and their neighbours that go
  // through the other replicas.
  MicrobatchRange OfAllReplicas(const Stage& stage) const;
  absl::Status ReduceWeights(const Action& action, Group& group);
  absl::Status Norm(const Action& action);
  absl::Status Flush(const Action& action) const;

  bool Visits(int64_t microbatch, StageId stage) const;
  // Where the microbatch of `action` belongs instead.
  std::string GoesElsewhere(const Action& action) const;
  // The number of steps whose updates the weights for the step of `microbatch` have, if versions are counted from 0 and the
  // range before drained. There and back alone.
  int64_t StepsRead(int64_t microbatch) const;
  // By how much the version that the stage's next pass reads is ahead of that number.
  int64_t VersionLead(const Stage& stage, int64_t microbatch) const;
  // True if F or R of `microbatch` would read the weights of another step.
  bool ReadsOtherStep(const Action& action, const Stage& stage) const;
  // Why the sum that goes on at `microbatch` is none that `stage` sends or receives, or empty.
  absl::string_view ObstacleToSum(StageId stage, int64_t microbatch) const;
  // Says in the words of an error what is missing.
  static std::string Missing(Holdings missing, Holdings holds);
  // The first thing that is left of a microbatch, or empty.
  std::string Remainder() const;
  Effect Perform(ActionKind kind, int64_t microbatch, Stage& stage, Flight& flight) const;
  absl::Status Refuse(const Action& action, absl::string_view reason) const;

  const Topology* topology_;
  WorkerId worker_;
  Completeness completeness_ = Completeness::kTrain;
  std::vector<int32_t> index_of_;  // by StageId
  std::vector<Stage> stages_;      // ascending
  std::vector<Group> groups_;      // by GroupId
  // By StageId: the microbatch that weights of this worker are asked for from; -1: none. Empty unless weights are streamed.
  std::vector<int64_t> asked_;
  int64_t lag_ = 0;                    // of the policy
  std::optional<int64_t> first_step_;  // there and back, of the range, once it has begun
  int64_t updates_ =
      0;  // of the first stage here that makes any, since SetVersion; each step has one of each
  int64_t streamed_live_ = 0;   // stages that have weights that come and go, or asked for them
  std::vector<int32_t> begun_;  // groups whose reduction has begun, in this order
};

}  // namespace penstock
