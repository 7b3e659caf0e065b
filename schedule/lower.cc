#include "schedule/lower.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

using Actions = absl::Span<const Action>;

// The first action that `predicate` holds for, or null.
template <typename Predicate>
const Action* FindAction(const Program& program, Predicate predicate) {
  for (const ActionList* list : {&program.prologue, &program.period, &program.epilogue}) {
    const auto found = std::find_if(list->begin(), list->end(), predicate);
    if (found != list->end()) return &*found;
  }
  return nullptr;
}

class Lowering {
 public:
  // `program`: all of it, whose lists are then lowered one by one.
  Lowering(const Topology& topology, WorkerId worker, const LowerOptions& options,
           const Program& program)
      : topology_(topology),
        worker_(worker),
        options_(options),
        adds_recompute_(topology.stages()),
        replica_group_(topology.stages(), -1) {
    for (size_t group = 0; group < topology.groups.size(); ++group) {
      if (!topology.IsOfReplicas(topology.groups[group])) continue;
      for (const StageId stage : topology.groups[group].stages) {
        replica_group_[stage.value] = static_cast<int32_t>(group);
      }
    }
    for (const StageId stage : topology.StagesOf(worker)) {
      if (!topology[stage].recomputes) continue;
      adds_recompute_[stage.value] =
          FindAction(program, [stage](const Action& action) {
            return action == Action{ActionKind::kRecompute, stage.value, action.microbatch};
          }) == nullptr;
    }
  }

  ActionList Lower(Actions compute) const {
    ActionList result;
    std::vector<int32_t> begun;  // groups, until their REDUCE
    for (size_t i = 0; i < compute.size(); ++i) {
      const Action& action = compute[i];
      if (const size_t w = FirstWeight(compute, i);
          options_.reduces_early && w < compute.size() && IsLast(compute, w)) {
        begun.push_back(replica_group_[action.index]);
        result.push_back({ActionKind::kBeginReduce, begun.back()});
      }
      const StageId stage = action.stage();
      const int64_t m = action.microbatch;
      const auto add = [&](ActionKind kind) { result.push_back({kind, stage.value, m}); };
      if (options_.has_messages && !EndsStep(action)) {
        if (StartsBackward(action) && adds_recompute_[stage.value]) add(ActionKind::kRecompute);
        result.push_back(action);
        continue;
      }
      switch (action.kind) {
        case ActionKind::kForward:
          if (IsRemote(topology_.From(EdgeKind::kActivation, stage, m)))
            add(ActionKind::kRecvActivation);
          add(ActionKind::kForward);
          if (IsRemote(topology_.To(EdgeKind::kActivation, stage, m)))
            add(ActionKind::kSendActivation);
          if (IsRemote(topology_.To(EdgeKind::kCheckpoint, stage, 0)) && !options_.forwards_only) {
            add(ActionKind::kSendCheckpoint);
          }
          break;
        case ActionKind::kRecompute:
          AddRecompute(stage, m, result);
          break;
        case ActionKind::kBackwardInput:
          if (adds_recompute_[stage.value]) AddRecompute(stage, m, result);
          if (IsRemote(topology_.From(EdgeKind::kGradient, stage, m)))
            add(ActionKind::kRecvGradient);
          add(ActionKind::kBackwardInput);
          if (SendsGradient(stage, m) && !SendsAfterWeight(compute, i))
            add(ActionKind::kSendGradient);
          break;
        case ActionKind::kBackwardWeight:
          if (topology_.GoesOnWithSum(m)) add(ActionKind::kRecvSum);
          add(ActionKind::kBackwardWeight);
          if (SendsGradient(stage, m) && i > 0 && SendsAfterWeight(compute, i - 1)) {
            add(ActionKind::kSendGradient);
          }
          if (topology_.GoesOnWithSum(m + 1) && !topology_.streams_weights)
            result.push_back({ActionKind::kSendSum, stage.value, m + 1});
          break;
        case ActionKind::kReduce:
          if (i == 0 || !EndsStep(compute[i - 1])) AddNorm(result);
          result.push_back(action);
          break;
        case ActionKind::kUpdate:
          if (i == 0 || !SameUpdate(compute[i - 1], action)) {
            AddCollectives(compute.subspan(i), begun, result);
          }
          result.push_back(action);
          break;
        default:
          result.push_back(action);
      }
    }
    return result;
  }

 private:
  // True if there is such a stage, and on another worker.
  bool IsRemote(StageId other) const {
    return other.value >= 0 && topology_.worker(other) != worker_;
  }
  bool SendsGradient(StageId stage, int64_t microbatch) const {
    return IsRemote(topology_.To(EdgeKind::kGradient, stage, microbatch));
  }

  void AddRecompute(StageId stage, int64_t microbatch, ActionList& result) const {
    if (IsRemote(topology_.From(EdgeKind::kCheckpoint, stage, 0))) {
      result.push_back({ActionKind::kRecvCheckpoint, stage.value, microbatch});
    }
    result.push_back({ActionKind::kRecompute, stage.value, microbatch});
  }

