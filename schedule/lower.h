// Lowering: from the compute actions of a worker (F, I, W, UPDATE) to its complete program. When replicas
// average their weights is part of the method, so a REDUCE of weights stays where the list has it.
//
// The author of a schedule only says in which order things are computed. Messages, reductions and
// norms follow from the topology by fixed rules:
//
//   * a receive stands just before the action that needs it, a send just after the one that made
//   it;
//   * a whole backward is I W SEND_B, in this order, so that the previous stage waits for all of
//   it;
//     where W does not follow I at once (or with send_gradient_early), SEND_B follows I;
//   * where a stage recomputes and its list has no R, one stands just before the RECV_B of each microbatch (or
//     its I, where no message comes), so that it runs while the gradient is on its way;
//   * there and back (Topology::Rounds) SEND_R follows F, and RECV_R stands before R, where the twin is on another
//     worker; around the W of a round stand RECV_W, before the first, and SEND_W, after the last, but for the
//     first and the last round of a step. Where weights are streamed, SEND_W stays where the list has it;
//   * before consecutive updates (of one pipeline) stands one REDUCE of each group of gradients with a member among them,
//     in ascending order of the groups (two workers that met in different orders would wait for each
//     other for ever), and then a NORM if the gradient norm is global. A worker without an UPDATE, as there may be
//     there and back, has its NORM before it copies weights;
//   * where places have replicas, their group is one of gradients, and a message goes to and comes from the
//     replica that the microbatch takes. A BEGIN_REDUCE of the group stands before the last W of each update, or
//     before the I (and its R and RECV_B) that the W follows at once, if that W stands in the same list as the UPDATE. Groups that have begun
//     are reduced first, in the order in which they began;
//   * messages with streamed weights stay where the list has them;
//   * moves of stashes (OFFLOAD, EVICT, PREFETCH) stay where the list has them; offload.h adds them to lists without;
//   * neighbours on the same worker exchange no messages;
//   * FLUSH is the last action of the epilogue.
//
// Prologue, period and epilogue are lowered each by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace penstock {

// Part of the digest: raise it whenever the rules above change, so that two builds with different
// rules refuse to run together.
inline constexpr int32_t kLoweringVersion = 4;

struct LowerOptions {
  // A NORM of all workers before the updates (of one pipeline). Every worker must make the same number of updates.
  bool global_norm = false;
  // SEND_B directly after I: shortens the bubble, but the backward is no longer one piece.
  bool send_gradient_early = false;
  // In an evaluate range no stage keeps its input.
  bool forwards_only = false;
  // BEGIN_REDUCE is added. REQUIRES: workers that have two groups in common begin these in the same order.
  bool reduces_early = true;
  // The list has its messages already; only R, what comes before updates, and FLUSH are added.
  bool has_messages = false;
};

// REQUIRES: `compute` holds only F, R, I, W, UPDATE, moves of stashes and REDUCE of weights of stages of `worker`, and messages if
// it has them.
Program Lower(const Program& compute, const Topology& topology, WorkerId worker,
              const LowerOptions& options);

// The same for all workers of a schedule, by WorkerId. Where two of them would begin the same two reductions in different orders, and so
// wait for each other for ever, none begins early.
std::vector<Program> LowerAll(absl::Span<const Program> compute, const Topology& topology,
                              LowerOptions options);

// A whole schedule from lists as people and other tools write them: compute actions (and REDUCE of weights)
// alone, or with all messages (those of PyTorch's pipelining). A worker whose list has no UPDATE gets
// one for each of its stages at the end (in a train range). Errors: InvalidArgument if the topology
// is not valid or a worker has other actions than these of its own stages.
absl::StatusOr<Schedule> CompleteSchedule(Schedule schedule, const LowerOptions& options);

// True if there are no messages, reductions or FLUSH.
bool IsComputeOnly(const Schedule& schedule);
// True if its lists move stashes (OFFLOAD, EVICT, PREFETCH).
bool MovesStashes(const Schedule& schedule);
// True if there is a FLUSH, so that nothing is to be added.
bool IsComplete(const Schedule& schedule);

}  // namespace penstock
