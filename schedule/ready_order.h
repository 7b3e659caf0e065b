// ReadyOrder: what a worker does next when it takes whatever is ready, instead of following a program.
//
// The unit is a block (order_log.h): a forward with its messages, or a whole backward. What a block
// consists of, and what stands before an update, is what lowering makes of it (lower.h). On every
// stage forwards and backwards come in ascending order; only how they interleave follows the
// moment:
//
//   * a backward whose gradient is there goes before any forward; of several blocks the one of the oldest
//     microbatch goes first, and of those the one of the last stage;
//   * a forward goes only while fewer than `in_flight_max` microbatches of its stage are between their F and
//     their W: the peak that the verifier found for the static order, so that a stage holds no more than there, or
//     a multiple of it;
//   * with a method that drains at every step, a forward goes only once the updates of all steps before its own
//     are made; with others, once the version it reads is made (Machine::NextForwardVersionIsMade);
//   * an update comes as soon as all of its gradients are accumulated.
//
// No run blocks for ever, whatever the timing, if no edge holds fewer messages than `in_flight_max`:
//   (1) A SEND waits at most for a credit that is on its way. What was sent and not received on an edge of
//       activations is in flight on the sending stage, and on an edge of gradients on the receiving one, for the
//       W of a microbatch on a stage comes after all that the stages behind do with it. So there are fewer than
//       `in_flight_max` such messages when the next one is sent.
//   (2) Let m be the oldest microbatch that is not done on all stages, and take the first of its blocks that is
//       missing. What it needs is there or on its way by (1). All microbatches before m are done everywhere, so
//       their updates are made: no stage lacks a version for m, a step before m's is closed, nothing older is in
//       flight on its stage (a forward has room, and a backward is the next of its stage). So its worker can do
//       it, or does another block first, of which there are finitely many.
//   (3) A collective is part of an update: one that closes a step, of methods that drain, or one of the replicas of a
//       stage. All workers reach the former, by (2), without any block of a later step. A worker that waits for the other
//       replicas of its stage has done its part of an update. If it is the worker of (2), the block that it lacks is of
//       a later update of the stage, so all microbatches of the former come before m and are done everywhere:
//       it does not wait.
//
// Thread-compatible; no threads, clock or I/O. Allocates nothing after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "schedule/lower.h"
#include "schedule/order_log.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace penstock {

class ReadyOrder {
 public:
  struct Options {
    MicrobatchRange range;  // whole steps, or updates; a multiple of the topology's cycle
    std::vector<int64_t> in_flight_max;   // by stage, of this worker's at least; 1 or more
    int64_t microbatches_per_update = 1;  // 1: with replicas one of each
    bool drains = false;  // at every update, which all stages of all workers make together
    LowerOptions lower;
  };
  // REQUIRES: `topology` is valid and outlives this; `worker` is one of its workers.
  ReadyOrder(const Topology& topology, WorkerId worker, const Options& options);

  // These depend on the moment.
  struct Moment {
    // True if a message for this action (RECV_F or RECV_B) waits. Its microbatch is that of the message where stages have
    // replicas, and otherwise 0.
    absl::FunctionRef<bool(const Action&)> message_waits;
    // True if the version that the next forward of the stage reads is made.
    absl::FunctionRef<bool(StageId)> version_is_made;
  };
  // The block to do now; nothing if all that is left has to wait.
  std::optional<OrderBlock> Next(const Moment& moment) const;

  // The microbatch that `block` would be of.
  int64_t MicrobatchOf(const OrderBlock& block) const;
  // Its actions, as those of microbatch 0.
  absl::Span<const Action> ActionsOf(const OrderBlock& block) const;
  // `block` was done. Returns the update that is now due: REDUCE, NORM and UPDATE, or nothing.
  absl::Span<const Action> Done(const OrderBlock& block);

  // The range ends earlier. REQUIRES: with a whole update, and no forward was done beyond.
  void Shorten(int64_t microbatches);
  // Nothing is left to do.
  bool finished() const;

  // All blocks in an order that at some moment holds, on every stage of this worker, all that any
  // order may hold (planner/cost/memory_plan.h walks it). The microbatches mean nothing.
  ActionList FullestOrder() const;

 private:
  struct Stage {
    StageId id;
    bool first = false;  // of the pipeline
    bool last = false;
    int32_t previous = -1;  // index of the neighbour in front, if that is on this worker
    int32_t next = -1;      // of the one behind
    int64_t in_flight_max = 1;
    int64_t forwards = 0;  // done in this range
    int64_t backwards = 0;
    ActionList forward, backward, update;
  };

  // In stages_.
  size_t IndexOf(StageId stage) const;
  // That of the n-th pass of this worker's stages.
  int64_t MicrobatchAt(int64_t n) const { return whole_.first + n * replicas_ + replica_; }
  // True if no message is needed for the n-th pass, or it waits.
  bool InputIsThere(const ActionList& actions, int64_t n, const Moment& moment) const;
  bool ForwardIsReady(const Stage& stage, const Moment& moment) const;
  bool BackwardIsReady(const Stage& stage, const Moment& moment) const;

  const MicrobatchRange whole_;
  // Of this worker's stages, which are one replica of each.
  bool replicated_ = false;  // some stages of the topology have replicas
  int64_t replicas_ = 1;
  int64_t replica_ = 0;
  // Of the microbatches that come to this worker.
  int64_t count_;  // of the range as it is now
  int64_t microbatches_per_update_;
  const bool drains_;
  std::vector<Stage> stages_;  // ascending
  ActionList update_;          // of all stages together, where the method drains
};

}  // namespace penstock
