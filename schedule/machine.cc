#include "schedule/machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

// What a stage can hold of a microbatch.
constexpr uint8_t kInput = 1 << 0;
constexpr uint8_t kOutput = 1 << 1;
constexpr uint8_t kStash = 1 << 2;
constexpr uint8_t kOutputGradient = 1 << 3;
constexpr uint8_t kWeightStash = 1 << 4;
constexpr uint8_t kInputGradient = 1 << 5;
constexpr uint8_t kCheckpoint = 1 << 6;

// The name of the lowest bit of `holdings`.
absl::string_view NameOf(uint8_t holdings) {
  if (holdings & kInput) return "input";
  if (holdings & kOutput) return "output";
  if (holdings & kStash) return "stash";
  if (holdings & kOutputGradient) return "output gradient";
  if (holdings & kWeightStash) return "weight stash";
  if (holdings & kInputGradient) return "input gradient";
  return "checkpoint";
}

void Count(int64_t microbatches, int64_t max, int64_t sum, StalenessCount& count) {
  ++count.updates;
  count.max = std::max(count.max, max);
  count.sum += sum;
  count.microbatches += microbatches;
}

void Add(const StalenessCount& range, StalenessCount& total) {
  total.updates += range.updates;
  total.max = std::max(total.max, range.max);
  total.sum += range.sum;
  total.microbatches += range.microbatches;
}

}  // namespace

void AddRange(const StageCounts& range, StageCounts& total) {
  Add(range.staleness, total.staleness);
  Add(range.version_drift, total.version_drift);
  total.versions_live = range.versions_live;
  total.versions_peak = std::max(total.versions_peak, range.versions_peak);
  total.moved_copies = std::max(total.moved_copies, range.moved_copies);
  total.activations_live = range.activations_live;
  total.activations_peak = std::max(total.activations_peak, range.activations_peak);
}

Machine::Machine(const Topology& topology, WorkerId worker, WeightPolicy policy)
    : topology_(&topology), worker_(worker), index_of_(topology.stages(), -1) {
  for (const StageId stage : topology.StagesOf(worker)) {
    index_of_[stage.value] = static_cast<int32_t>(stages_.size());
    stages_.push_back(Stage{.id = stage,
                            .recomputes = topology[stage].recomputes,
                            .versions = VersionLedger(policy, stage, topology.depth())});
  }
  SetPolicy(policy);
  for (const ReduceGroup& group : topology.groups) {
    Group& local = groups_.emplace_back(Group{.quantity = group.quantity,
                                              .operation = group.operation,
                                              .of_replicas = topology.IsOfReplicas(group)});
    for (const StageId stage : group.stages) {
      const int32_t index = IndexOf(stage);
      if (index < 0) continue;
      local.members.push_back(index);
      if (group.quantity == ReduceGroup::Quantity::kGradient) ++stages_[index].gradient_groups;
    }
  }
  BeginRange(Completeness::kTrain);
}

void Machine::SetVersion(StageId stage, int64_t version) {
  PENSTOCK_CHECK(Remainder().empty());
  stages_[IndexOf(stage)].versions.Reset(version);
}

void Machine::SetPolicy(WeightPolicy policy) {
  PENSTOCK_CHECK(Remainder().empty());
  for (Stage& stage : stages_) {
    stage.versions.SetPolicy(policy);
    if (policy.moves_weights()) stage.counts.moved_copies = 1;
  }
}

void Machine::BeginRange(Completeness completeness) {
  PENSTOCK_CHECK(Remainder().empty());
  completeness_ = completeness;
  for (Stage& stage : stages_) {
    stage.versions.BeginRange();
    stage.version_lead.reset();
    for (size_t op = 0; op < stage.rules.size(); ++op) {
      stage.rules[op] = RuleOf(static_cast<Op>(op), stage.id);
    }
  }
}

