#include "schedule/topology.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status CheckRoundsOfShape(const TopologyShape& shape) {
  if (!shape.rounds.has_value()) return absl::OkStatus();
  const Topology::Rounds& rounds = *shape.rounds;
  if (rounds.microbatches < 1 || rounds.step < 1 || rounds.step % rounds.microbatches != 0 ||
      rounds.step / rounds.microbatches < shape.pipelines) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rounds of ", rounds.microbatches, " microbatches do not make a step of ", rounds.step,
        " through ", shape.pipelines, " pipelines; each needs a round of its own"));
  }
  const size_t depth = shape.worker_of.size() / shape.pipelines;
  if (depth % 2 == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a pipeline there and back has an odd number of stages, got ", depth));
}

// Every worker has weights to send, and an UPDATE that ends its steps.
absl::Status CheckStreamsOfShape(const TopologyShape& shape) {
  if (!shape.streams_weights) {
    if (!shape.weights_in_file) return absl::OkStatus();
    return absl::InvalidArgumentError("only weights that are streamed live in files");
  }
  if (!shape.rounds.has_value()) {
    return absl::InvalidArgumentError(
        "weights are streamed where pipelines go there and back alone");
  }
  const auto depth = static_cast<int32_t>(shape.worker_of.size()) / shape.pipelines;
  const int32_t parts = (depth + 1) / 2;
  const int32_t updating =
      static_cast<int32_t>(shape.rounds->step / shape.rounds->microbatches - 1) % shape.pipelines;
  std::set<WorkerId> owners;
  for (int32_t place = parts - 1; place < depth; ++place) {
    owners.insert(shape.worker_of[updating * depth + place]);
  }
  const std::set<WorkerId> workers(shape.worker_of.begin(), shape.worker_of.end());
  if (owners.size() == workers.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("streamed weights live with the workers that update them, but only ",
                   owners.size(), " of ", workers.size(), " workers update one of the ", parts,
                   " parts; as many stages as workers, or more, would do"));
}

absl::Status CheckReplicasOfShape(const TopologyShape& shape) {
  if (shape.replicas.empty()) return absl::OkStatus();
  const auto error = [](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat("the replicas of stages ", problem));
  };
  const int64_t together =
      std::accumulate(shape.replicas.begin(), shape.replicas.end(), int64_t{0});
  if (*std::min_element(shape.replicas.begin(), shape.replicas.end()) < 1 ||
      together != static_cast<int64_t>(shape.worker_of.size())) {
    return error(absl::StrCat("must be one or more for each place, ", shape.worker_of.size(),
                              " together, as many as there are stages"));
  }
  if (shape.pipelines != 1 || shape.rounds.has_value()) {
    return error("must be those of a single pipeline, which does not go there and back");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckCycle(shape.replicas));
  // Between two places there is an edge for each turn until both start over, so that a short list of numbers could stand
  // for a table that no memory holds.
  int64_t edges = 0;
  for (size_t place = 1; place < shape.replicas.size(); ++place) {
    edges += std::lcm(int64_t{shape.replicas[place - 1]}, int64_t{shape.replicas[place]});
  }
  if (edges <= kCycleMax) return absl::OkStatus();
  return error(absl::StrCat("make ", edges, " edges of each kind between places, more than ",
                            kCycleMax, "; numbers with common divisors would do"));
}

