// Topology: who holds which stage of a model, and who sends what to whom, as two tables.
//
// A row for each stage (StageWiring) says which worker has it, which part of the model it is and
// which microbatches come to it; a list of edges joins the stages. The builders of placements.h
// make both, and nobody else computes anything from a stage's number.
//
// There are three forms (Topology::Form).
//
// kPipelines. Within a pipeline stage d feeds stage d + 1; the first reads data, the last has the
// loss. There may be several pipelines, replicas of one model of equal depth, through the same
// workers: stage d of pipeline p is number p * depth + d. A microbatch goes through one of them
// alone; they take turns.
//
// kReplicas. One pipeline is wider at some places than at others: a place whose layers take long is
// held by several workers, its replicas, each a stage of its own with the same layers. Microbatch m
// goes through replica m mod r of each place that has r of them, forward and backward (PipeDream's
// 1F1B-RR), so that who feeds whom depends on the microbatch. The replicas of a place are a group
// that combines gradients before every UPDATE, and so hold the same weights at all times.
//
// kThereAndBack. A stage's backward is on another worker than its forward (RoundPipe). Of a
// pipeline's 2 D - 1 stages the first D - 1 do the forwards of as many parts of the model, the
// middle one forward and backward of the last part, and the rest the backwards of the first D - 1,
// the other way round, from the input that the stage of the forward sends them. A stage and the one
// that does the other pass of its part are twins. Forwards of several parts beside each other may be on one worker, which
// passes them together, in one slot: the paper's asymmetric split. Several such pipelines are one model in several
// places: a round of microbatches goes through each in turn, and the sum of a part's gradients goes
// from each to the next. All stages of a part are a group that copies the weights of the one that
// updates them, which is in the last pipeline.
//
// Plain values without threads, clock or I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "schedule/action.h"

namespace penstock {

// Stages that hold the same parameters and so must combine their gradients before a step: those whose
// layers share parameters, or the replicas of one stage.
struct ReduceGroup {
  enum class Quantity : uint8_t { kGradient, kWeight };
  // kCopy: of weights, what the one member that made an UPDATE has.
  enum class Operation : uint8_t { kSum, kMean, kCopy };
  std::vector<StageId> stages;  // ascending; the combination's order is the members' own affair
  Quantity quantity = Quantity::kGradient;
  Operation operation = Operation::kSum;

  friend bool operator==(const ReduceGroup&, const ReduceGroup&) = default;
};

// The kinds of messages on an edge. The numbers are those of the wire (services/transport/frame.h).
enum class EdgeKind : uint8_t {
  kActivation = 1,  // stage -> the stage with the next part's forward
  kGradient = 2,    // stage -> the stage with the part before's backward
  kCollective = 3,  // worker -> worker, for REDUCE and NORM: not in a topology's list
  kCheckpoint = 4,  // stage -> its twin, which does its forwards again
  kSum = 5,         // stage -> the stage that goes on with its sum of gradients
  kRequest = 6,     // stage -> the stage that has its weights, on another worker
  kWeights = 7,     // the other way
};
inline constexpr int kEdgeKinds = 8;
inline constexpr EdgeKind kStageEdgeKinds[] = {EdgeKind::kActivation, EdgeKind::kGradient,
                                               EdgeKind::kCheckpoint, EdgeKind::kSum,
                                               EdgeKind::kRequest,    EdgeKind::kWeights};

// REQUIRES: IsSend(message) or IsReceive(message).
EdgeKind KindOf(ActionKind message);

// One direction between two stages. Every edge has one sender and one receiver, also where a stage
// is wired to several replicas (run.h lives by it). Between stages of one worker nothing is sent.
struct Edge {
  EdgeKind kind = EdgeKind::kActivation;
  StageId from;
  StageId to;
  // The link with costs of its own (simulate.h) that messages take; -1 for kSum, kRequest and kWeights.
  int32_t link = -1;

  // The action that takes a message from the edge.
  Action Receive(int64_t microbatch) const;

  friend bool operator==(const Edge&, const Edge&) = default;
};

struct StageWiring {
  // The edges of one kind that microbatches take in turn.
  struct Ends {
    int32_t first = 0;  // in Topology::edges, or Topology::outgoing
    int32_t count = 0;
    friend bool operator==(const Ends&, const Ends&) = default;
  };