Machine::Rule Machine::RuleOf(Op op, StageId stage) const {
  const bool train = completeness_ == Completeness::kTrain;
  // Of any microbatch: where it depends on the microbatch, all neighbours are on other workers.
  const int64_t microbatch = 0;
  const StageId after = topology_->To(EdgeKind::kActivation, stage, microbatch);
  const StageId gradient_from = topology_->From(EdgeKind::kGradient, stage, microbatch);
  const StageId gradient_to = topology_->To(EdgeKind::kGradient, stage, microbatch);
  const StageId checkpoint_from = topology_->From(EdgeKind::kCheckpoint, stage, 0);
  // A message to or from `neighbour`.
  const auto refuse_message = [this](StageId neighbour) -> absl::string_view {
    if (neighbour.value < 0) return "there is no stage on that side";
    if (IndexOf(neighbour) >= 0) return "the neighbour is on the same worker, there is no message";
    return "";
  };
  Rule rule;
  switch (op) {
    case Op::kRecvActivation:
      rule.refusal = refuse_message(topology_->From(EdgeKind::kActivation, stage, microbatch));
      rule.leaves = kInput;
      break;
    case Op::kForward:
      if (!(*topology_)[stage].forward) rule.refusal = "the stage does backwards only";
      rule.takes = (*topology_)[stage].first ? 0 : kInput;
      if (train) LeaveForBackward(stage, rule);
      if (IndexOf(after) >= 0) rule.hands[0] = {IndexOf(after), kInput};
      if (IndexOf(after) < 0 && after.value >= 0) rule.leaves |= kOutput;
      break;
    case Op::kSendActivation:
      rule.refusal = refuse_message(after);
      rule.takes = kOutput;
      break;
    case Op::kRecvGradient:
      rule.refusal = refuse_message(gradient_from);
      rule.leaves = kOutputGradient;
      break;
    case Op::kRecompute:
      if (!(*topology_)[stage].recomputes) rule.refusal = "the stage does not recompute";
      rule.takes = (*topology_)[stage].ends_way_back ? 0 : kCheckpoint;
      rule.leaves = kStash;
      break;
    case Op::kBackwardInput:
      if (!(*topology_)[stage].backward) rule.refusal = "the stage does forwards only";
      rule.takes = (*topology_)[stage].last ? kStash : kStash | kOutputGradient;
      rule.leaves = kWeightStash;
      if (IndexOf(gradient_to) >= 0) rule.hands[0] = {IndexOf(gradient_to), kOutputGradient};
      if (IndexOf(gradient_to) < 0 && gradient_to.value >= 0) rule.leaves |= kInputGradient;
      break;
    case Op::kBackwardWeight:
      if (!(*topology_)[stage].backward) rule.refusal = "the stage does forwards only";
      rule.takes = kWeightStash;
      break;
    case Op::kSendGradient:
      rule.refusal = refuse_message(gradient_to);
      rule.takes = kInputGradient;
      break;
    case Op::kSendCheckpoint:
      rule.refusal = refuse_message(topology_->To(EdgeKind::kCheckpoint, stage, 0));
      rule.takes = kCheckpoint;
      break;
    case Op::kRecvCheckpoint:
      rule.refusal = refuse_message(checkpoint_from);
      rule.leaves = kCheckpoint;
      break;
    default:
      break;  // not of one microbatch, or of a sum
  }
  const bool evaluates =
      op == Op::kRecvActivation || op == Op::kForward || op == Op::kSendActivation;
  if (!train && !evaluates) rule.refusal = "not in an evaluate range";
  return rule;
}

void Machine::LeaveForBackward(StageId stage, Rule& rule) const {
  if ((*topology_)[stage].backward) {
    rule.leaves = (*topology_)[stage].recomputes ? kCheckpoint : kStash;
    return;
  }
  const StageId twin = topology_->To(EdgeKind::kCheckpoint, stage, 0);
  if (IndexOf(twin) >= 0) {
    rule.hands[1] = {IndexOf(twin), kCheckpoint};
  } else if (twin.value >= 0) {
    rule.leaves = kCheckpoint;
  }
}

int32_t Machine::IndexOf(StageId stage) const {
  if (stage.value < 0 || stage.value >= topology_->stages()) return -1;
  return index_of_[stage.value];
}