absl::Status CheckShape(const TopologyShape& shape) {
  const size_t stages = shape.worker_of.size();
  if (stages == 0) {
    return absl::InvalidArgumentError("a pipeline needs at least one stage, but has none");
  }
  if (shape.pipelines < 1 || stages % shape.pipelines != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(stages, " stages cannot make ", shape.pipelines, " pipelines of equal depth"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRoundsOfShape(shape));
  PENSTOCK_RETURN_IF_ERROR(CheckStreamsOfShape(shape));
  return CheckReplicasOfShape(shape);
}

// Fills the tables of a topology in.
class Wiring {
 public:
  Wiring(const TopologyShape& shape, Topology& topology)
      : topology_(topology),
        loops_(shape.rounds.has_value()),
        goes_round_(std::any_of(shape.worker_of.begin(), shape.worker_of.end(),
                                [&](WorkerId worker) { return worker != shape.worker_of[0]; })) {
    const auto stages = static_cast<int32_t>(shape.worker_of.size());
    topology_.pipelines = shape.pipelines;
    topology_.rounds = shape.rounds.value_or(Topology::Rounds());
    const bool replicated = std::any_of(shape.replicas.begin(), shape.replicas.end(),
                                        [](int32_t count) { return count > 1; });
    if (loops_) topology_.form = Topology::Form::kThereAndBack;
    topology_.streams_weights = shape.streams_weights;
    topology_.weights_in_file = shape.weights_in_file;
    if (replicated) topology_.form = Topology::Form::kReplicas;
    topology_.cycle = loops_       ? topology_.rounds.step
                      : replicated ? CycleOf(shape.replicas)
                                   : shape.pipelines;
    topology_.cycle_to_evaluate = loops_ ? 1 : topology_.cycle;
    const int32_t depth = stages / shape.pipelines;
    topology_.turn_spacing = replicated ? 1 : depth;
    topology_.table.resize(stages);
    int32_t next = 0;
    for (int32_t place = 0; next < depth; ++place) {
      topology_.first_of_place.emplace_back(next);
      const int32_t replicas = replicated ? shape.replicas[place] : 1;
      for (int32_t id = 0; id < replicas * shape.pipelines; ++id) {
        StageWiring& row = topology_.table[next + id * topology_.turn_spacing];
        row.place = place;
        row.turn = id;
        row.turns = replicas * shape.pipelines;
        row.replicas = replicas;
        (replicated ? row.replica : row.pipeline) = id;
      }
      next += replicas;
    }
    for (int32_t id = 0; id < stages; ++id) FillRow(StageId(id), shape.worker_of[id]);
    if (topology_.streams_weights) FindSources();
  }

  void Connect() {
    for (int32_t part = 1; part < topology_.parts(); ++part) {
      Join(EdgeKind::kActivation, part - 1, part);
      Join(EdgeKind::kGradient, Back(part), Back(part - 1));
      // A twin that reads tokens gets nothing.
      if (loops_ && part + 1 < topology_.parts()) Join(EdgeKind::kCheckpoint, part, Back(part));
    }
    JoinRounds();
    JoinSources();
    Number();
  }

 private:
  // The place that does the backward of a part.
  int32_t Back(int32_t part) const { return loops_ ? topology_.depth() - 1 - part : part; }

  void FillRow(StageId stage, WorkerId worker) {
    StageWiring& row = topology_.table[stage.value];
    const int32_t parts = topology_.parts();
    row.worker = worker;
    row.forward = row.place < parts;
    row.part = row.forward ? row.place : Back(row.place);
    row.backward = !loops_ || row.place + 1 >= parts;
    row.first = row.place == 0;
    row.last = row.place + 1 == parts;
    row.slot = row.place;
    if (loops_ && row.place > 0) {
      const StageWiring& before = topology_.table[stage.value - 1];
      const bool shares = goes_round_ && row.place + 1 < parts && before.worker == worker;
      row.slot = before.slot + (shares ? 0 : 1);
    }
    row.ends_way_back = loops_ && row.place + 1 == topology_.depth();
    row.updates = !loops_ ||
                  (row.backward && row.pipeline == topology_.PipelineOf(topology_.rounds.step - 1));
    row.of_model = loops_ ? row.updates : row.turn == 0;
    row.recomputes = !row.forward;
    row.stride = loops_ ? 1 : row.turns;
    if (Back(row.place) != row.place) {
      row.twin = StageId(stage.value + Back(row.place) - row.place);
    }
    row.link = topology_.form == Topology::Form::kReplicas ? row.place : stage.value;
    row.holder = loops_ ? holders_.try_emplace({worker, row.part}, stage).first->second : stage;
  }

  void FindSources() {
    std::vector<StageId> updating(topology_.parts());
    for (int32_t id = 0; id < topology_.stages(); ++id) {
      if (topology_.table[id].updates) updating[topology_.table[id].part] = StageId(id);
    }
    for (StageWiring& row : topology_.table) {
      const StageId source = updating[row.part];
      if (topology_.worker(source) != row.worker) row.source = source;
    }
  }

  void Add(EdgeKind kind, StageId from, StageId to) {
    const int32_t before = topology_[from].link;
    const bool of_parameters =
        kind == EdgeKind::kSum || kind == EdgeKind::kRequest || kind == EdgeKind::kWeights;
    const int32_t link = of_parameters                   ? -1
                         : kind == EdgeKind::kCheckpoint ? before - 1
                                                         : std::min(before, topology_[to].link);
    topology_.edges.push_back({kind, from, to, link});
  }

  // Joins the stages of two places that have a microbatch in common, in the order of the
  // microbatches.
  void Join(EdgeKind kind, int32_t from, int32_t to) {
    const StageId sender = topology_.first_of_place[from];
    const StageId receiver = topology_.first_of_place[to];
    const int32_t senders = topology_[sender].turns;
    const int32_t receivers = topology_[receiver].turns;
    for (int32_t turn = 0; turn < std::lcm(senders, receivers); ++turn) {
      Add(kind, StageId(sender.value + turn % senders * topology_.turn_spacing),
          StageId(receiver.value + turn % receivers * topology_.turn_spacing));
    }
  }

  // The rounds of a step go through the pipelines in turn, and in the first one again where there
  // are more.
  void JoinRounds() {
    const int32_t pipelines = topology_.pipelines;
    if (!loops_ || pipelines == 1) return;
    const bool again = topology_.rounds.step / topology_.rounds.microbatches > pipelines;
    for (int32_t id = 0; id < topology_.stages(); ++id) {
      const StageWiring& row = topology_.table[id];
      if (!row.backward || (row.pipeline + 1 == pipelines && !again)) continue;
      const int32_t next = (row.pipeline + 1) % pipelines;
      Add(EdgeKind::kSum, StageId(id), StageId(next * topology_.depth() + row.place));
    }
  }

  void JoinSources() {
    for (int32_t id = 0; id < topology_.stages(); ++id) {
      const StageId source = topology_.table[id].source;
      if (source.value < 0) continue;
      Add(EdgeKind::kRequest, StageId(id), source);
      Add(EdgeKind::kWeights, source, StageId(id));
    }
  }

  // Puts the edges into their order, and writes down where those of each stage are.
  void Number() {
    const std::vector<Edge> made = std::move(topology_.edges);
    const auto by = [&made](StageId Edge::*end) {
      std::vector<int32_t> order(made.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return std::pair(made[a].*end, made[a].kind) < std::pair(made[b].*end, made[b].kind);
      });
      return order;
    };
    const auto extend = [](StageWiring::Ends& ends, size_t at) {
      if (ends.count++ == 0) ends.first = static_cast<int32_t>(at);
    };
    std::vector<int32_t> numbers(made.size());
    topology_.edges.clear();
    for (const int32_t edge : by(&Edge::to)) {
      const size_t number = topology_.edges.size();
      numbers[edge] = static_cast<int32_t>(number);
      topology_.edges.push_back(made[edge]);
      extend(topology_.table[made[edge].to.value].in[static_cast<size_t>(made[edge].kind)], number);
    }
    for (const int32_t edge : by(&Edge::from)) {
      StageWiring& sender = topology_.table[made[edge].from.value];
      extend(sender.out[static_cast<size_t>(made[edge].kind)], topology_.outgoing.size());
      topology_.outgoing.push_back(numbers[edge]);
    }
  }

  Topology& topology_;
  const bool loops_;                                         // pipelines go there and back
  const bool goes_round_;                                    // there are several workers
  std::map<std::pair<WorkerId, int32_t>, StageId> holders_;  // by worker and part
};

