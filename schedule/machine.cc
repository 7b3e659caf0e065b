#include "schedule/machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

bool IsDrop(const Action& action) { return action.kind == ActionKind::kDropWeights; }

// A stash, wherever it is.
constexpr Holdings kAnyStash = kStash | kLeavingStash | kOffloadedStash;

}  // namespace

Machine::Machine(const Topology& topology, WorkerId worker, WeightPolicy policy)
    : topology_(&topology), worker_(worker), index_of_(topology.stages(), -1) {
  for (const StageId stage : topology.StagesOf(worker)) {
    index_of_[stage.value] = static_cast<int32_t>(stages_.size());
    stages_.push_back(Stage{.id = stage,
                            .recomputes = topology[stage].recomputes,
                            .versions = VersionLedger(policy, topology, stage)});
  }
  SetPolicy(policy);
  if (topology.streams_weights) asked_.assign(topology.stages(), -1);
  for (const ReduceGroup& group : topology.groups) {
    Group& local = groups_.emplace_back(Group{.quantity = group.quantity,
                                              .operation = group.operation,
                                              .of_replicas = topology.IsOfReplicas(group)});
    for (const StageId stage : group.stages) {
      const int32_t index = IndexOf(stage);
      if (index < 0) continue;
      local.members.push_back(index);
      if (group.quantity == ReduceGroup::Quantity::kGradient) ++stages_[index].gradient_groups;
      if (local.of_replicas)
        stages_[index].replica_group = static_cast<int32_t>(groups_.size()) - 1;
    }
  }
  BeginRange(Completeness::kTrain);
}

void Machine::SetVersion(StageId stage, int64_t version) {
  PENSTOCK_CHECK(Remainder().empty());
  Stage& local = stages_[IndexOf(stage)];
  local.versions.Reset(version);
  local.streamed_lead.reset();
  local.first_version = version;
  updates_ = 0;
}

void Machine::SetPolicy(WeightPolicy policy) {
  PENSTOCK_CHECK(Remainder().empty());
  lag_ = policy.lag;
  for (Stage& stage : stages_) {
    stage.versions.SetPolicy(policy);
    if (policy.moves_weights()) stage.counts.moved_copies = 1;
  }
}

void Machine::BeginRange(Completeness completeness) {
  PENSTOCK_CHECK(Remainder().empty());
  completeness_ = completeness;
  const FlightRules rules(*topology_, index_of_);
  const bool train = completeness == Completeness::kTrain;
  first_step_.reset();
  for (Stage& stage : stages_) {
    stage.versions.BeginRange();
    stage.version_lead.reset();
    for (size_t kind = 0; kind < stage.rules.size(); ++kind) {
      stage.rules[kind] = rules.Of(static_cast<ActionKind>(kind), stage.id, train);
    }
  }
}

int32_t Machine::IndexOf(StageId stage) const {
  if (stage.value < 0 || stage.value >= topology_->stages()) return -1;
  return index_of_[stage.value];
}

absl::StatusOr<Effect> Machine::Apply(const Action& action) {
  const bool begins = topology_->form == Topology::Form::kThereAndBack &&
                      !first_step_.has_value() && HasMicrobatch(action.kind);
  if (!begins) return Take(action);
  first_step_ = action.microbatch / topology_->rounds.step;
  absl::StatusOr<Effect> effect = Take(action);
  if (!effect.ok()) first_step_.reset();
  return effect;
}