  WorkerId worker;
  int32_t place = 0;  // in its pipeline
  // There and back, of its pipeline's slots. Where there are several workers, stages beside each other that only do
  // forwards and are on the same worker share a slot. Elsewhere it is the place.
  int32_t slot = 0;
  int32_t part = 0;      // of the model: whose layers it has
  int32_t pipeline = 0;  // 0 but for several pipelines
  int32_t replica = 0;   // of its place
  int32_t replicas = 1;  // that its place has
  // Microbatches come in turns (Topology::TurnOf); the stage has those whose turn modulo `turns` is
  // `turn`.
  int32_t turn = 0;
  int32_t turns = 1;
  int32_t stride = 1;    // from one microbatch of its gradients to the next
  bool forward = true;   // whether it does forwards
  bool backward = true;  // whether it does backwards
  bool first = false;    // its passes begin with tokens
  bool last = false;     // its passes end with the loss
  // It is the backward of the first stage there and back, and reads the tokens again.
  bool ends_way_back = false;
  // It makes updates: all do, or those with the backwards of a step's last microbatch.
  bool updates = true;
  bool of_model = true;     // its layers at a cut are those of the model: one stage of each part
  bool recomputes = false;  // its F keeps only the input, and R does it again before the backward
  StageId twin = StageId(-1);  // with the other pass of its part; -1: it does both itself
  // Where weights are streamed, the stage that makes the updates of its part, if that is on another worker, which
  // sends the weights; -1: its own worker has them.
  StageId source = StageId(-1);
  // The first stage of its worker that has the same weights, for they are kept once: itself, but
  // for those of a part there and back.
  StageId holder;
  int32_t link = 0;  // of the links that have costs of their own, the one to what comes after it

  std::array<Ends, kEdgeKinds> in;   // by EdgeKind
  std::array<Ends, kEdgeKinds> out;  // by EdgeKind

  friend bool operator==(const StageWiring&, const StageWiring&) = default;
};

struct Topology {
  enum class Form : uint8_t { kPipelines, kReplicas, kThereAndBack };
  // There and back; otherwise each microbatch is a round and a step by itself.
  struct Rounds {
    int64_t microbatches = 1;  // of a round
    int64_t step = 1;          // microbatches of a step, which begins in pipeline 0; some rounds
    friend bool operator==(const Rounds&, const Rounds&) = default;
  };

  Form form = Form::kPipelines;
  bool streams_weights =
      false;  // there and back: only the worker that updates a part keeps its weights
  // Streamed weights live in the file of that worker, as does its optimizer's state, and not in its memory.
  bool weights_in_file = false;
  std::vector<StageWiring> table;  // by StageId
  // By receiver; those of one kind into a stage beside each other, in the order in which its
  // microbatches take them. An edge's number is its place in this list.
  std::vector<Edge> edges;
  std::vector<int32_t> outgoing;  // the numbers of the edges, in the same order by sender
  int32_t workers = 0;
  std::vector<ReduceGroup> groups;  // by GroupId
  int32_t pipelines = 1;            // divides the stages
  Rounds rounds;
  // After this many microbatches the first pipeline starts over, or the first replica of every place;
  // and in an evaluate range, which goes through the first pipeline alone where pipelines go there
  // and back.
  int64_t cycle = 1;
  int64_t cycle_to_evaluate = 1;
  std::vector<StageId> first_of_place;  // the stage that has the first turn
  int32_t turn_spacing = 1;             // from the number of a stage to that with the next turn

  int32_t stages() const { return static_cast<int32_t>(table.size()); }
  // Stages of one pipeline; where they have replicas, its places.
  int32_t depth() const { return static_cast<int32_t>(first_of_place.size()); }
  // The parts of the model: stages of a pipeline that do forwards.
  int32_t parts() const { return form == Form::kThereAndBack ? (depth() + 1) / 2 : depth(); }
  // There and back, of a pipeline.
  int32_t slots() const { return table[depth() - 1].slot + 1; }
  // Links that have costs of their own.
  int32_t links() const { return table.back().link; }
  const StageWiring& operator[](StageId stage) const { return table[stage.value]; }
  WorkerId worker(StageId stage) const { return table[stage.value].worker; }