absl::Status CheckWorkers(const Topology& topology) {
  std::vector<bool> used(std::max(topology.workers, 0));
  for (int32_t stage = 0; stage < topology.stages(); ++stage) {
    const int32_t worker = topology.table[stage].worker.value;
    if (worker < 0 || worker >= topology.workers) {
      return absl::InvalidArgumentError(absl::StrCat("stage ", stage, " is on worker ", worker,
                                                     ", but there are ", topology.workers,
                                                     " workers"));
    }
    used[worker] = true;
  }
  const auto idle = std::find(used.begin(), used.end(), false);
  if (idle == used.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker ", idle - used.begin(), " of ", topology.workers, " has no stage"));
}

bool Copies(const ReduceGroup& group) { return group.operation == ReduceGroup::Operation::kCopy; }

absl::Status CheckCopies(const Topology& topology) {
  std::vector<ReduceGroup> copying;
  std::copy_if(topology.groups.begin(), topology.groups.end(), std::back_inserter(copying), Copies);
  if (topology.form != Topology::Form::kThereAndBack) {
    if (copying.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "a group that copies weights makes sense where pipelines go there and back alone");
  }
  if (topology.streams_weights) {
    if (copying.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "a group copies weights, but here they are streamed to the stages that need them");
  }
  if (copying == GroupsOfParts(topology)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "where pipelines go there and back, the stages of each part are a group that copies weights, "
      "in the order of the parts");
}

// True if the replicas are whole pipelines, each on workers of its own.
bool AreBesideEachOther(const Topology& topology) {
  const int32_t replicas = topology.table.front().replicas;
  return std::all_of(topology.table.begin(), topology.table.end(), [=](const StageWiring& row) {
    return row.replicas == replicas && row.worker.value % replicas == row.replica;
  });
}

absl::Status CheckReplicasOf(const Topology& topology) {
  if (topology.form != Topology::Form::kReplicas) return absl::OkStatus();
  if (topology.workers != topology.stages() && !AreBesideEachOther(topology)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the replicas of stages must each be alone on a worker, or all that a worker has must be "
        "of one of as many whole pipelines, but ",
        topology.stages(), " stages are on ", topology.workers, " workers"));
  }
  size_t group = 0;
  for (const ReduceGroup& replicas : GroupsOfParts(topology)) {
    if (group < topology.groups.size() && topology.groups[group].stages == replicas.stages &&
        topology.groups[group].quantity == replicas.quantity) {
      ++group;
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "the replicas of stages at each place must be a group that combines gradients, in the "
        "order of the places and before other groups; those at place ",
        topology[replicas.stages.front()].place, " are none"));
  }
  return absl::OkStatus();
}

}  // namespace

