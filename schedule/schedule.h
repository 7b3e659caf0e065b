// Schedule: for every worker, the ordered list of actions it performs over one range.
//
// This is the value at the centre of Penstock. The verifier checks it, the simulator predicts its
// timeline, the worker executes it, and all three apply the rules of machine.h.
//
// Plain values without threads, clock or I/O.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "schedule/program.h"

namespace penstock {

// Stages that hold the same parameters and so must combine their gradients before a step: the first
// and last stage of a model with tied embeddings, or the replicas of one stage.
struct ReduceGroup {
  enum class Quantity : uint8_t { kGradient, kWeight };
  // kCopy: of weights, what the one member that made a STEP has.
  enum class Operation : uint8_t { kSum, kMean, kCopy };
  std::vector<StageId> stages;  // ascending; the combination's order is the members' own affair
  Quantity quantity = Quantity::kGradient;
  Operation operation = Operation::kSum;

  friend bool operator==(const ReduceGroup&, const ReduceGroup&) = default;
};

// Who holds which stage. Within a pipeline stage s feeds stage s + 1; the first stage reads data, the
// last has the loss.
//
// There may be several pipelines, replicas of one model of equal depth, through the same workers: stage d
// of pipeline p is number p * depth + d. A microbatch goes through one of them alone; they take turns.
//
// A pipeline may go there and back (RoundPipe), so that a stage's backward is on another worker than its
// forward. Of 2 D - 1 stages the first D - 1 do the forwards of as many parts of the model, the
// middle one forward and backward of the last part, and the rest the backwards of the first D - 1,
// the other way round, from the input that the stage of the forward sends them. A stage and the one
// that does the other pass of its part are twins. Several such pipelines are one model in several
// places: a round of microbatches goes through each in turn, and the sum of a part's gradients goes
// from each to the next. All stages of a part are a group that copies the weights of the one that
// updates them, which is in the last pipeline.
//
// A pipeline may also be wider at some places than at others: a place whose layers take long is held by
// several workers, its replicas, each a stage of its own with the same layers. Microbatch m goes through
// replica m mod r of each place that has r of them, forward and backward (PipeDream's 1F1B-RR), so that who
// feeds whom depends on the microbatch. The replicas of a place are a group that combines gradients before every
// STEP, and so hold the same weights at all times.
struct Topology {
  // Of pipelines that go there and back; 0 for others.
  struct Rounds {
    int64_t microbatches = 0;  // of a round
    int64_t step = 0;          // microbatches of a step, which begins in pipeline 0; some rounds
    friend bool operator==(const Rounds&, const Rounds&) = default;
  };

  std::vector<WorkerId> worker_of;  // by stage
  int32_t workers = 0;
  std::vector<ReduceGroup> groups;  // by GroupId
  int32_t pipelines = 1;            // divides the stages
  // Where places have replicas: the first stage of each place, and at last the number of stages, so
  // that the replicas of place p are the stages from [p] up to [p + 1]. Empty: a stage at each place.
  std::vector<int32_t> first_of_place;
  // Ascending: the stages whose F keeps only its input, and which do it again (R) before the backward.
  std::vector<StageId> recomputes;  // none there and back, where all that do only backwards do
  Rounds rounds;

  int32_t stages() const { return static_cast<int32_t>(worker_of.size()); }
  bool replicated() const { return !first_of_place.empty(); }
  // Stages of one pipeline; where they have replicas, its places.
  int32_t depth() const {
    return replicated() ? static_cast<int32_t>(first_of_place.size()) - 1 : stages() / pipelines;
  }
  WorkerId worker(StageId stage) const { return worker_of[stage.value]; }
  // The place of a stage in its pipeline.
  int32_t DepthOf(StageId stage) const {
    if (!replicated()) return stage.value % depth();
    const auto next = std::upper_bound(first_of_place.begin(), first_of_place.end(), stage.value);
    return static_cast<int32_t>(next - first_of_place.begin()) - 1;
  }
  // How many replicas a place has; which of them a stage is.
  int32_t ReplicasAt(int32_t place) const {
    return replicated() ? first_of_place[place + 1] - first_of_place[place] : 1;
  }
  int32_t ReplicaOf(StageId stage) const {
    return replicated() ? stage.value - first_of_place[DepthOf(stage)] : 0;
  }
  bool there_and_back() const { return rounds.microbatches > 0; }
  // The parts of the model: stages that do forwards.
  int32_t parts() const { return there_and_back() ? (depth() + 1) / 2 : depth(); }
  // Whose layers a stage has.
  int32_t PartOf(StageId stage) const {
    const int32_t place = DepthOf(stage);
    return place < parts() ? place : depth() - 1 - place;
  }
  bool DoesForward(StageId stage) const { return DepthOf(stage) < parts(); }
  bool DoesBackward(StageId stage) const {
    return !there_and_back() || DepthOf(stage) + 1 >= parts();
  }
  // Whether its passes begin with tokens; whether they end with the loss.
  bool IsFirst(StageId stage) const { return DepthOf(stage) == 0; }
  bool IsLast(StageId stage) const { return DepthOf(stage) + 1 == parts(); }
  // Whether it is the backward of the first stage, of which it reads the tokens.
  bool EndsTheWayBack(StageId stage) const {
    return there_and_back() && DepthOf(stage) + 1 == depth();
  }

