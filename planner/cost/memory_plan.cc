#include "planner/cost/memory_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace penstock {
namespace {

// Returns how an action changes the bytes that were in use before it.
PassBytes BytesOf(const Action& action, const std::vector<StageBytes>& stages) {
  const auto stage = [&]() -> const StageBytes& { return stages[action.index]; };
  switch (action.kind) {
    case ActionKind::kForward:
      return stage().activations.forward;
    case ActionKind::kRecompute:
      return stage().activations.recompute;
    case ActionKind::kBackwardInput:
      return stage().activations.backward_input;
    case ActionKind::kBackwardWeight:
      return stage().activations.backward_weight;
    case ActionKind::kRecvActivation:
    case ActionKind::kRecvCheckpoint:
      return {stage().activations.input + stage().input_message, stage().activations.input};
    case ActionKind::kRecvGradient:
      return {stage().activations.grad_output + stage().grad_output_message,
              stage().activations.grad_output};
    case ActionKind::kSendSum:
    case ActionKind::kRecvSum:
      return {stage().sum, action.kind == ActionKind::kSendSum ? stage().sum : 0};
    case ActionKind::kSendActivation:
      return {stage().output_message, -stage().activations.output};
    case ActionKind::kSendGradient:
      return {stage().grad_input_message, -stage().activations.grad_input};
    case ActionKind::kSendCheckpoint:
      return {0, -stage().activations.input};
    case ActionKind::kReduce: {
      int64_t most = 0;
      for (const StageBytes& any : stages) {
        most = std::max({most, any.tied_gradient, any.copied_weights, any.reduced_gradients});
      }
      return {most, 0};
    }
    case ActionKind::kEvict:
      return {0, -stage().activations.stash};
    case ActionKind::kPrefetch:
      return {stage().activations.stash, stage().activations.stash};
    case ActionKind::kSendRequest:
      return {stage().streamed_weights, stage().streamed_weights};
    case ActionKind::kLoadWeights: {
      const int64_t weights = stage().streamed_weights + stage().streamed_mirror;
      return {weights, weights};
    }
    case ActionKind::kRecvWeights:
      return {stage().streamed_mirror, stage().streamed_mirror};
    case ActionKind::kDropWeights:
      return {0, -stage().streamed_weights - stage().streamed_mirror};
    case ActionKind::kRecvRequest:
    case ActionKind::kSendWeights: {
      // Read from a file, they are here from the question on.
      const bool now = stage().in_file == (action.kind == ActionKind::kRecvRequest);
      const int64_t weights = now ? stage().streamed_weights : 0;
      return {weights, weights};
    }
    case ActionKind::kUpdate:
      return {stage().updated, 0};
    case ActionKind::kOffload:
    case ActionKind::kBeginReduce:
    case ActionKind::kNorm:
    case ActionKind::kFlush:
      return {};
  }
  return {};
}

// Slots are counted over rounds, in the order in which they begin.
int64_t SlotOf(const Topology& topology, const Action& action) {
  return action.microbatch / topology.rounds.microbatches * topology.slots() +
         topology[action.stage()].slot;
}

// Returns the actions, counted from 0, before which the sums that a worker gets may come at the earliest, with their bytes.
std::multimap<int64_t, int64_t> ArrivalsOfSums(const Program& program,
                                               const std::vector<StageBytes>& stages,
                                               const Topology& topology) {
  struct Passed {
    int64_t slot = 0;
    int64_t begun = 0;  // the action after its first microbatch
  };
  std::vector<Passed> passed;
  std::multimap<int64_t, int64_t> arrivals;
  int64_t position = 0;
  for (ProgramCursor cursor(program); !cursor.Done(); cursor.Advance()) {
    const Action action = cursor.Current();
    ++position;
    const bool passes = action.kind == ActionKind::kForward ||
                        action.kind == ActionKind::kBackwardInput ||
                        action.kind == ActionKind::kBackwardWeight;
    if (passes) {
      const int64_t slot = SlotOf(topology, action);
      if (passed.empty() || passed.back().slot != slot) passed.push_back({.slot = slot});
      if (action.microbatch % topology.rounds.microbatches == 0) passed.back().begun = position;
    }
    if (action.kind != ActionKind::kRecvSum) continue;
    // Where the slot before is of another round, that it has begun is not known; the one before that then has.
    const int64_t round = SlotOf(topology, action) / topology.slots();
    auto before = passed.rbegin();
    if (before != passed.rend()) ++before;
    if (before != passed.rend() && before->slot / topology.slots() != round) ++before;
    arrivals.emplace(before == passed.rend() ? 0 : before->begun, stages[action.index].sum);
  }
  return arrivals;
}

}  // namespace