EdgeKind KindOf(ActionKind message) {
  switch (message) {
    case ActionKind::kSendActivation:
    case ActionKind::kRecvActivation:
      return EdgeKind::kActivation;
    case ActionKind::kSendGradient:
    case ActionKind::kRecvGradient:
      return EdgeKind::kGradient;
    case ActionKind::kSendCheckpoint:
    case ActionKind::kRecvCheckpoint:
      return EdgeKind::kCheckpoint;
    case ActionKind::kSendRequest:
    case ActionKind::kRecvRequest:
      return EdgeKind::kRequest;
    case ActionKind::kSendWeights:
    case ActionKind::kRecvWeights:
      return EdgeKind::kWeights;
    default:
      PENSTOCK_CHECK(message == ActionKind::kSendSum || message == ActionKind::kRecvSum);
      return EdgeKind::kSum;
  }
}

Action Edge::Receive(int64_t microbatch) const {
  constexpr ActionKind kReceives[kEdgeKinds] = {
      ActionKind::kFlush,       ActionKind::kRecvActivation, ActionKind::kRecvGradient,
      ActionKind::kFlush,       ActionKind::kRecvCheckpoint, ActionKind::kRecvSum,
      ActionKind::kRecvRequest, ActionKind::kRecvWeights};
  const StageId named = kind == EdgeKind::kRequest ? from : to;
  return {kReceives[static_cast<size_t>(kind)], named.value, microbatch};
}

int32_t Topology::EdgeOf(const Action& message) const {
  const bool sends = IsSend(message.kind);
  if ((!sends && !IsReceive(message.kind)) || message.index < 0 || message.index >= stages() ||
      message.microbatch < 0) {
    return -1;
  }
  const StageId stage = message.stage();
  if ((*this)[stage].replicas > 1 && !Visits(message.microbatch, stage)) return -1;
  if (message.kind == ActionKind::kRecvRequest) {
    return EdgeOutOf(EdgeKind::kRequest, stage, message.microbatch);
  }
  if (message.kind == ActionKind::kSendWeights) {
    return EdgeInto(EdgeKind::kWeights, stage, message.microbatch);
  }
  return sends ? EdgeOutOf(KindOf(message.kind), stage, message.microbatch)
               : EdgeInto(KindOf(message.kind), stage, message.microbatch);
}

bool Topology::AveragesGradients() const {
  return std::any_of(groups.begin(), groups.end(), [this](const ReduceGroup& group) {
    return IsOfReplicas(group) && group.operation == ReduceGroup::Operation::kMean;
  });
}

std::vector<StageId> Topology::StagesOf(WorkerId worker) const {
  std::vector<StageId> result;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    if (table[stage].worker == worker) result.emplace_back(stage);
  }
  return result;
}