absl::StatusOr<Effect> Machine::Apply(const Action& action) {
  switch (action.op) {
    case Op::kReduce:
      return Reduce(action);
    case Op::kNorm:
      PENSTOCK_RETURN_IF_ERROR(Norm(action));
      return Effect();
    case Op::kFlush:
      PENSTOCK_RETURN_IF_ERROR(Flush(action));
      return Effect();
    case Op::kStep:
      return Step(action);
    case Op::kSendSum:
      PENSTOCK_RETURN_IF_ERROR(SendSum(action));
      return Effect();
    case Op::kRecvSum:
      PENSTOCK_RETURN_IF_ERROR(ReceiveSum(action));
      return Effect();
    default:
      return Advance(action);
  }
}

absl::StatusOr<Effect> Machine::Advance(const Action& action) {
  const int32_t index = IndexOf(action.stage());
  if (index < 0) return Refuse(action, "the stage is not on this worker");
  if (action.microbatch < 0) return Refuse(action, "the microbatch is negative");
  if (!Visits(action.microbatch, action.stage())) {
    return Refuse(action, GoesElsewhere(action));
  }
  Stage& stage = stages_[index];
  const Rule& rule = stage.rules[static_cast<int>(action.op)];
  if (!rule.refusal.empty()) return Refuse(action, rule.refusal);

  Flight* flight = stage.flights.Find(action.microbatch);
  const Holdings holds = flight == nullptr ? 0 : flight->holds;
  if (const Holdings missing = rule.takes & ~holds; missing != 0) {
    return Refuse(action, Missing(missing, holds));
  }
  if (const Holdings twice = rule.leaves & holds; twice != 0) {
    return Refuse(action, absl::StrCat("the stage already holds its ", NameOf(twice)));
  }
  for (const Handover& hand : rule.hands) {
    if (hand.receiver < 0) continue;
    const Flight* received = stages_[hand.receiver].flights.Find(action.microbatch);
    if (received != nullptr && (received->holds & hand.what) != 0) {
      return Refuse(action,
                    absl::StrCat("the stage it goes to already holds its ", NameOf(hand.what)));
    }
  }
  if (ReadsOtherStep(action, stage)) {
    return Refuse(action, absl::StrCat("the weights are not those of its step; a REDUCE that "
                                       "copies them stands between two steps"));
  }
  if (action.op == Op::kForward && completeness_ == Completeness::kTrain) {
    if (!stage.versions.TakesForward(action.microbatch)) {
      return Refuse(action, "where weights are drawn, forwards come in the order of microbatches");
    }
    if (!NextForwardVersionIsMade(stage.id)) {
      return Refuse(action,
                    absl::StrCat("it reads weight version ", stage.versions.NextForwardVersion(),
                                 ", which is not made yet"));
    }
  }
  if (action.op == Op::kBackwardInput && stage.recomputes &&
      stage.versions.BackwardVersion(flight->forward_version) != flight->recompute_version) {
    return Refuse(action, absl::StrCat("the weights have changed since its R, which read version ",
                                       flight->recompute_version, "; put R after the STEP"));
  }
  if (action.op == Op::kBackwardWeight) {
    const absl::string_view obstacle = ObstacleToAccumulate(stage, action.microbatch);
    if (!obstacle.empty()) return Refuse(action, obstacle);
  }

  if (flight == nullptr) flight = &stage.flights.Insert(action.microbatch);
  flight->holds = static_cast<Holdings>((holds & ~rule.takes) | rule.leaves);
  const Effect effect = Perform(action.op, action.microbatch, stage, *flight);
  if (flight->holds == 0) stage.flights.Erase(action.microbatch);
  for (const Handover& hand : rule.hands) {
    if (hand.receiver < 0) continue;
    stages_[hand.receiver].flights.Insert(action.microbatch).holds |= hand.what;
    if (hand.what == kCheckpoint) CountStash(stages_[hand.receiver]);
  }
  return effect;
}

std::string Machine::GoesElsewhere(const Action& action) const {
  const int64_t microbatch = action.microbatch;
  const StageId stage = action.stage();
  if ((*topology_)[stage].replicas > 1) {
    const StageId there = topology_->StageAt((*topology_)[stage].place, microbatch);
    return absl::StrCat("the microbatch goes through replica ", (*topology_)[there].replica,
                        " of that place, which is stage ", there.value);
  }
  return absl::StrCat("the microbatch goes through pipeline ", topology_->PipelineOf(microbatch),
                      ", the stage is of pipeline ", (*topology_)[stage].pipeline);
}