  // True if `action` is the first of a microbatch's backward, in a list that has its messages.
  bool StartsBackward(const Action& action) const {
    if (action.kind == ActionKind::kRecvGradient) return true;
    return action.kind == ActionKind::kBackwardInput &&
           !IsRemote(topology_.From(EdgeKind::kGradient, action.stage(), action.microbatch));
  }

  // True if the W of compute[i], an I, follows at once.
  static bool IsFollowedByWeight(Actions compute, size_t i) {
    return i + 1 < compute.size() &&
           compute[i + 1] ==
               Action{ActionKind::kBackwardWeight, compute[i].index, compute[i].microbatch};
  }

  // True if compute[i] is an I whose gradient is sent only after the W that follows.
  bool SendsAfterWeight(Actions compute, size_t i) const {
    return !options_.send_gradient_early && compute[i].kind == ActionKind::kBackwardInput &&
           IsFollowedByWeight(compute, i);
  }

  // True if both are updates of one model.
  bool SameUpdate(const Action& a, const Action& b) const {
    return a.kind == ActionKind::kUpdate && b.kind == ActionKind::kUpdate &&
           topology_[a.stage()].pipeline == topology_[b.stage()].pipeline;
  }

  // True if it belongs to what ends a step there and back, and so comes after its NORM.
  static bool EndsStep(const Action& action) {
    return action.kind == ActionKind::kUpdate || action.kind == ActionKind::kReduce;
  }

  // Before weights are copied without an UPDATE here; other REDUCEs of weights stand where no norm is asked.
  void AddNorm(ActionList& result) const {
    if (options_.global_norm && topology_.form == Topology::Form::kThereAndBack) {
      result.push_back({ActionKind::kNorm});
    }
  }

  // Where the W stands before which, or before whose I, compute[i] begins a reduction; else the end.
  size_t FirstWeight(Actions compute, size_t i) const {
    if (compute[i].kind == ActionKind::kBackwardInput && IsFollowedByWeight(compute, i)) {
      return i + 1;
    }
    const bool alone = compute[i].kind == ActionKind::kBackwardWeight &&
                       (i == 0 || compute[i - 1].kind != ActionKind::kBackwardInput ||
                        !IsFollowedByWeight(compute, i - 1));
    return alone ? i : compute.size();
  }

  // True if the stage of compute[w], a W, has replicas, and its UPDATE comes before another W.
  bool IsLast(Actions compute, size_t w) const {
    const int32_t stage = compute[w].index;
    if (replica_group_[stage] < 0) return false;
    const Actions rest = compute.subspan(w + 1);
    const auto next = std::find_if(rest.begin(), rest.end(), [stage](const Action& action) {
      return action.index == stage &&
             (action.kind == ActionKind::kBackwardWeight || action.kind == ActionKind::kUpdate);
    });
    return next != rest.end() && next->kind == ActionKind::kUpdate;
  }

  // Adds what comes before the updates at the front of `rest`. Takes what it reduces from `begun`.
  void AddCollectives(Actions rest, std::vector<int32_t>& begun, ActionList& result) const {
    const auto end = std::find_if(rest.begin(), rest.end(), [&](const Action& action) {
      return !SameUpdate(rest.front(), action);
    });
    const std::vector<int32_t> first = std::exchange(begun, {});
    for (const int32_t group : first) result.push_back({ActionKind::kReduce, group});
    for (size_t group = 0; group < topology_.groups.size(); ++group) {
      const ReduceGroup& members = topology_.groups[group];
      if (members.quantity != ReduceGroup::Quantity::kGradient) continue;
      if (std::find(first.begin(), first.end(), static_cast<int32_t>(group)) != first.end()) {
        continue;
      }
      const bool steps = std::any_of(rest.begin(), end, [&members](const Action& step) {
        return std::find(members.stages.begin(), members.stages.end(), step.stage()) !=
               members.stages.end();
      });
      if (steps) result.push_back({ActionKind::kReduce, static_cast<int32_t>(group)});
    }
    if (!options_.global_norm) return;
    int32_t norm = 0;
    while (norm < topology_.norms() && !topology_.IsInNorm(rest.front().stage(), norm)) ++norm;
    PENSTOCK_CHECK(norm < topology_.norms());
    result.push_back({ActionKind::kNorm, norm});
  }

  const Topology& topology_;
  const WorkerId worker_;
  const LowerOptions& options_;
  std::vector<bool> adds_recompute_;    // by stage
  std::vector<int32_t> replica_group_;  // by stage: that of its replicas; -1: none
};

// What lists hold that are not complete: passes, updates and moves of stashes.
bool IsCompute(ActionKind kind) {
  return MovesStash(kind) || kind == ActionKind::kForward || kind == ActionKind::kRecompute ||
         kind == ActionKind::kBackwardInput || kind == ActionKind::kBackwardWeight ||
         kind == ActionKind::kUpdate;
}