std::vector<WorkerId> Topology::WorkersOf(GroupId group) const {
  std::vector<WorkerId> result;
  for (const StageId stage : groups[group.value].stages) result.push_back(worker(stage));
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<StageId> Topology::Recomputing() const {
  std::vector<StageId> result;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    if (table[stage].recomputes && table[stage].forward) result.emplace_back(stage);
  }
  return result;
}

void Topology::Recompute(absl::Span<const StageId> stages) {
  for (StageWiring& row : table) row.recomputes = !row.forward;
  for (const StageId stage : stages) table[stage.value].recomputes = true;
}

absl::StatusOr<Topology> Wire(const TopologyShape& shape) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(shape));
  Topology topology;
  topology.workers = std::max_element(shape.worker_of.begin(), shape.worker_of.end())->value + 1;
  Wiring(shape, topology).Connect();
  return topology;
}

std::vector<int32_t> ReplicasOf(const Topology& topology) {
  std::vector<int32_t> replicas;
  for (const StageId stage : topology.first_of_place) replicas.push_back(topology[stage].replicas);
  return replicas;
}

bool AreAlike(absl::Span<const int32_t> replicas) {
  return std::adjacent_find(replicas.begin(), replicas.end(), std::not_equal_to<>()) ==
         replicas.end();
}

int64_t CycleOf(absl::Span<const int32_t> replicas) {
  int64_t cycle = 1;
  for (const int32_t count : replicas) {
    if (cycle <= kCycleMax) cycle = std::lcm(cycle, int64_t{count});
  }
  return std::min(cycle, kCycleMax + 1);
}

absl::Status CheckCycle(absl::Span<const int32_t> replicas) {
  if (CycleOf(replicas) <= kCycleMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the replicas of stages start over together only after more than ", kCycleMax,
      " microbatches, the least common multiple of their numbers; numbers with common divisors "
      "would do"));
}

std::vector<ReduceGroup> GroupsOfParts(const Topology& topology,
                                       ReduceGroup::Operation of_gradients) {
  ReduceGroup empty = {.quantity = ReduceGroup::Quantity::kWeight};
  switch (topology.form) {
    case Topology::Form::kPipelines:
      empty.operation = ReduceGroup::Operation::kMean;
      break;
    case Topology::Form::kReplicas:
      empty = {.operation = of_gradients};
      break;
    case Topology::Form::kThereAndBack:
      if (topology.streams_weights) return {};
      empty.operation = ReduceGroup::Operation::kCopy;
      break;
  }
  std::vector<ReduceGroup> groups(topology.parts(), empty);
  for (int32_t id = 0; id < topology.stages(); ++id) {
    groups[topology.table[id].part].stages.emplace_back(id);
  }
  std::erase_if(groups, [](const ReduceGroup& group) { return group.stages.size() < 2; });
  return groups;
}

void TieParts(Topology& topology, absl::Span<const std::vector<int32_t>> sharing) {
  for (int32_t pipeline = 0; pipeline < topology.pipelines; ++pipeline) {
    for (const std::vector<int32_t>& parts : sharing) {
      ReduceGroup group;
      for (int32_t id = 0; id < topology.stages(); ++id) {
        const StageWiring& row = topology.table[id];
        const bool shares = std::find(parts.begin(), parts.end(), row.part) != parts.end();
        if (shares && row.updates && row.pipeline == pipeline) group.stages.emplace_back(id);
      }
      // There and back only the last pipeline makes updates.
      if (!group.stages.empty()) topology.groups.push_back(std::move(group));
    }
  }
}

absl::Status CheckTopology(const Topology& topology) {
  if (topology.table.empty()) {
    return absl::InvalidArgumentError("a pipeline needs at least one stage, but has none");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckWorkers(topology));
  for (size_t group = 0; group < topology.groups.size(); ++group) {
    const std::vector<StageId>& stages = topology.groups[group].stages;
    const bool ascending =
        std::adjacent_find(stages.begin(), stages.end(), std::greater_equal<>()) == stages.end();
    if (stages.size() < 2 || !ascending || stages.front().value < 0 ||
        stages.back().value >= topology.stages()) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", group, " must list two or more of the ", topology.stages(),
                       " stages in ascending order"));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(CheckCopies(topology));
  return CheckReplicasOf(topology);
}

}  // namespace penstock