absl::StatusOr<Effect> Machine::Take(const Action& action) {
  if (StreamsWeights(action.kind)) return Stream(action);
  switch (action.kind) {
    case ActionKind::kReduce:
      return Reduce(action);
    case ActionKind::kBeginReduce:
      PENSTOCK_RETURN_IF_ERROR(BeginReduce(action));
      return Effect();
    case ActionKind::kNorm:
      PENSTOCK_RETURN_IF_ERROR(Norm(action));
      return Effect();
    case ActionKind::kFlush:
      PENSTOCK_RETURN_IF_ERROR(Flush(action));
      return Effect();
    case ActionKind::kUpdate:
      return Update(action);
    case ActionKind::kSendSum:
      return SendSum(action);
    case ActionKind::kRecvSum:
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
  const FlightRule& rule = stage.rules[static_cast<int>(action.kind)];
  if (!rule.refusal.empty()) return Refuse(action, rule.refusal);

  Flight* flight = stage.flights.Find(action.microbatch);
  const Holdings holds = flight == nullptr ? 0 : flight->holds;
  if (const Holdings missing = rule.takes & ~holds; missing != 0) {
    return Refuse(action, Missing(missing, holds));
  }
  if (const Holdings twice = rule.leaves & holds; twice != 0) {
    return Refuse(action, absl::StrCat("the stage already holds its ", NameOf(twice)));
  }
  for (const FlightRule::Handover& hand : rule.hands) {
    if (hand.receiver < 0) continue;
    const Flight* received = stages_[hand.receiver].flights.Find(action.microbatch);
    if (received != nullptr && (received->holds & hand.what) != 0) {
      return Refuse(action,
                    absl::StrCat("the stage it goes to already holds its ", NameOf(hand.what)));
    }
  }
  if (rule.reads_weights) {
    const std::string obstacle = ObstacleToRead(stage);
    if (!obstacle.empty()) return Refuse(action, obstacle);
  }
  if (ReadsOtherStep(action, stage)) {
    return Refuse(action, absl::StrCat("the weights are not those of its step; ",
                                       topology_->streams_weights
                                           ? "an UPDATE, or a RECV_P of newer ones, stands between "
                                             "two steps"
                                           : "a REDUCE that copies them stands between two steps"));
  }
  // There and back R is the first to read where the forward is another stage's.
  const bool reads_first =
      action.kind == ActionKind::kForward ||
      (action.kind == ActionKind::kRecompute && !(*topology_)[stage.id].forward);
  if (reads_first && completeness_ == Completeness::kTrain) {
    if (!stage.versions.TakesForward(action.microbatch)) {
      return Refuse(action,
                    "where weights are sampled, forwards come in the order of microbatches");
    }
    if (!NextForwardVersionIsMade(stage.id)) {
      return Refuse(action,
                    absl::StrCat("it reads weight version ", stage.versions.NextForwardVersion(),
                                 ", which is not made yet"));
    }
  }
  if (action.kind == ActionKind::kBackwardInput && stage.recomputes &&
      stage.versions.BackwardVersion(flight->forward_version) != flight->recompute_version) {
    return Refuse(action, absl::StrCat("the weights have changed since its R, which read version ",
                                       flight->recompute_version, "; put R after the UPDATE"));
  }
  if (action.kind == ActionKind::kBackwardWeight) {
    const absl::string_view obstacle = stage.gradient.ObstacleTo(
        action.microbatch, (*topology_)[stage.id].stride, topology_->rounds.step);
    if (!obstacle.empty()) return Refuse(action, obstacle);
    const bool ends_step = topology_->form == Topology::Form::kThereAndBack &&
                           stage.gradient.count > 0 &&
                           stage.gradient.IsWhole(topology_->rounds.step);
    if (ends_step) return Refuse(action, "the gradient of the step before has had no UPDATE");
  }

  if (flight == nullptr) flight = &stage.flights.Insert(action.microbatch);
  flight->holds = static_cast<Holdings>((holds & ~rule.takes) | rule.leaves);
  if (rule.reads_weights && topology_->Loads(stage.id)) stage.weights = Stage::Weights::kHere;
  Effect effect = Perform(action.kind, action.microbatch, stage, *flight);
  GradientLedger& gradient = stage.gradient;
  if (action.kind == ActionKind::kBackwardWeight &&
      gradient.leaving == GradientLedger::Leaving::kAwaitsLast) {
    gradient.leaving = GradientLedger::Leaving::kComplete;
    effect.completes = GroupId(stage.replica_group);
    effect.microbatches = OfAllReplicas(stage);
  }
  if (flight->holds == 0) stage.flights.Erase(action.microbatch);
  for (const FlightRule::Handover& hand : rule.hands) {
    if (hand.receiver < 0) continue;
    stages_[hand.receiver].flights.Insert(action.microbatch).holds |= hand.what;
    if (hand.what == kCheckpoint) stages_[hand.receiver].counts.AddActivation();
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

int64_t Machine::StepsRead(int64_t microbatch) const {
  const int64_t first = first_step_.value_or(0);
  return first + std::max<int64_t>(0, microbatch / topology_->rounds.step - first - lag_);
}

int64_t Machine::VersionLead(const Stage& stage, int64_t microbatch) const {
  return stage.versions.NextForwardVersion() - StepsRead(microbatch);
}

bool Machine::ReadsOtherStep(const Action& action, const Stage& stage) const {
  const bool reads = action.kind == ActionKind::kForward || action.kind == ActionKind::kRecompute;
  return reads && stage.version_lead.has_value() &&
         VersionLead(stage, action.microbatch) != *stage.version_lead;
}

std::string Machine::Missing(Holdings missing, Holdings holds) {
  const bool has_checkpoint_only = (missing & kStash) != 0 && (holds & kCheckpoint) != 0;
  absl::string_view why;
  if (has_checkpoint_only) why = ", the stage recomputes: R must come before it";
  if ((missing & kStash) != 0 && (holds & kOffloadedStash) != 0) {
    why = ", it is offloaded: PREFETCH must come before it";
  } else if ((missing & kStash) != 0 && (holds & kLeavingStash) != 0) {
    why = ", it is being offloaded: EVICT and PREFETCH must come before it";
  } else if ((missing & kOffloadedStash) != 0 && (holds & kLeavingStash) != 0) {
    why = ", it is still being offloaded: EVICT must come before it";
  }
  return absl::StrCat("no ", NameOf(missing), why);
}

Effect Machine::Perform(ActionKind kind, int64_t microbatch, Stage& stage, Flight& flight) const {
  VersionLedger& versions = stage.versions;
  StageCounts& counts = stage.counts;
  Effect effect;
  const bool train = completeness_ == Completeness::kTrain;
  const bool reads = kind == ActionKind::kForward || kind == ActionKind::kRecompute;
  if (reads && train && topology_->form == Topology::Form::kThereAndBack) {
    stage.version_lead = VersionLead(stage, microbatch);
  }
  switch (kind) {
    case ActionKind::kForward:
      if (!train) {
        effect.version = versions.current();
        break;
      }
      if (!(*topology_)[stage.id].backward) {
        effect.version = versions.ReadOnce();
        break;
      }
      effect.version = flight.forward_version = versions.BeginForward(microbatch);
      flight.aim = versions.ForwardAim(effect.version);
      effect.ahead = flight.aim - effect.version;
      counts.versions_live = versions.live();
      counts.AddActivation();
      break;
    case ActionKind::kRecvCheckpoint:
      counts.AddActivation();
      break;
    case ActionKind::kRecompute:
      if (!(*topology_)[stage.id].forward) {
        if ((*topology_)[stage.id].ends_way_back) counts.AddActivation();
        flight.aim = flight.forward_version = versions.BeginForward(microbatch);
      }
      effect.version = flight.recompute_version = versions.BackwardVersion(flight.forward_version);
      effect.ahead = versions.BackwardAim(flight.forward_version, flight.aim) - effect.version;
      break;
    case ActionKind::kBackwardInput:
      effect.version = versions.BackwardVersion(flight.forward_version);
      effect.ahead = versions.BackwardAim(flight.forward_version, flight.aim) - effect.version;
      flight.drift = effect.version - flight.forward_version;
      break;
    case ActionKind::kBackwardWeight:
      effect.version = versions.BackwardVersion(flight.forward_version);
      versions.EndBackward(flight.forward_version);
      --counts.activations_live;
      --counts.resident_live;
      counts.versions_live = versions.live();
      stage.gradient.Add(microbatch, flight.forward_version, flight.drift);
      // There and back the stage that makes the UPDATE counts them.
      if (topology_->form == Topology::Form::kThereAndBack) break;
      // No UPDATE comes between W and its own, which will replace the current version.
      stage.delays.staleness.Add(versions.current() - flight.forward_version, 1);
      stage.delays.version_drift.Add(flight.drift, 1);
      break;
    case ActionKind::kOffload:
      counts.AddOffloaded();
      break;
    case ActionKind::kEvict:
      --counts.resident_live;
      break;
    case ActionKind::kPrefetch:
      --counts.offloaded_live;
      counts.AddResident();
      break;
    default:
      break;
  }
  effect.oldest_live_version = versions.oldest_live();
  return effect;
}

absl::StatusOr<Effect> Machine::Update(const Action& action) {
  const int32_t index = IndexOf(action.stage());
  if (index < 0) return Refuse(action, "the stage is not on this worker");
  Stage& stage = stages_[index];
  const GradientLedger gradient = stage.gradient;
  if (gradient.count == 0) return Refuse(action, "no accumulated gradient");
  if (gradient.count > 1 && stage.versions.draws()) {
    return Refuse(action, "where weights are sampled, every W has an UPDATE of its own");
  }
  if (!gradient.IsWhole(topology_->rounds.step)) {
    return Refuse(action, "the gradient is not that of a whole step");
  }
  if (gradient.reductions < stage.gradient_groups) {
    return Refuse(action, "the gradient is not reduced over its groups");
  }

  if (topology_->streams_weights) {
    const std::string obstacle = ObstacleToUpdate(stage);
    if (!obstacle.empty()) return Refuse(action, obstacle);
  }

  for (Group& group : groups_) {
    const bool member =
        std::find(group.members.begin(), group.members.end(), index) != group.members.end();
    if (member && group.updates_due > 0) --group.updates_due;
    if (member && group.quantity == ReduceGroup::Quantity::kWeight) group.differ = true;
  }
  const int64_t replaced = stage.versions.current();
  gradient.CountUpdate(replaced, stage.counts);
  if (topology_->form == Topology::Form::kThereAndBack) {
    stage.delays.staleness.Add(replaced - gradient.forward_version_min, gradient.count);
    stage.delays.version_drift.Add(gradient.drift_max, gradient.count);
  }
  const auto first_to_update = std::find_if(stages_.begin(), stages_.end(), [this](const Stage& s) {
    return (*topology_)[s.id].updates;
  });
  if (&stage == &*first_to_update) ++updates_;
  stage.gradient = GradientLedger();

  Effect effect;
  effect.moves = stage.versions.Moves(gradient.microbatches.first);
  effect.keeps_replaced = stage.versions.Update(effect.moves);
  effect.version = stage.versions.current();
  effect.read_version = gradient.forward_version_min;
  effect.microbatches = gradient.microbatches;
  effect.oldest_live_version = stage.versions.oldest_live();
  for (Stage& other : stages_) {
    const bool same_part = (*topology_)[other.id].part == (*topology_)[stage.id].part;
    if (!topology_->streams_weights || !same_part || other.id == stage.id) continue;
    other.versions.Update(effect.moves);
  }
  stage.counts.versions_live = stage.versions.live();
  stage.counts.versions_peak = std::max(stage.counts.versions_peak, stage.counts.versions_live);
  return effect;
}

absl::string_view Machine::ObstacleToSum(StageId stage, int64_t microbatch) const {
  if (completeness_ == Completeness::kEvaluate) return "not in an evaluate range";
  if (!topology_->GoesOnWithSum(microbatch)) {
    return "no round of a step but its first begins with that microbatch";
  }
  if (!(*topology_)[stage].backward) return "the stage does forwards only";
  return "";
}

absl::StatusOr<Effect> Machine::SendSum(const Action& action) {
  const int32_t index = IndexOf(action.stage());
  if (index < 0) return Refuse(action, "the stage is not on this worker");
  const absl::string_view obstacle = ObstacleToSum(action.stage(), action.microbatch);
  if (!obstacle.empty()) return Refuse(action, obstacle);
  GradientLedger& gradient = stages_[index].gradient;
  const bool has_all = gradient.count > 0 && gradient.microbatches.end() == action.microbatch &&
                       topology_->Visits(action.microbatch - 1, action.stage());
  if (!has_all) return Refuse(action, "the stage has not accumulated all microbatches before it");
  if (gradient.reductions > 0 || gradient.normed) {
    return Refuse(action, "the gradient is already reduced or normed, an UPDATE must come first");
  }
  const int32_t place = (*topology_)[action.stage()].place;
  if (IndexOf(topology_->StageAt(place, action.microbatch)) >= 0) {
    return Refuse(action, "the stage that goes on is on the same worker, there is no message");
  }
  Effect effect;
  effect.sum_in_file = gradient.stored;
  gradient = GradientLedger();
  return effect;
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
  stage.gradient =
      GradientLedger::Of({microbatch - count, count}, stage.versions.NextForwardVersion());
  return absl::OkStatus();
}

std::string Machine::ObstacleToRead(const Stage& stage) const {
  if (stage.weights == Stage::Weights::kHere) return "";
  if (Streams(stage)) return "the stage has no weights here: RECV_P must come before it";
  if (!topology_->Loads(stage.id)) return "";
  if (stage.weights == Stage::Weights::kNone) {
    return "the stage has no weights here: LOAD must come before it";
  }
  for (const Stage& other : stages_) {
    const bool same_part = (*topology_)[other.id].part == (*topology_)[stage.id].part;
    if (!same_part || other.weights != Stage::Weights::kHere) continue;
    return absl::StrCat("stage ", other.id.value,
                        " of the same part has weights here; DROP must come before it");
  }
  return "";
}

std::string Machine::ObstacleToUpdate(const Stage& stage) const {
  const int32_t part = (*topology_)[stage.id].part;
  for (const Stage& other : stages_) {
    if ((*topology_)[other.id].part != part) continue;
    // Its worker passes other rounds with the same weights.
    if (other.counts.activations_live > 0) {
      return absl::StrCat("stage ", other.id.value, " has microbatches between F and W");
    }
    if (topology_->weights_in_file && other.weights != Stage::Weights::kNone) {
      return absl::StrCat("stage ", other.id.value,
                          " still has weights from the file; DROP must come before it");
    }
  }
  for (size_t id = 0; topology_->weights_in_file && id < asked_.size(); ++id) {
    if (asked_[id] < 0 || topology_->table[id].part != part) continue;
    return absl::StrCat("stage ", id,
                        " waits for weights from the file; SEND_P must come before it");
  }
  return "";
}

absl::StatusOr<Effect> Machine::Stream(const Action& action) {
  const int32_t id = action.index;
  if (id < 0 || id >= topology_->stages()) return Refuse(action, "there is no such stage");
  const StageWiring& row = (*topology_)[action.stage()];
  const bool loads = topology_->Loads(action.stage());
  if (action.kind == ActionKind::kLoadWeights
          ? !loads
          : row.source.value < 0 && !(loads && IsDrop(action))) {
    return Refuse(action, action.kind == ActionKind::kLoadWeights
                              ? "the weights of the stage are in no file of this worker"
                              : "the weights of the stage are on its own worker, there is no "
                                "message");
  }
  if (IndexOf(ServesWeights(action.kind) ? row.source : action.stage()) < 0) {
    return Refuse(action, ServesWeights(action.kind)
                              ? "this worker does not have the weights of the stage"
                              : "the stage is not on this worker");
  }
  if (action.microbatch < 0) return Refuse(action, "the microbatch is negative");
  if (!Visits(action.microbatch, action.stage())) return Refuse(action, GoesElsewhere(action));
  if (completeness_ == Completeness::kEvaluate && !row.forward) {
    return Refuse(action, "the stage does backwards only, which an evaluate range has none of");
  }
  if (action.kind == ActionKind::kRecvWeights) return ReceiveWeights(action);
  if (IsDrop(action)) return DropWeights(action);
  if (ServesWeights(action.kind)) return ServeWeights(action);
  PENSTOCK_RETURN_IF_ERROR(AskForWeights(action));
  return Effect();
}

absl::Status Machine::AskForWeights(const Action& action) {
  Stage& stage = stages_[IndexOf(action.stage())];
  if (stage.weights != Stage::Weights::kNone) {
    return Refuse(action, stage.weights == Stage::Weights::kHere
                              ? "the stage still has weights; DROP must come before it"
                              : "the stage has already asked for weights");
  }
  stage.weights = Stage::Weights::kAsked;
  stage.weights_from = action.microbatch;
  stage.counts.streamed_peak = std::max(stage.counts.streamed_peak, ++streamed_live_);
  return absl::OkStatus();
}

absl::StatusOr<Effect> Machine::ReceiveWeights(const Action& action) {
  Stage& stage = stages_[IndexOf(action.stage())];
  if (stage.weights != Stage::Weights::kAsked || stage.weights_from != action.microbatch) {
    return Refuse(action, "the stage has not asked for these weights");
  }
  const StageId holder = (*topology_)[stage.id].holder;
  for (const Stage& other : stages_) {
    if (other.weights != Stage::Weights::kHere || (*topology_)[other.id].holder != holder) continue;
    return Refuse(action,
                  absl::StrCat("stage ", other.id.value,
                               " of the same part has weights here; DROP must come before it"));
  }
  stage.weights = Stage::Weights::kHere;
  if (completeness_ == Completeness::kTrain) {
    // The first ones are those that training starts with; all others are ahead of their step by as much.
    const int64_t lead = stage.streamed_lead.value_or(VersionLead(stage, action.microbatch));
    stage.versions.Reset(lead + StepsRead(action.microbatch));
    stage.streamed_lead = stage.version_lead = lead;
  } else {
    stage.versions.Reset(stage.first_version + updates_);
  }
  Effect effect;
  effect.version = effect.oldest_live_version = stage.versions.current();
  return effect;
}

absl::StatusOr<Effect> Machine::DropWeights(const Action& action) {
  Stage& stage = stages_[IndexOf(action.stage())];
  if (stage.weights != Stage::Weights::kHere || stage.weights_from != action.microbatch) {
    return Refuse(action, "the stage has no such weights here");
  }
  bool in_flight = false;
  stage.flights.ForEach([&](int64_t, const Flight& flight) {
    in_flight = in_flight || (flight.holds & kAnyStash) != 0;
  });
  if (in_flight) return Refuse(action, "the stage still holds a stash, whose I reads the weights");
  stage.weights = Stage::Weights::kNone;
  --streamed_live_;
  const int64_t next = action.microbatch + topology_->rounds.microbatches;
  Effect effect;
  effect.sum_in_file = topology_->StoresSums(stage.id) && stage.gradient.count > 0 &&
                       stage.gradient.microbatches.end() == next && topology_->GoesOnWithSum(next);
  if (effect.sum_in_file) stage.gradient.stored = true;
  return effect;
}

absl::StatusOr<Effect> Machine::ServeWeights(const Action& action) {
  int64_t& asked = asked_[action.index];
  if (action.kind == ActionKind::kRecvRequest) {
    if (asked >= 0) return Refuse(action, "the stage has asked before and waits for SEND_P");
    asked = action.microbatch;
    return Effect();
  }
  if (asked != action.microbatch) return Refuse(action, "nobody has asked for these weights");
  Stage& source = stages_[IndexOf((*topology_)[action.stage()].source)];
  const VersionLedger& versions = source.versions;
  Effect effect;
  effect.version = versions.current();
  if (completeness_ == Completeness::kTrain) {
    const int64_t steps = StepsRead(action.microbatch);
    const int64_t lead = source.version_lead.value_or(versions.current() - steps);
    effect.version = lead + steps;
    // Of double buffers the older one may be meant. All its readers are done before the UPDATE that lets go of it.
    if (effect.version < versions.oldest_live() || effect.version > versions.current()) {
      return Refuse(action, "the weights are not those of its step; an UPDATE stands between two");
    }
    source.version_lead = lead;
  }
  asked = -1;
  return effect;
}

absl::Status Machine::CheckGroup(const Action& action) const {
  if (completeness_ == Completeness::kEvaluate) return Refuse(action, "not in an evaluate range");
  const int32_t id = action.group().value;
  if (id < 0 || id >= static_cast<int32_t>(groups_.size()) || groups_[id].members.empty()) {
    return Refuse(action, "no stage of that group is on this worker");
  }
  return absl::OkStatus();
}

absl::Status Machine::BeginReduce(const Action& action) {
  PENSTOCK_RETURN_IF_ERROR(CheckGroup(action));
  const Group& group = groups_[action.index];
  if (!group.of_replicas) return Refuse(action, "the group is not one of replicas of a stage");
  for (const int32_t member : group.members) {
    const GradientLedger& gradient = stages_[member].gradient;
    const bool begun = gradient.leaving != GradientLedger::Leaving::kNot;
    if (!begun && gradient.reductions == 0) continue;
    return Refuse(action,
                  absl::StrCat("stage ", stages_[member].id.value,
                               begun ? "'s reduction has already begun" : " is already reduced"));
  }
  for (const int32_t member : group.members) {
    stages_[member].gradient.leaving = GradientLedger::Leaving::kAwaitsLast;
  }
  begun_.push_back(action.index);
  return absl::OkStatus();
}

absl::StatusOr<Effect> Machine::Reduce(const Action& action) {
  PENSTOCK_RETURN_IF_ERROR(CheckGroup(action));
  const int32_t id = action.index;
  Group& group = groups_[id];
  if (!begun_.empty() && begun_.front() != id) {
    return Refuse(action, absl::StrCat("the reduction of group ", begun_.front(),
                                       " has begun before it, its REDUCE must come first"));
  }
  if (group.quantity == ReduceGroup::Quantity::kWeight) {
    PENSTOCK_RETURN_IF_ERROR(ReduceWeights(action, group));
    return Effect();
  }
  for (const int32_t member : group.members) {
    const int64_t accumulated = stages_[member].gradient.count;
    if (accumulated == 0 || group.updates_due > 0) {
      return Refuse(action, absl::StrCat("stage ", stages_[member].id.value,
                                         accumulated == 0 ? " has accumulated no gradient"
                                                          : " is already reduced"));
    }
    if (stages_[member].gradient.leaving == GradientLedger::Leaving::kAwaitsLast) {
      return Refuse(action, absl::StrCat("stage ", stages_[member].id.value,
                                         " has made no W since its BEGIN_REDUCE"));
    }
  }
  if (!begun_.empty()) begun_.erase(begun_.begin());
  Effect effect;
  for (const int32_t member : group.members) {
    Stage& stage = stages_[member];
    ++stage.gradient.reductions;
    if (!group.of_replicas) continue;
    effect.microbatches = stage.gradient.microbatches = OfAllReplicas(stage);
  }
  group.updates_due = static_cast<int32_t>(group.members.size());
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
                                         " has accumulated gradients without an UPDATE"));
    }
    if (stage.counts.activations_live > 0) {
      return Refuse(action,
                    absl::StrCat("stage ", stage.id.value, " has microbatches between F and W"));
    }
    const bool copies = group.operation == ReduceGroup::Operation::kCopy;
    if (copies && (*topology_)[stage.id].updates && !group.differ) {
      return Refuse(action, absl::StrCat("stage ", stage.id.value,
                                         ", which updates its weights, has made no UPDATE"));
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
  if (action.index < 0 || action.index >= topology_->norms()) {
    return Refuse(action, "there is no such pipeline");
  }
  for (const Stage& stage : stages_) {
    if (!topology_->IsInNorm(stage.id, action.index)) continue;
    const GradientLedger& gradient = stage.gradient;
    if (gradient.count == 0) {
      return Refuse(action, absl::StrCat("stage ", stage.id.value, " has accumulated no gradient"));
    }
    if (!gradient.IsWhole(topology_->rounds.step)) {
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
    if (topology_->IsInNorm(stage.id, action.index)) stage.gradient.normed = true;
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
      return absl::StrCat("stage ", stage.id.value, " has accumulated gradients without an UPDATE");
    }
    if (stage.gradient.leaving != GradientLedger::Leaving::kNot) {
      return absl::StrCat("stage ", stage.id.value, " has made no W since its BEGIN_REDUCE");
    }
  }
  for (const Stage& stage : stages_) {
    if (stage.weights == Stage::Weights::kNone) continue;
    return absl::StrCat("stage ", stage.id.value,
                        stage.weights != Stage::Weights::kHere ? " still waits for weights"
                        : Streams(stage) ? " still has weights of another worker"
                                         : " still has weights from the file");
  }
  for (size_t id = 0; id < asked_.size(); ++id) {
    if (asked_[id] >= 0) return absl::StrCat("stage ", id, " waits for weights of this worker");
  }
  for (size_t id = 0; id < groups_.size(); ++id) {
    if (groups_[id].differ) {
      return absl::StrCat("the weights of group ", id, " are not averaged since the last UPDATE");
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
          (flight.holds & (kCheckpoint | kAnyStash | kWeightStash)) != 0 && !stage.versions.draws();
      const bool recomputed = in_use && stage.recomputes && (flight.holds & kAnyStash) != 0;
      state.insert(
          state.end(),
          {microbatch - origin, flight.holds, in_use ? version - flight.forward_version : 0,
           in_use ? version - flight.aim : 0, recomputed ? version - flight.recompute_version : 0,
           (flight.holds & kWeightStash) != 0 ? flight.drift : 0});
    }
    stage.versions.AppendRelativeState(state);
    // Counted from the steps that have begun by `origin`: those of double buffers, too, are as many later as the origin is.
    const int64_t ahead = version - origin / topology_->rounds.step;
    if (stage.version_lead.has_value()) state.push_back(ahead - *stage.version_lead);
    stage.gradient.AppendRelativeState(origin, version, stage.versions.draws(), state);
    if (stage.weights != Stage::Weights::kNone) {
      state.insert(state.end(), {static_cast<int64_t>(stage.weights), stage.weights_from - origin});
    }
    if (stage.streamed_lead.has_value()) state.push_back(ahead - *stage.streamed_lead);
  }
  if (lag_ > 0 && first_step_.has_value()) {
    state.push_back(std::min(origin / topology_->rounds.step - *first_step_, lag_));
  }
  for (const int64_t asked : asked_) state.push_back(asked < 0 ? INT64_MIN : asked - origin);
  state.push_back(static_cast<int64_t>(begun_.size()));
  state.insert(state.end(), begun_.begin(), begun_.end());
  for (const Group& group : groups_) {
    state.push_back(group.updates_due);
    state.push_back(group.differ);
  }
}

}  // namespace penstock