bool ReducesWeights(const Topology& topology, const Action& action) {
  return action.kind == ActionKind::kReduce && action.index >= 0 &&
         action.index < static_cast<int32_t>(topology.groups.size()) &&
         topology.groups[action.index].quantity == ReduceGroup::Quantity::kWeight;
}

// True if the stage of `action`, or one of its group, is on `worker`.
bool IsOn(const Topology& topology, const Action& action, WorkerId worker) {
  if (action.kind == ActionKind::kReduce) {
    const std::vector<WorkerId> members = topology.WorkersOf(action.group());
    return std::find(members.begin(), members.end(), worker) != members.end();
  }
  return action.index >= 0 && action.index < topology.stages() &&
         topology.worker(action.stage()) == worker;
}

template <typename Predicate>
bool HasNone(const Schedule& schedule, Predicate predicate) {
  return std::all_of(
      schedule.programs.begin(), schedule.programs.end(),
      [&](const Program& program) { return FindAction(program, predicate) == nullptr; });
}

// True if nobody reduces two groups, one right after the other, in another order than somebody else.
bool ReduceInOneOrder(absl::Span<const Program> programs) {
  std::set<std::pair<int32_t, int32_t>> before;
  for (const Program& program : programs) {
    for (const ActionList* list : {&program.prologue, &program.period, &program.epilogue}) {
      std::vector<int32_t> together;
      for (const Action& action : *list) {
        if (action.kind != ActionKind::kReduce) {
          together.clear();
          continue;
        }
        for (const int32_t group : together) {
          if (before.count({action.index, group}) > 0) return false;
          before.insert({group, action.index});
        }
        together.push_back(action.index);
      }
    }
  }
  return true;
}

}  // namespace

Program Lower(const Program& compute, const Topology& topology, WorkerId worker,
              const LowerOptions& options) {
  const Lowering lowering(topology, worker, options, compute);
  Program program = compute;
  program.prologue = lowering.Lower(compute.prologue);
  program.period = lowering.Lower(compute.period);
  program.epilogue = lowering.Lower(compute.epilogue);
  program.epilogue.push_back({ActionKind::kFlush});
  return program;
}

std::vector<Program> LowerAll(absl::Span<const Program> compute, const Topology& topology,
                              LowerOptions options) {
  const auto lower_all = [&] {
    std::vector<Program> lowered;
    for (size_t id = 0; id < compute.size(); ++id) {
      lowered.push_back(Lower(compute[id], topology, WorkerId(static_cast<int32_t>(id)), options));
    }
    return lowered;
  };
  std::vector<Program> lowered = lower_all();
  if (ReduceInOneOrder(lowered)) return lowered;
  options.reduces_early = false;
  return lower_all();
}

absl::StatusOr<Schedule> CompleteSchedule(Schedule compute, const LowerOptions& options) {
  LowerOptions lower = options;
  lower.has_messages = !IsComputeOnly(compute);
  lower.forwards_only = compute.completeness == Completeness::kEvaluate;
  const Topology& topology = compute.topology;
  PENSTOCK_RETURN_IF_ERROR(CheckTopology(topology));
  for (size_t id = 0; id < compute.programs.size(); ++id) {
    const WorkerId worker(static_cast<int32_t>(id));
    Program& program = compute.programs[id];
    const Action* other = FindAction(program, [&](const Action& action) {
      const bool message = IsSend(action.kind) || IsReceive(action.kind);
      const bool allowed = IsCompute(action.kind) || ReducesWeights(topology, action) ||
                           (lower.has_messages && message);
      return !allowed || !IsOn(topology, action, worker);
    });
    if (other != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "worker ", id, ": ", ToString(*other),
          ": expected only F, R, I, W, UPDATE, OFFLOAD, EVICT, PREFETCH, messages and REDUCE of "
          "weights of its stages"));
    }
    const bool steps = FindAction(program, [](const Action& action) {
                         return action.kind == ActionKind::kUpdate;
                       }) != nullptr;
    if (!steps && compute.completeness == Completeness::kTrain) {
      for (const StageId stage : topology.StagesOf(worker)) {
        if (topology[stage].updates) program.epilogue.push_back({ActionKind::kUpdate, stage.value});
      }
    }
  }
  compute.programs = LowerAll(compute.programs, topology, lower);
  return compute;
}

bool IsComputeOnly(const Schedule& schedule) {
  return HasNone(schedule, [&](const Action& action) {
    return !IsCompute(action.kind) && !ReducesWeights(schedule.topology, action);
  });
}

bool MovesStashes(const Schedule& schedule) {
  return !HasNone(schedule, [](const Action& action) { return MovesStash(action.kind); });
}

bool IsComplete(const Schedule& schedule) {
  return !HasNone(schedule, [](const Action& action) { return action.kind == ActionKind::kFlush; });
}

}  // namespace penstock