bool Machine::Visits(int64_t microbatch, StageId stage) const {
  return completeness_ == Completeness::kTrain ? topology_->Visits(microbatch, stage)
                                               : topology_->VisitsToEvaluate(microbatch, stage);
}

int64_t Machine::VersionLead(const Stage& stage, int64_t microbatch) const {
  return stage.versions.current() - microbatch / topology_->rounds.step;
}

bool Machine::ReadsOtherStep(const Action& action, const Stage& stage) const {
  const bool reads = action.op == Op::kForward || action.op == Op::kRecompute;
  return reads && stage.version_lead.has_value() &&
         VersionLead(stage, action.microbatch) != *stage.version_lead;
}

void Machine::CountStash(Stage& stage) {
  StageCounts& counts = stage.counts;
  counts.activations_peak = std::max(counts.activations_peak, ++counts.activations_live);
}

std::string Machine::Missing(Holdings missing, Holdings holds) {
  const bool has_checkpoint_only = (missing & kStash) != 0 && (holds & kCheckpoint) != 0;
  return absl::StrCat("no ", NameOf(missing),
                      has_checkpoint_only ? ", the stage recomputes: R must come before it" : "");
}

absl::string_view Machine::ObstacleToAccumulate(const Stage& stage, int64_t microbatch) const {
  const Gradient& gradient = stage.gradient;
  if (gradient.reductions > 0) return "the gradient is already reduced, a STEP must come first";
  if (gradient.normed) return "the gradient is already normed, a STEP must come first";
  if (gradient.count == 0 && microbatch % topology_->rounds.step != 0) {
    return "the sum of the microbatches before it is not there";
  }
  const int64_t next = gradient.microbatches.end() - 1 + (*topology_)[stage.id].stride;
  if (gradient.count > 0 && microbatch != next) {
    return "gradients must be accumulated in the order of the microbatches";
  }
  return "";
}

Effect Machine::Perform(Op op, int64_t microbatch, Stage& stage, Flight& flight) const {
  VersionLedger& versions = stage.versions;
  StageCounts& counts = stage.counts;
  Effect effect;
  const bool train = completeness_ == Completeness::kTrain;
  const bool reads = op == Op::kForward || op == Op::kRecompute;
  if (reads && train && topology_->form == Topology::Form::kThereAndBack) {
    stage.version_lead = VersionLead(stage, microbatch);
  }
  switch (op) {
    case Op::kForward:
      if (!train || !(*topology_)[stage.id].backward) {
        effect.version = versions.current();
        break;
      }
      effect.version = flight.forward_version = versions.BeginForward(microbatch);
      flight.aim = versions.ForwardAim(effect.version);
      effect.ahead = flight.aim - effect.version;
      counts.versions_live = versions.live();
      CountStash(stage);
      break;
    case Op::kRecvCheckpoint:
      CountStash(stage);
      break;
    case Op::kRecompute:
      if (!(*topology_)[stage.id].forward) {
        if ((*topology_)[stage.id].ends_way_back) CountStash(stage);
        flight.aim = flight.forward_version = versions.BeginForward(microbatch);
      }
      effect.version = flight.recompute_version = versions.BackwardVersion(flight.forward_version);
      effect.ahead = versions.BackwardAim(flight.forward_version, flight.aim) - effect.version;
      break;
    case Op::kBackwardInput:
      effect.version = versions.BackwardVersion(flight.forward_version);
      effect.ahead = versions.BackwardAim(flight.forward_version, flight.aim) - effect.version;
      flight.drift = effect.version - flight.forward_version;
      break;
    case Op::kBackwardWeight: {
      effect.version = versions.BackwardVersion(flight.forward_version);
      versions.EndBackward(flight.forward_version);
      --counts.activations_live;
      counts.versions_live = versions.live();
      Gradient& gradient = stage.gradient;
      if (gradient.count++ == 0) {
        gradient.microbatches.first = microbatch;
        gradient.forward_version_min = flight.forward_version;
      }
      gradient.microbatches.count = microbatch + 1 - gradient.microbatches.first;
      gradient.forward_version_min = std::min(gradient.forward_version_min, flight.forward_version);
      gradient.forward_version_sum += flight.forward_version;
      // No STEP comes between W and its own, which will replace the current version.
      stage.delays.staleness.Add(versions.current() - flight.forward_version, 1);
      stage.delays.version_drift.Add(flight.drift, 1);
      gradient.drift_max = std::max(gradient.drift_max, flight.drift);
      gradient.drift_sum += flight.drift;
      break;
    }
    default:
      break;
  }
  effect.oldest_live_version = versions.oldest_live();
  return effect;
}