int64_t PeakActivationBytes(const Program& program, const std::vector<StageBytes>& stages) {
  Program walked = program;
  // Every copy of the period leaves what it found, so that the second shows all that the others would.
  walked.repeats = std::min<int64_t>(walked.repeats, 2);
  int64_t sent_weights = 0;
  int64_t early = 0;
  for (const StageBytes& stage : stages) {
    sent_weights += stage.sent_weights + stage.sent_gradients;
    early = std::max(early, stage.reduced_gradients);
  }
  int64_t bytes = 0;
  int64_t most = 0;
  std::map<int32_t, int64_t> sums;  // on their way, by part
  bool step_ends = false;           // weights are being copied
  std::set<int32_t> begun;          // groups, which exchange messages one after the other
  bool sends_weights = false;  // those of a step may still be under way when the next ones come
  for (ProgramCursor cursor(walked); !cursor.Done(); cursor.Advance()) {
    const Action action = cursor.Current();
    PassBytes change = BytesOf(action, stages);
    if (action.kind == ActionKind::kBeginReduce && begun.insert(action.index).second &&
        begun.size() == 1) {
      change = {early, early};
    } else if (action.kind == ActionKind::kReduce && begun.erase(action.index) > 0) {
      change = {0, begun.empty() ? -early : 0};
    }
    if (action.kind == ActionKind::kReduce && !step_ends) {
      step_ends = true;
      if (!std::exchange(sends_weights, true)) bytes += sent_weights;
    } else if (step_ends && HasMicrobatch(action.kind)) {
      step_ends = false;
      for (auto& [part, sum] : sums) bytes -= std::exchange(sum, 0);
    }
    if (action.kind == ActionKind::kRecvSum)
      bytes -= std::exchange(sums[stages[action.index].part], 0);
    if (action.kind == ActionKind::kSendSum) sums[stages[action.index].part] += change.left;
    most = std::max(most, bytes + change.most);
    bytes += change.left;
  }
  return most;
}

int64_t PeakStreamedBytes(const Program& program, const std::vector<StageBytes>& stages,
                          const Topology& topology) {
  Program walked = program;
  walked.repeats = std::min<int64_t>(walked.repeats, 2);
  const std::multimap<int64_t, int64_t> arrivals = ArrivalsOfSums(walked, stages, topology);
  int64_t position = 0;
  int64_t bytes = 0;
  int64_t most = 0;
  std::map<int64_t, int64_t> sent;         // on their way, by the slot they are for
  std::map<int32_t, int64_t> accumulated;  // the last microbatch, by part with gradients here
  for (ProgramCursor cursor(walked); !cursor.Done(); cursor.Advance()) {
    const auto [first, last] = arrivals.equal_range(position++);
    for (auto sum = first; sum != last; ++sum) bytes += sum->second;
    const Action action = cursor.Current();
    PassBytes change = BytesOf(action, stages);
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kBackwardInput:
        while (!sent.empty() && sent.begin()->first < SlotOf(topology, action)) {
          bytes -= sent.begin()->second;
          sent.erase(sent.begin());
        }
        break;
      case ActionKind::kSendWeights:
        sent[SlotOf(topology, action)] += stages[action.index].streamed_weights;
        break;
      case ActionKind::kSendSum: {
        // The stage that goes on is at the same place of the round that begins with the microbatch.
        const StageBytes& stage = stages[action.index];
        sent[SlotOf(topology, action)] += change.left;
        if (accumulated.erase(stage.part) > 0) change.left -= stage.gradients;
        break;
      }
      case ActionKind::kRecvSum:
      case ActionKind::kBackwardWeight: {
        const StageBytes& stage = stages[action.index];
        if (accumulated.insert_or_assign(stage.part, action.microbatch).second) {
          change.most += stage.gradients;
          change.left += stage.gradients;
        }
        // It was here before.
        if (action.kind == ActionKind::kRecvSum) bytes -= stage.sum;
        break;
      }
      case ActionKind::kDropWeights: {
        const StageBytes& stage = stages[action.index];
        const auto found = accumulated.find(stage.part);
        const int64_t next = action.microbatch + topology.rounds.microbatches;
        const bool stored = topology.StoresSums(action.stage()) && found != accumulated.end() &&
                            found->second == next - 1 && topology.GoesOnWithSum(next);
        if (!stored) break;
        accumulated.erase(found);
        change.left -= stage.gradients;
        break;
      }
      case ActionKind::kUpdate:
        change.left -= stages[action.index].gradients;
        accumulated.erase(stages[action.index].part);
        break;
      default:
        break;
    }
    most = std::max(most, bytes + change.most);
    bytes += change.left;
  }
  return most;
}

}  // namespace penstock