  // The neighbours of the forward of a microbatch that goes through `stage`: whose output is its input,
  // and whose input is its output; -1 beyond the ends.
  StageId Before(StageId stage, int64_t microbatch) const {
    if (IsFirst(stage) || !DoesForward(stage)) return StageId(-1);
    return replicated() ? StageAt(DepthOf(stage) - 1, microbatch) : StageId(stage.value - 1);
  }
  StageId After(StageId stage, int64_t microbatch) const {
    if (DepthOf(stage) + 1 >= parts()) return StageId(-1);
    return replicated() ? StageAt(DepthOf(stage) + 1, microbatch) : StageId(stage.value + 1);
  }
  // The same of a backward.
  StageId GradientFrom(StageId stage, int64_t microbatch) const {
    if (!there_and_back()) return After(stage, microbatch);
    return StageId(DepthOf(stage) >= parts() ? stage.value - 1 : -1);
  }
  StageId GradientTo(StageId stage, int64_t microbatch) const {
    if (!there_and_back()) return Before(stage, microbatch);
    return StageId(DoesBackward(stage) && DepthOf(stage) + 1 < depth() ? stage.value + 1 : -1);
  }
  // All that one of these four says for the microbatches that go through `stage`, in the order in which
  // they come: more than one where places have replicas, none beyond the ends. They take turns: the
  // microbatch is with number TurnOf modulo theirs.
  using Neighbour = StageId (Topology::*)(StageId stage, int64_t microbatch) const;
  std::vector<StageId> All(Neighbour neighbour, StageId stage) const;
  // How many microbatches have gone through the stage before `microbatch` does, from the first of all.
  int64_t TurnOf(StageId stage, int64_t microbatch) const {
    return replicated() ? microbatch / ReplicasAt(DepthOf(stage)) : 0;
  }
  // The stage with the other pass of this one's part; -1 if it does both itself.
  StageId TwinOf(StageId stage) const {
    const int32_t back = depth() - 1 - 2 * DepthOf(stage);
    return StageId(!there_and_back() || back == 0 ? -1 : stage.value + back);
  }
  // Who gets this stage's inputs to do its forwards again, and whose it gets; -1: nobody. A twin
  // that reads tokens gets nothing.
  StageId CheckpointTo(StageId stage) const {
    return StageId(DoesBackward(stage) || IsFirst(stage) ? -1 : TwinOf(stage).value);
  }
  StageId CheckpointFrom(StageId stage) const {
    return StageId(DoesForward(stage) || EndsTheWayBack(stage) ? -1 : TwinOf(stage).value);
  }
  // Who goes on with this stage's sums of gradients, and with whose it goes on; -1: nobody. The
  // rounds of a step go through the pipelines in turn.
  StageId SumTo(StageId stage) const;
  StageId SumFrom(StageId stage) const;
  // Whether the W of `microbatch` goes on with a sum that a stage of the pipeline before has
  // accumulated: it is the first of a round, but not of a step.
  bool GoesOnWithSum(int64_t microbatch) const {
    return there_and_back() && pipelines > 1 && microbatch % rounds.microbatches == 0 &&
           microbatch % rounds.step != 0;
  }
  // Whether the stage makes STEPs: all, or those with the backwards of a step's last microbatch.
  bool Updates(StageId stage) const {
    return !there_and_back() ||
           (DoesBackward(stage) && PipelineOf(stage) == PipelineOf(rounds.step - 1));
  }
  // Whether its layers at a cut are those of the model: one stage of each part.
  bool IsOfModel(StageId stage) const {
    if (replicated()) return ReplicaOf(stage) == 0;
    return there_and_back() ? Updates(stage) : PipelineOf(stage) == 0;
  }
  // The stage that tells the losses of steps, and the one that tells those of validations: it has the
  // last of them, or gets those of the other replicas.
  StageId TellsSteps() const { return StageAt(parts() - 1, replicated() ? 0 : cycle() - 1); }
  StageId TellsEvaluations() const { return StageAt(parts() - 1, 0); }

