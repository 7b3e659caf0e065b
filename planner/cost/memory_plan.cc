#include "planner/cost/memory_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace penstock {
namespace {

// Returns how an action changes the bytes that were in use before it.
PassBytes BytesOf(const Action& action, const std::vector<StageBytes>& stages) {
  const auto stage = [&]() -> const StageBytes& { return stages[action.index]; };
  switch (action.op) {
    case Op::kForward:
      return stage().activations.forward;
    case Op::kRecompute:
      return stage().activations.recompute;
    case Op::kBackwardInput:
      return stage().activations.backward_input;
    case Op::kBackwardWeight:
      return stage().activations.backward_weight;
    case Op::kRecvActivation:
    case Op::kRecvGradient:
    case Op::kRecvCheckpoint:
      return {stage().activations.boundary, stage().activations.boundary};
    case Op::kSendSum:
    case Op::kRecvSum:
      return {stage().sum, action.op == Op::kSendSum ? stage().sum : 0};
    case Op::kSendActivation:
    case Op::kSendGradient:
    case Op::kSendCheckpoint:
      return {0, -stage().activations.boundary};
    case Op::kReduce: {
      int64_t most = 0;
      for (const StageBytes& any : stages) {
        most = std::max({most, any.tied_gradient, any.copied_weights, any.reduced_gradients});
      }
      return {most, 0};
    }
    case Op::kNorm:
    case Op::kUpdate:
    case Op::kFlush:
      return {};
  }
  return {};
}

}  // namespace

int64_t PeakActivationBytes(const Program& program, const std::vector<StageBytes>& stages) {
  Program walked = program;
  // Every copy of the period leaves what it found, so that the second shows all that the others would.
  walked.repeats = std::min<int64_t>(walked.repeats, 2);
  int64_t sent_weights = 0;
  for (const StageBytes& stage : stages) {
    sent_weights += stage.sent_weights + stage.sent_gradients;
  }
  int64_t bytes = 0;
  int64_t most = 0;
  std::map<int32_t, int64_t> sums;  // on their way, by part
  bool step_ends = false;           // weights are being copied
  bool sends_weights = false;  // those of a step may still be under way when the next ones come
  for (ProgramCursor cursor(walked); !cursor.Done(); cursor.Advance()) {
    const Action action = cursor.Current();
    const PassBytes change = BytesOf(action, stages);
    if (action.op == Op::kReduce && !step_ends) {
      step_ends = true;
      if (!std::exchange(sends_weights, true)) bytes += sent_weights;
    } else if (step_ends && HasMicrobatch(action.op)) {
      step_ends = false;
      for (auto& [part, sum] : sums) bytes -= std::exchange(sum, 0);
    }
    if (action.op == Op::kRecvSum) bytes -= std::exchange(sums[stages[action.index].part], 0);
    if (action.op == Op::kSendSum) sums[stages[action.index].part] += change.left;
    most = std::max(most, bytes + change.most);
    bytes += change.left;
  }
  return most;
}

}  // namespace penstock
