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
#include "base/ids.h"
#include "schedule/program.h"

namespace penstock {

// Stages that hold the same parameters and so must combine their gradients before a step: the first
// and last stage of a model with tied embeddings, or the replicas of one stage.
struct ReduceGroup {
  enum class Quantity : uint8_t { kGradient, kWeight };
  enum class Operation : uint8_t { kSum, kMean };
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
struct Topology {
  std::vector<WorkerId> worker_of;  // by stage
  int32_t workers = 0;
  std::vector<ReduceGroup> groups;  // by GroupId
  int32_t pipelines = 1;            // divides the stages
  // Ascending: the stages whose F keeps only its input, and which do it again (R) before the backward.
  std::vector<StageId> recomputes;

  int32_t stages() const { return static_cast<int32_t>(worker_of.size()); }
  // Stages of one pipeline.
  int32_t depth() const { return stages() / pipelines; }
  WorkerId worker(StageId stage) const { return worker_of[stage.value]; }
  // The place of a stage in its pipeline.
  int32_t DepthOf(StageId stage) const { return stage.value % depth(); }
  bool IsFirst(StageId stage) const { return DepthOf(stage) == 0; }
  bool IsLast(StageId stage) const { return DepthOf(stage) + 1 == depth(); }
  // The neighbours in the pipeline; -1 beyond its ends.
  StageId Before(StageId stage) const { return StageId(IsFirst(stage) ? -1 : stage.value - 1); }
  StageId After(StageId stage) const { return StageId(IsLast(stage) ? -1 : stage.value + 1); }

  int32_t PipelineOf(StageId stage) const { return stage.value / depth(); }
  int32_t PipelineOf(int64_t microbatch) const {
    return static_cast<int32_t>(microbatch % pipelines);
  }
  // The stage that does the work of `microbatch` at a place in its pipeline.
  StageId StageAt(int32_t depth_of_stage, int64_t microbatch) const {
    return StageId(PipelineOf(microbatch) * depth() + depth_of_stage);
  }
  bool Recomputes(StageId stage) const {
    return std::binary_search(recomputes.begin(), recomputes.end(), stage);
  }
  // Whether `microbatch` goes through the pipeline of `stage`.
  bool Visits(int64_t microbatch, StageId stage) const {
    return pipelines == 1 || PipelineOf(microbatch) == PipelineOf(stage);
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

// Adds, for every pipeline, the group of its first and last stage, which share the tied embedding's
// gradient; nothing where they are one stage.
void TieEnds(Topology& topology);

// Errors: InvalidArgument if a stage has no worker, a worker no stage, the pipelines are not equally deep,
// a group is not a set of at least two stages, or `recomputes` is not a set of stages.
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

// Whether weights may be drawn so on this topology; other policies fit any. Errors: InvalidArgument, with the least
// delay that would do.
absl::Status CheckDraws(const WeightPolicy& policy, const Topology& topology);

// Messages that a channel holds: what a cluster has unless a schedule needs more, and the most it may need.
inline constexpr int32_t kChannelCapacity = 4;
inline constexpr int32_t kChannelCapacityMax = 1 << 10;

// Checks the form alone: a valid topology, a range that is not empty, one program for each worker
// that ends with FLUSH, numbers below kMicrobatchMax, and where weights are drawn one pipeline with room for its
// delays. Whether the schedule is right is for verify.h.
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