absl::StatusOr<Effect> Machine::Step(const Action& action) {
  const int32_t index = IndexOf(action.stage());
  if (index < 0) return Refuse(action, "the stage is not on this worker");
  Stage& stage = stages_[index];
  const Gradient gradient = stage.gradient;
  if (gradient.count == 0) return Refuse(action, "no accumulated gradient");
  if (gradient.count > 1 && stage.versions.draws()) {
    return Refuse(action, "where weights are drawn, every W has a STEP of its own");
  }
  if (!IsWhole(gradient)) return Refuse(action, "the gradient is not that of a whole step");
  if (gradient.reductions < stage.gradient_groups) {
    return Refuse(action, "the gradient is not reduced over its groups");
  }

  for (Group& group : groups_) {
    const bool member =
        std::find(group.members.begin(), group.members.end(), index) != group.members.end();
    if (member && group.steps_due > 0) --group.steps_due;
    if (member && group.quantity == ReduceGroup::Quantity::kWeight) group.differ = true;
  }
  const int64_t replaced = stage.versions.current();
  const int64_t count = gradient.count;
  Count(count, replaced - gradient.forward_version_min,
        replaced * count - gradient.forward_version_sum, stage.counts.staleness);
  Count(count, gradient.drift_max, gradient.drift_sum, stage.counts.version_drift);
  stage.gradient = Gradient();

  Effect effect;
  effect.moves = stage.versions.Moves(gradient.microbatches.first);
  effect.keeps_replaced = stage.versions.Update(effect.moves);
  effect.version = stage.versions.current();
  effect.read_version = gradient.forward_version_min;
  effect.microbatches = gradient.microbatches;
  effect.oldest_live_version = stage.versions.oldest_live();
  stage.counts.versions_live = stage.versions.live();
  stage.counts.versions_peak = std::max(stage.counts.versions_peak, stage.counts.versions_live);
  return effect;
}

bool Machine::IsWhole(const Gradient& gradient) const {
  return gradient.microbatches.end() % topology_->rounds.step == 0;
}

absl::string_view Machine::ObstacleToSum(StageId stage, int64_t microbatch) const {
  if (completeness_ == Completeness::kEvaluate) return "not in an evaluate range";
  if (!topology_->GoesOnWithSum(microbatch)) {
    return "no round of a step but its first begins with that microbatch";
  }
  if (!(*topology_)[stage].backward) return "the stage does forwards only";
  return "";
}

absl::Status Machine::SendSum(const Action& action) {
  const int32_t index = IndexOf(action.stage());
  if (index < 0) return Refuse(action, "the stage is not on this worker");
  const absl::string_view obstacle = ObstacleToSum(action.stage(), action.microbatch);
  if (!obstacle.empty()) return Refuse(action, obstacle);
  Gradient& gradient = stages_[index].gradient;
  const bool has_all = gradient.count > 0 && gradient.microbatches.end() == action.microbatch &&
                       topology_->Visits(action.microbatch - 1, action.stage());
  if (!has_all) return Refuse(action, "the stage has not accumulated all microbatches before it");
  if (gradient.reductions > 0 || gradient.normed) {
    return Refuse(action, "the gradient is already reduced or normed, a STEP must come first");
  }
  const int32_t place = (*topology_)[action.stage()].place;
  if (IndexOf(topology_->StageAt(place, action.microbatch)) >= 0) {
    return Refuse(action, "the stage that goes on is on the same worker, there is no message");
  }
  // They count where their STEP is.
  for (DelayCounts* delays :
       {&stages_[index].delays.staleness, &stages_[index].delays.version_drift}) {
    delays->Add(0, -gradient.count);
  }
  gradient = Gradient();
  return absl::OkStatus();
}