  int32_t PipelineOf(StageId stage) const { return pipelines == 1 ? 0 : stage.value / depth(); }
  int32_t PipelineOf(int64_t microbatch) const {
    const int64_t turn =
        there_and_back() ? microbatch % rounds.step / rounds.microbatches : microbatch;
    return static_cast<int32_t>(turn % pipelines);
  }
  // After so many microbatches the first pipeline begins anew, or the first replica of every place
  // (CycleOf).
  int64_t cycle() const;
  // The stage that does the work of `microbatch` at a place in its pipeline.
  StageId StageAt(int32_t depth_of_stage, int64_t microbatch) const {
    if (replicated()) {
      const int64_t replica = microbatch % ReplicasAt(depth_of_stage);
      return StageId(first_of_place[depth_of_stage] + static_cast<int32_t>(replica));
    }
    return StageId(PipelineOf(microbatch) * depth() + depth_of_stage);
  }
  // Whether R makes its stash.
  bool Recomputes(StageId stage) const {
    return there_and_back() ? !DoesForward(stage)
                            : std::binary_search(recomputes.begin(), recomputes.end(), stage);
  }
  // Whether `microbatch` goes through the pipeline of `stage`, and through this replica.
  bool Visits(int64_t microbatch, StageId stage) const {
    if (replicated()) return StageAt(DepthOf(stage), microbatch) == stage;
    return pipelines == 1 || PipelineOf(microbatch) == PipelineOf(stage);
  }
  // The same of an evaluate range: there and back all take the first pipeline, so that one worker
  // has the losses.
  bool VisitsToEvaluate(int64_t microbatch, StageId stage) const {
    return there_and_back() ? DoesForward(stage) && PipelineOf(stage) == 0
                            : Visits(microbatch, stage);
  }
  // Microbatches from one that goes through `stage` to the next.
  int64_t StrideOf(StageId stage) const {
    return replicated() ? ReplicasAt(DepthOf(stage)) : pipelines;
  }
  // Whether the members of `group` are the replicas of a place.
  bool IsOfReplicas(const ReduceGroup& group) const {
    return replicated() && DepthOf(group.stages.front()) == DepthOf(group.stages.back());
  }
  // Stages of `worker`, ascending.
  std::vector<StageId> StagesOf(WorkerId worker) const;
  // Workers that hold a stage of `group`, ascending: the members of its REDUCE.
  std::vector<WorkerId> WorkersOf(GroupId group) const;

  friend bool operator==(const Topology&, const Topology&) = default;
};

// Without groups. One stage on each worker: the plain pipeline.
Topology StraightPipeline(int32_t stages);
// Stage s on worker s mod workers. REQUIRES: stages is a multiple of workers.
Topology LoopedPipeline(int32_t stages, int32_t workers);
// Two stages on each worker, down the workers and back up: the first and the last stage share one.
Topology VPipeline(int32_t workers);
// `pipelines` plain pipelines through the same `depth` workers. Where there are two or more, the replicas of
// each stage are a group whose weights are averaged, the groups in the order of the stages.
Topology ReplicatedPipelines(int32_t depth, int32_t pipelines);

// One pipeline with replicas[p] stages at place p, each on a worker of its own, the replicas of a place beside
// each other; those of each place with two or more are a group whose gradients are combined by `operation`, in
// the order of the places. With one replica everywhere the plain pipeline.
// REQUIRES: `replicas` is not empty, all are 1 or more.
Topology ReplicatedStages(absl::Span<const int32_t> replicas, ReduceGroup::Operation operation);
// The stages of each place of a pipeline; 1s without replicas. REQUIRES: one pipeline.
std::vector<int32_t> ReplicasOf(const Topology& topology);
// The least common multiple of these, or one more than kCycleMax if it is larger.
inline constexpr int64_t kCycleMax = int64_t{1} << 20;
int64_t CycleOf(absl::Span<const int32_t> replicas);

// Pipelines that go there and back through `parts` parts of a model on `workers` workers: with S =
// 2 parts - 1 slots for a microbatch, slot i of round r of a step is on worker (r S + i) mod
// workers. A round has as many microbatches as there are workers, or all of a step that has fewer.
// There are as many pipelines as rounds differ in their places.
// REQUIRES: parts, workers >= 1; 2 parts - 1 >= workers; `step` is a multiple of the workers, or smaller.
Topology RoundTripPipelines(int32_t parts, int32_t workers, int64_t step);

// Adds, for every pipeline, the group of its first and last stage, and of all their replicas, which share the
// tied embedding's gradient (there and back, of the stages that make STEPs); nothing where they are one stage.
void TieEnds(Topology& topology);

// Errors: InvalidArgument if a stage has no worker, a worker no stage, the pipelines are not equally deep,
// a group is not a set of at least two stages, `recomputes` is not a set of stages, or the rounds do not make a
// step of pipelines there and back, whose parts are groups; if replicas are not one pipeline of workers of their
// own, whose places are groups, or only begin anew after more than kCycleMax microbatches.
absl::Status CheckTopology(const Topology& topology);

// Which version of a stage's weights forward and backward read, and which are kept
// (weight_policy.h has the rules).
struct WeightPolicy {
  enum class Kind : uint8_t {
    kSingle,   // the current weights for both; synchronous schedules change them only when drained
    kStash,    // backward reads the version its forward read (PipeDream, SOSP'19)
    kDelayed,  // both read the version `lag` older than that of their batch of `batch` microbatches
    kPredicted,  // the current weights, moved to where the microbatch's own update will find them
    kAligned,    // the same, moved on to where they are when the first stage makes that update
    kCorrected,  // forward the current weights, backward those moved back to where its forward was
    kDrawn,  // both read one of the last `lag` + 1 versions; which, and who is updated, is drawn
  };
  Kind kind = Kind::kSingle;
  // Of kDelayed, kPredicted and kAligned: the microbatches of an update, 1 or more; 1 otherwise.
  int64_t batch = 1;
  // Of kDelayed: 1 or more. Of kDrawn: the greatest delay, as many as stages are after the first or more.
  // 0 otherwise.
  int64_t lag = 0;
  uint64_t seed = 0;  // of kDrawn