  // Whose turn it is to take `microbatch`, of pipelines or replicas.
  int64_t TurnOf(int64_t microbatch) const { return microbatch % cycle / rounds.microbatches; }
  int32_t PipelineOf(int64_t microbatch) const {
    return static_cast<int32_t>(TurnOf(microbatch) % pipelines);
  }
  // The stage that does the work of `microbatch` at a place in its pipeline.
  StageId StageAt(int32_t place, int64_t microbatch) const {
    const StageId first = first_of_place[place];
    const int64_t turn = TurnOf(microbatch) % (*this)[first].turns;
    return StageId(first.value + static_cast<int32_t>(turn) * turn_spacing);
  }
  // True if `microbatch` goes through the pipeline of `stage`, and through this replica; the same
  // of an evaluate range.
  bool Visits(int64_t microbatch, StageId stage) const {
    const StageWiring& row = (*this)[stage];
    return row.turns == 1 || TurnOf(microbatch) % row.turns == row.turn;
  }
  bool VisitsToEvaluate(int64_t microbatch, StageId stage) const {
    const StageWiring& row = (*this)[stage];
    const int64_t turn = microbatch % cycle_to_evaluate / rounds.microbatches;
    return row.forward && turn % row.turns == row.turn;
  }

  // The number of the edge by which the message of `microbatch`, which goes through `stage`, comes
  // to it and leaves it; -1: there is none.
  int32_t EdgeInto(EdgeKind kind, StageId stage, int64_t microbatch) const {
    const StageWiring& row = (*this)[stage];
    const StageWiring::Ends& ends = row.in[static_cast<size_t>(kind)];
    return ends.count == 0 ? -1 : ends.first + InTurn(row, ends, microbatch);
  }
  int32_t EdgeOutOf(EdgeKind kind, StageId stage, int64_t microbatch) const {
    const StageWiring& row = (*this)[stage];
    const StageWiring::Ends& ends = row.out[static_cast<size_t>(kind)];
    return ends.count == 0 ? -1 : outgoing[ends.first + InTurn(row, ends, microbatch)];
  }
  // The edge that a message action uses; -1: there is none. Those of streamed weights all name the stage that gets them.
  int32_t EdgeOf(const Action& message) const;
  // The stages that send the message and get it; -1: none.
  StageId From(EdgeKind kind, StageId stage, int64_t microbatch) const {
    const int32_t edge = EdgeInto(kind, stage, microbatch);
    return edge < 0 ? StageId(-1) : edges[edge].from;
  }
  StageId To(EdgeKind kind, StageId stage, int64_t microbatch) const {
    const int32_t edge = EdgeOutOf(kind, stage, microbatch);
    return edge < 0 ? StageId(-1) : edges[edge].to;
  }
  // True if the W of `microbatch` goes on with a sum that a stage of the pipeline before has
  // accumulated: it is the first of a round, but not of a step.
  bool GoesOnWithSum(int64_t microbatch) const {
    return pipelines > 1 && microbatch % rounds.step != 0 && microbatch % rounds.microbatches == 0;
  }