absl::Status Machine::ReceiveSum(const Action& action) {
  const int32_t index = IndexOf(action.stage());
  if (index < 0) return Refuse(action, "the stage is not on this worker");
  const int64_t microbatch = action.microbatch;
  const absl::string_view obstacle = ObstacleToSum(action.stage(), microbatch);
  if (!obstacle.empty()) return Refuse(action, obstacle);
  if (!topology_->Visits(microbatch, action.stage())) {
    return Refuse(action,
                  absl::StrCat("the sum goes on in pipeline ", topology_->PipelineOf(microbatch)));
  }
  Stage& stage = stages_[index];
  if (stage.gradient.count > 0)
    return Refuse(action, "the stage already has accumulated gradients");
  const int64_t count = microbatch % topology_->rounds.step;
  const int64_t version = stage.versions.current();
  stage.gradient = {.count = count,
                    .microbatches = {microbatch - count, count},
                    .forward_version_min = version,
                    .forward_version_sum = version * count};
  stage.delays.staleness.Add(0, count);
  stage.delays.version_drift.Add(0, count);
  return absl::OkStatus();
}

absl::StatusOr<Effect> Machine::Reduce(const Action& action) {
  if (completeness_ == Completeness::kEvaluate) return Refuse(action, "not in an evaluate range");
  const int32_t id = action.group().value;
  if (id < 0 || id >= static_cast<int32_t>(groups_.size()) || groups_[id].members.empty()) {
    return Refuse(action, "no stage of that group is on this worker");
  }
  Group& group = groups_[id];
  if (group.quantity == ReduceGroup::Quantity::kWeight) {
    PENSTOCK_RETURN_IF_ERROR(ReduceWeights(action, group));
    return Effect();
  }
  for (const int32_t member : group.members) {
    const int64_t accumulated = stages_[member].gradient.count;
    if (accumulated == 0 || group.steps_due > 0) {
      return Refuse(action, absl::StrCat("stage ", stages_[member].id.value,
                                         accumulated == 0 ? " has accumulated no gradient"
                                                          : " is already reduced"));
    }
  }
  Effect effect;
  for (const int32_t member : group.members) {
    Stage& stage = stages_[member];
    ++stage.gradient.reductions;
    if (!group.of_replicas) continue;
    effect.microbatches = stage.gradient.microbatches = OfAllReplicas(stage);
  }
  group.steps_due = static_cast<int32_t>(group.members.size());
  return effect;
}

MicrobatchRange Machine::OfAllReplicas(const Stage& stage) const {
  const MicrobatchRange& own = stage.gradient.microbatches;
  const int64_t replica = (*topology_)[stage.id].replica;
  const int64_t first = own.first - replica;
  return {first, own.end() - 1 - replica + (*topology_)[stage.id].turns - first};
}

absl::Status Machine::ReduceWeights(const Action& action, Group& group) {
  for (const int32_t member : group.members) {
    const Stage& stage = stages_[member];
    if (stage.gradient.count > 0) {
      return Refuse(action, absl::StrCat("stage ", stage.id.value,
                                         " has accumulated gradients without a STEP"));
    }
    if (stage.counts.activations_live > 0) {
      return Refuse(action,
                    absl::StrCat("stage ", stage.id.value, " has microbatches between F and W"));
    }
    const bool copies = group.operation == ReduceGroup::Operation::kCopy;
    if (copies && (*topology_)[stage.id].updates && !group.differ) {
      return Refuse(action, absl::StrCat("stage ", stage.id.value,
                                         ", which updates its weights, has made no STEP"));
    }
  }
  if (group.operation == ReduceGroup::Operation::kCopy) {
    for (const int32_t member : group.members) {
      Stage& stage = stages_[member];
      if (!(*topology_)[stage.id].updates) stage.versions.Update(/*moves=*/true);
    }
  }
  group.differ = false;
  return absl::OkStatus();
}