  // Whether a pass may read weights moved along their motion, for which a copy is needed.
  bool moves_weights() const {
    return kind == Kind::kPredicted || kind == Kind::kAligned || kind == Kind::kCorrected;
  }
  // Whether what is read depends on draws (block_draws.h).
  bool draws() const { return kind == Kind::kDrawn; }

  friend bool operator==(const WeightPolicy&, const WeightPolicy&) = default;
};
inline constexpr WeightPolicy kSingleVersion = {WeightPolicy::Kind::kSingle};
inline constexpr WeightPolicy kStashedVersions = {WeightPolicy::Kind::kStash};

// What a complete range holds for every stage and microbatch.
enum class Completeness : uint8_t {
  kTrain,     // one F, one I, one W, and one R where the stage recomputes; a STEP after the last W
  kEvaluate,  // one F alone: validation, nothing is stashed
};

// The microbatches [first, first + count).
struct MicrobatchRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t end() const { return first + count; }
  friend bool operator==(const MicrobatchRange&, const MicrobatchRange&) = default;
};

struct Schedule {
  std::string name;
  Topology topology;
  WeightPolicy weight_policy;
  Completeness completeness = Completeness::kTrain;
  MicrobatchRange range;
  std::vector<Program> programs;  // by WorkerId

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Microbatches are numbered below this and a program is shorter, so that sums cannot overflow.
inline constexpr int64_t kMicrobatchMax = int64_t{1} << 48;

// Errors: InvalidArgument if the range is empty or goes beyond kMicrobatchMax.
absl::Status CheckRange(const MicrobatchRange& range);

// Whether weights may be drawn so on this topology; other policies fit any. Errors:
// InvalidArgument, with the least delay that would do.
absl::Status CheckDraws(const WeightPolicy& policy, const Topology& topology);

// Messages that a channel holds, where the schedule needs no more: more than the least that
// completes, so that a worker that is a little ahead need not stop at once; an activation is small
// beside the stash. There and back all inputs of a round may wait for their backwards. And the most
// that a schedule may need.
inline constexpr int32_t kChannelCapacity = 4;
inline constexpr int32_t kChannelCapacityMax = 1 << 10;
inline int32_t ChannelCapacityOf(const Topology& topology) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(topology.rounds.microbatches, kChannelCapacity, kChannelCapacityMax));
}

// Checks the form alone: a valid topology, a range that is not empty, one program for each worker
// that ends with FLUSH, numbers below kMicrobatchMax, and where weights are drawn one pipeline with
// room for its delays. Whether the schedule is right is for verify.h.
// Errors: InvalidArgument.
absl::Status CheckSchedule(const Schedule& schedule);

// "single", "stash", "delayed:8:1" (batch and lag), "predicted:1" and "aligned:1" (batch), "corrected",
// "drawn:14:1" (greatest delay and seed).
std::string ToString(const WeightPolicy& policy);
// The inverse. Errors: InvalidArgument.
absl::StatusOr<WeightPolicy> ParseWeightPolicy(absl::string_view text);
// "train", "evaluate".
absl::string_view CompletenessName(Completeness completeness);

}  // namespace penstock
