// Action: one thing a worker does. A schedule is lists of these and nothing else.
//
// The text form follows PyTorch's pipelining: <stage><op><microbatch>, for example 1F3 (forward of
// microbatch 3 on stage 1), 0SEND_F3, 2RECV_B0, 2I0 (gradient of the input), 2W0 (gradient of the
// weights), 1UPDATE; and 0REDUCE (of group 0), NORM, FLUSH. 2R0 is our own: stage 2 does the forward of
// microbatch 0 again, because it kept no more of it than its input. So are the messages of
// pipelines that go there and back (schedule.h): 0SEND_R3 and 4RECV_R3 carry what an R starts from,
// 4SEND_W8 and 11RECV_W8 the sum that the W of microbatch 8 goes on with.
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

enum class Op : uint8_t {
  kRecvActivation,
  kForward,
  kSendActivation,
  kRecvGradient,
  kRecompute,  // the forward again, for what the backward needs of it
  kBackwardInput,
  kBackwardWeight,
  kSendGradient,
  kReduce,  // of a group: combine gradients (or weights) of the stages that share parameters
  kNorm,    // of all workers: the gradient norm that clipping needs
  kUpdate,  // of a stage: apply the accumulated gradient; its weight version grows by one
  kFlush,   // of a worker: nothing is in flight, stashed or accumulated; a consistent cut
  kSendCheckpoint,  // the input of a stage's F, to the stage that does it again
  kRecvCheckpoint,
  kSendSum,  // the gradients accumulated so far, to the stage that goes on from `microbatch`
  kRecvSum,
};
inline constexpr int kOps = 16;

struct Action {
  Op op;
  int32_t index = 0;       // the stage; for kReduce the group; 0 for kNorm and kFlush
  int64_t microbatch = 0;  // 0 for kReduce, kNorm, kUpdate and kFlush

  StageId stage() const { return StageId(index); }
  GroupId group() const { return GroupId(index); }

  friend bool operator==(const Action&, const Action&) = default;
};

// True for the operations that belong to one stage and one microbatch.
constexpr bool HasMicrobatch(Op op) { return op < Op::kReduce || op > Op::kFlush; }
constexpr bool HasIndex(Op op) { return op != Op::kNorm && op != Op::kFlush; }
// Messages between stages of different workers.
constexpr bool IsSend(Op op) {
  return op == Op::kSendActivation || op == Op::kSendGradient || op == Op::kSendCheckpoint ||
         op == Op::kSendSum;
}
constexpr bool IsReceive(Op op) {
  return op == Op::kRecvActivation || op == Op::kRecvGradient || op == Op::kRecvCheckpoint ||
         op == Op::kRecvSum;
}
// Barriers that several workers pass together.
constexpr bool IsCollective(Op op) { return op == Op::kReduce || op == Op::kNorm; }

// "F", "SEND_F", "UPDATE", ...
absl::string_view OpName(Op op);
// kUpdate had this name in the version before. ParseAction still takes it.
inline constexpr absl::string_view kOldUpdateName = "STEP";

// The text form; ParseAction is its inverse.
std::string ToString(const Action& action);

// Errors: InvalidArgument with the text and what was expected.
absl::StatusOr<Action> ParseAction(absl::string_view text);

}  // namespace penstock