absl::Status Machine::Norm(const Action& action) {
  for (const Stage& stage : stages_) {
    if (!(*topology_)[stage.id].updates) continue;
    const Gradient& gradient = stage.gradient;
    if (gradient.count == 0) {
      return Refuse(action, absl::StrCat("stage ", stage.id.value, " has accumulated no gradient"));
    }
    if (!IsWhole(gradient)) {
      return Refuse(action, absl::StrCat("the gradient of stage ", stage.id.value,
                                         " is not that of a whole step"));
    }
    if (gradient.normed || gradient.reductions < stage.gradient_groups) {
      return Refuse(action, absl::StrCat("the gradient of stage ", stage.id.value,
                                         gradient.normed ? " is already normed"
                                                         : " is not reduced over its groups"));
    }
  }
  for (Stage& stage : stages_) {
    if ((*topology_)[stage.id].updates) stage.gradient.normed = true;
  }
  return absl::OkStatus();
}

absl::Status Machine::Flush(const Action& action) const {
  const std::string remainder = Remainder();
  return remainder.empty() ? absl::OkStatus() : Refuse(action, remainder);
}

std::string Machine::Remainder() const {
  for (const Stage& stage : stages_) {
    if (!stage.flights.empty()) {
      int64_t oldest = INT64_MAX;
      Holdings holds = 0;
      stage.flights.ForEach([&](int64_t microbatch, const Flight& flight) {
        if (microbatch < oldest) holds = flight.holds;
        oldest = std::min(oldest, microbatch);
      });
      return absl::StrCat("stage ", stage.id.value, " still holds the ", NameOf(holds),
                          " of microbatch ", oldest);
    }
    if (stage.gradient.count > 0) {
      return absl::StrCat("stage ", stage.id.value, " has accumulated gradients without a STEP");
    }
  }
  for (size_t id = 0; id < groups_.size(); ++id) {
    if (groups_[id].differ) {
      return absl::StrCat("the weights of group ", id, " are not averaged since the last STEP");
    }
  }
  return "";
}

absl::Status Machine::Refuse(const Action& action, absl::string_view reason) const {
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", worker_.value, ": ", ToString(action), ": ", reason));
}

bool Machine::NextForwardVersionIsMade(StageId stage) const {
  const VersionLedger& versions = stages_[IndexOf(stage)].versions;
  return versions.NextForwardVersion() <= versions.current();
}

const StageCounts& Machine::counts(StageId stage) const { return stages_[IndexOf(stage)].counts; }
const StageDelays& Machine::delays(StageId stage) const { return stages_[IndexOf(stage)].delays; }

int64_t Machine::version(StageId stage) const { return stages_[IndexOf(stage)].versions.current(); }

void Machine::AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const {
  for (const Stage& stage : stages_) {
    const int64_t version = stage.versions.current();
    std::vector<std::pair<int64_t, Flight>> flights;
    stage.flights.ForEach([&](int64_t m, const Flight& flight) { flights.push_back({m, flight}); });
    std::sort(flights.begin(), flights.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    state.push_back(static_cast<int64_t>(flights.size()));
    for (const auto& [microbatch, flight] : flights) {
      // Versions mean something between F and W only.
      const bool in_use =
          (flight.holds & (kCheckpoint | kStash | kWeightStash)) != 0 && !stage.versions.draws();
      const bool recomputed = in_use && stage.recomputes && (flight.holds & kStash) != 0;
      state.insert(
          state.end(),
          {microbatch - origin, flight.holds, in_use ? version - flight.forward_version : 0,
           in_use ? version - flight.aim : 0, recomputed ? version - flight.recompute_version : 0,
           (flight.holds & kWeightStash) != 0 ? flight.drift : 0});
    }
    stage.versions.AppendRelativeState(state);
    if (stage.version_lead.has_value()) {
      state.push_back(VersionLead(stage, origin) - *stage.version_lead);
    }
    const Gradient& gradient = stage.gradient;
    const int64_t count = gradient.count;
    state.push_back(count);
    if (count == 0) continue;
    state.insert(state.end(), {gradient.microbatches.first - origin, gradient.drift_max,
                               gradient.drift_sum, gradient.reductions, gradient.normed});
    if (stage.versions.draws()) continue;
    state.insert(state.end(), {version - gradient.forward_version_min,
                               version * count - gradient.forward_version_sum});
  }
  for (const Group& group : groups_) {
    state.push_back(group.steps_due);
    state.push_back(group.differ);
  }
}

}  // namespace penstock
