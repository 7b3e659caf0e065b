// Action: one thing a worker does. A schedule is lists of these and nothing else.
//
// The text form follows PyTorch's pipelining: <stage><kind><microbatch>, for example 1F3 (forward of
// microbatch 3 on stage 1), 0SEND_F3, 2RECV_B0, 2I0 (gradient of the input), 2W0 (gradient of the
// weights), 1UPDATE; and 0REDUCE (of group 0), NORM, FLUSH. 2R0 is our own: stage 2 does the forward of
// microbatch 0 again, because it kept no more of it than its input. So are the messages of
// pipelines that go there and back (schedule.h): 0SEND_R3 and 4RECV_R3 carry what an R starts from,
// 4SEND_W8 and 11RECV_W8 the sum that the W of microbatch 8 goes on with. And so are moves of a stash
// between the device and the host: 0OFFLOAD3 begins to copy it out, 0EVICT3 waits for that and frees the
// device's memory, 0PREFETCH3 takes memory and begins to copy it back, which I waits for. Where weights are
// streamed there and back, 4SEND_Q8 takes memory for those with which stage 4 passes the microbatches from 8 on
// and asks for them, the worker that has them answers with 4RECV_Q8 and 4SEND_P8, 4RECV_P8 waits for them, and
// 4DROP8 gives the memory back. All five name the stage that gets the weights. Where these live in files, 5LOAD8 takes
// memory for those of a stage that its own worker updates and begins to read them, which the passes wait for; 5DROP8 gives
// the memory back. 0BEGIN_REDUCE announces that the next W is the last before 0REDUCE: its gradients leave layer by layer,
// while it runs.
//
// There is no fused backward: it is I followed at once by W, and printing may show the pair as B.
// An action holds no time (idle time is a result) and no weight version (versions follow from the
// order; machine.h derives them).
//
// A plain value; thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace penstock {

enum class ActionKind : uint8_t {
  kRecvActivation,
  kForward,
  kSendActivation,
  kRecvGradient,
  kRecompute,  // the forward again, for what the backward needs of it
  kBackwardInput,
  kBackwardWeight,
  kSendGradient,
  kReduce,  // of a group: combine gradients (or weights) of the stages that share parameters
  kNorm,  // of all workers: the gradient norm that clipping needs; of one pipeline, where they are models
  kUpdate,          // of a stage: apply the accumulated gradient; its weight version grows by one
  kFlush,           // of a worker: nothing is in flight, stashed or accumulated; a consistent cut
  kSendCheckpoint,  // the input of a stage's F, to the stage that does it again
  kRecvCheckpoint,
  kSendSum,  // the gradients accumulated so far, to the stage that goes on from `microbatch`
  kRecvSum,
  kOffload,      // begin to copy a stash to the host
  kEvict,        // once that is done, give its memory on the device back
  kPrefetch,     // take memory on the device, and begin to copy it back
  kSendRequest,  // takes memory for the weights of a stage, and asks for them
  kRecvRequest,
  kSendWeights,
  kRecvWeights,
  kDropWeights,  // gives that memory back
  kBeginReduce,  // of a group: what the next W of its stage here finishes, REDUCE combines beside it
  kLoadWeights,  // takes memory for weights that are in the worker's own file, and begins to read them
};
inline constexpr int kActionKinds = 26;

struct Action {
  ActionKind kind;
  int32_t index = 0;  // the stage; of a reduction the group; for kNorm the pipeline; 0 for kFlush
  int64_t microbatch = 0;  // 0 for reductions, kNorm, kUpdate and kFlush

  StageId stage() const { return StageId(index); }
  GroupId group() const { return GroupId(index); }

  friend bool operator==(const Action&, const Action&) = default;
};

// True for the operations that belong to one stage and one microbatch.
constexpr bool HasMicrobatch(ActionKind kind) {
  return kind < ActionKind::kReduce ||
         (kind > ActionKind::kFlush && kind != ActionKind::kBeginReduce);
}
constexpr bool HasIndex(ActionKind kind) {
  return kind != ActionKind::kNorm && kind != ActionKind::kFlush;
}
// Messages between stages of different workers.
constexpr bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient ||
         kind == ActionKind::kSendCheckpoint || kind == ActionKind::kSendSum ||
         kind == ActionKind::kSendRequest || kind == ActionKind::kSendWeights;
}
constexpr bool IsReceive(ActionKind kind) {
  return kind == ActionKind::kRecvActivation || kind == ActionKind::kRecvGradient ||
         kind == ActionKind::kRecvCheckpoint || kind == ActionKind::kRecvSum ||
         kind == ActionKind::kRecvRequest || kind == ActionKind::kRecvWeights;
}
// Moves of a stash between the device and the host.
constexpr bool MovesStash(ActionKind kind) {
  return kind == ActionKind::kOffload || kind == ActionKind::kEvict ||
         kind == ActionKind::kPrefetch;
}
// Of the worker that has the weights: their index is a stage of another worker, which gets them.
constexpr bool ServesWeights(ActionKind kind) {
  return kind == ActionKind::kRecvRequest || kind == ActionKind::kSendWeights;
}
// Moves of weights between workers, or from a file, which passes wait for.
constexpr bool StreamsWeights(ActionKind kind) {
  return (kind >= ActionKind::kSendRequest && kind <= ActionKind::kDropWeights) ||
         kind == ActionKind::kLoadWeights;
}
// Those whose index is a group's.
constexpr bool IsOfGroup(ActionKind kind) {
  return kind == ActionKind::kReduce || kind == ActionKind::kBeginReduce;
}
// Barriers that several workers pass together.
constexpr bool IsCollective(ActionKind kind) {
  return kind == ActionKind::kReduce || kind == ActionKind::kNorm;
}

// "F", "SEND_F", "UPDATE", ...
absl::string_view ActionName(ActionKind kind);
// kUpdate had this name in the version before. ParseAction still takes it.
inline constexpr absl::string_view kOldUpdateName = "STEP";

// The text form; ParseAction is its inverse.
std::string ToString(const Action& action);

// Errors: InvalidArgument with the text and what was expected.
absl::StatusOr<Action> ParseAction(absl::string_view text);

}  // namespace penstock