  // The stage that tells the losses of steps, and the one that tells those of validations: it has
  // the last of them, or gets those of the other replicas.
  StageId TellsSteps() const {
    return StageAt(parts() - 1, form == Form::kReplicas ? 0 : cycle - 1);
  }
  StageId TellsEvaluations() const { return StageAt(parts() - 1, 0); }
  // True if the stage's weights are in the file of its own worker, and so are loaded for its passes.
  bool Loads(StageId stage) const { return weights_in_file && (*this)[stage].source.value < 0; }
  // True if sums of the stage's gradients wait in that file for the slot that goes on with them.
  bool StoresSums(StageId stage) const {
    return weights_in_file && pipelines > 1 && (*this)[stage].backward;
  }
  // True if the members of `group` are the replicas of a place.
  bool IsOfReplicas(const ReduceGroup& group) const {
    const StageWiring& front = (*this)[group.stages.front()];
    return front.replicas > 1 && front.place == (*this)[group.stages.back()].place;
  }
  // True if the members of `group` share parameters (TieParts).
  bool IsOfTies(const ReduceGroup& group) const {
    return group.quantity == ReduceGroup::Quantity::kGradient && !IsOfReplicas(group);
  }
  // True if a NORM of `index` is of what the gradient of `stage` belongs to: several pipelines that are models of their own
  // have a norm each, and all else has one.
  bool IsInNorm(StageId stage, int32_t index) const {
    const StageWiring& row = (*this)[stage];
    return row.updates && (form == Form::kPipelines ? row.pipeline : 0) == index;
  }
  int32_t norms() const { return form == Form::kPipelines ? pipelines : 1; }
  // True if places have replicas that take the mean of their gradients: an update holds one microbatch of each.
  // Otherwise it holds those of a step, or where places have no replicas what the method says.
  bool AveragesGradients() const;
  // Stages of `worker`, ascending.
  std::vector<StageId> StagesOf(WorkerId worker) const;
  // Workers that hold a stage of `group`, ascending: the members of its REDUCE.
  std::vector<WorkerId> WorkersOf(GroupId group) const;
  // The stages that recompute by choice; there and back, where all that do only backwards do, none.
  std::vector<StageId> Recomputing() const;
  // Makes these stages recompute, and no others. REQUIRES: they are not there and back, or `stages`
  // is empty.
  void Recompute(absl::Span<const StageId> stages);

  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  static int32_t InTurn(const StageWiring& row, const StageWiring::Ends& ends, int64_t microbatch) {
    return ends.count == 1 ? 0 : static_cast<int32_t>(microbatch / row.turns % ends.count);
  }
};

// One topology differs from another in these alone: the tables follow from them.
struct TopologyShape {
  std::vector<WorkerId> worker_of;     // by stage
  int32_t pipelines = 1;               // divides the stages
  std::vector<int32_t> replicas = {};  // by place, where places have several; empty: one at each
  std::optional<Topology::Rounds> rounds;  // there and back
  bool streams_weights = false;            // there and back
  bool weights_in_file = false;            // where they are streamed
};

// The tables of `shape`, without groups. Errors: InvalidArgument if the pipelines are not equally
// deep, the rounds do not make a step of pipelines there and back, weights are streamed elsewhere or a worker
// updates no part of them, or the replicas are not those of
// one pipeline, only start over after more than kCycleMax microbatches, or make more edges between places than that.
absl::StatusOr<Topology> Wire(const TopologyShape& shape);

// The stages of each place of a pipeline; 1s without replicas.
std::vector<int32_t> ReplicasOf(const Topology& topology);
// The least common multiple of these, or one more than kCycleMax if it is larger.
inline constexpr int64_t kCycleMax = int64_t{1} << 20;
int64_t CycleOf(absl::Span<const int32_t> replicas);
// Whether all stages have as many replicas.
bool AreAlike(absl::Span<const int32_t> replicas);
// Errors: InvalidArgument if it is larger.
absl::Status CheckCycle(absl::Span<const int32_t> replicas);

// Groups all stages that have the same part of the model, in the order of the parts:
// replicas of the model average their weights, replicas of stages combine their gradients, and
// there and back weights are copied, unless they are streamed; then there are no groups.
std::vector<ReduceGroup> GroupsOfParts(
    const Topology& topology, ReduceGroup::Operation of_gradients = ReduceGroup::Operation::kSum);

// Adds, for every pipeline and each entry of `sharing`, in this order, a group of the stages that have one of
// these parts of the model, and of all their replicas (there and back, of the stages that make updates):
// they share parameters and so add up their gradients. REQUIRES: there are two parts or more in each entry.
void TieParts(Topology& topology, absl::Span<const std::vector<int32_t>> sharing);

// Errors: InvalidArgument if a stage has no worker, a worker no stage, a group is not a set of at
// least two stages, the parts of pipelines there and back are not groups that copy weights (or, where these
// are streamed, such a group is there), or replicas are not on workers of their own (or, where workers have several stages, whole pipelines on
// workers of their own) and groups that combine gradients.
absl::Status CheckTopology(const Topology& topology);

}  // namespace penstock
