// ResolvedJob: a job's message turned into the values that the rest of Penstock computes with.
//
// Coordinator, workers, the serial reference and the command line all resolve the same JobSpec with
// this one function, so they cannot disagree about what the job means.
//
// Plain values without I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/backend.h"
#include "compute/clip.h"
#include "compute/learning_rate.h"
#include "compute/message_compression.h"
#include "compute/optimizer.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"
#include "schedule/catalog/catalog.h"
#include "schedule/offload.h"
#include "schedule/recompute.h"

namespace penstock {

// The treatment of late gradients in an update (job.proto, StalenessSpec).
struct StalenessRules {
  int64_t rescheduled_steps = 0;
  std::optional<double> stage_momentum;
  double delay_compensation = 0.0;
  bool error_feedback = false;
  double momentum_average_decay = 0.0;
  bool adaptive_compensation = false;
  double mean_square_decay = 0.0;

  bool any() const {
    return rescheduled_steps > 0 || stage_momentum || delay_compensation > 0.0 || error_feedback;
  }
  friend bool operator==(const StalenessRules&, const StalenessRules&) = default;
};

// In which order a worker performs its actions (pipeline.order).
enum class Order : uint8_t {
  kStatic,    // that of the schedule
  kRecorded,  // whatever is ready, and noted (schedule/ready_order.h)
};

struct ResolvedJob {
  // In the order of pipeline.layer_order, and as it is computed (model/fuse_branches.h).
  ModelGraph model;
  std::optional<int32_t> ignored_target;  // that the job says, whatever the family leaves out
  std::string pretrained;  // what the first weights are known by (IdentityOfPretrained)
  const Method* method = nullptr;
  const Weights* weights = nullptr;  // instead of the method's
  int32_t stages_per_worker = 1;
  std::optional<int32_t> replicas;  // of the model (local-sgd); absent: as many as workers
  // For other methods: replicas by stage, or one number for all; empty: one each.
  std::vector<int32_t> stage_replicas;
  // Layers of the model, by stage of one copy of it; empty: any.
  std::vector<int32_t> stage_layers;
  std::vector<std::string> worker_names;   // by worker of the pipeline; empty: any
  std::optional<int32_t> workers;          // that the stages go round (roundpipe)
  int32_t stages = 0;                      // of the job, where `workers` is there
  int32_t stages_per_forward = 1;          // passed together on the way there (roundpipe)
  std::shared_ptr<const Schedule> listed;  // of ListedMethod and SearchedMethod
  RecomputeChoice recompute;               // which stages do, by place in a pipeline
  OffloadChoice offload;                   // likewise
  bool streams_weights = false;            // roundpipe: only who updates a stage keeps its weights
  bool weights_in_file = false;            // in a file, with the optimizer's state
  MessageCompression compression;          // of activations and gradients between workers
  Order order = Order::kStatic;
  int32_t in_flight_factor = 1;  // of recorded order
  std::optional<int64_t> delta;  // of rpd: the greatest delay; absent: PipeDream's
  int64_t steps = 0;
  int64_t batch = 0;         // samples per step
  int64_t microbatches = 0;  // per step
  int64_t microbatch_samples = 0;
  std::optional<int64_t> update_every;  // microbatches of an update; absent: the method's own
  int64_t synchronous_steps = 0;        // before the method begins
  OptimizerConfig optimizer;
  LearningRate learning_rate;  // by samples
  StalenessRules staleness;
  std::optional<double> average_decay;  // in a step, of the weights' average; absent: there is none
  bool validates_average = false;
  int64_t stop_after =
      0;  // validations without a lower loss (job/early_stop.h); 0: the job does not stop early
  Clip clip;
  Precision precision = Precision::kF32;
  Rounding rounding = Rounding::kNearest;
  StashPlace stash = StashPlace::kDevice;
  Repeatability repeatability = Repeatability::kBitwise;
  bool cuda_graphs = false;
  uint64_t seed = 0;
  int threads = 1;
  int64_t validation_batches = 0;  // microbatch-sized batches of one validation

  // Return the workers of a pipeline of this many stages, and the stages that this many workers
  // hold. (Stages of the model: there and back each is passed twice.)
  int64_t WorkersOf(int64_t stages) const {
    if (workers.has_value()) return *workers;
    if (listed != nullptr) return listed->topology.workers;
    if (!stage_replicas.empty()) {
      const std::vector<int32_t> replicas_of_stages = ReplicasOfStages(stages);
      return std::accumulate(replicas_of_stages.begin(), replicas_of_stages.end(), int64_t{0}) /
             stages_per_worker;
    }
    return stages / stages_per_worker;
  }
  int64_t StagesOn(int64_t on_workers) const {
    if (workers.has_value()) return stages;
    if (listed != nullptr) return listed->topology.parts();
    if (knows_stages()) return static_cast<int64_t>(stage_replicas.size());
    if (!stage_replicas.empty()) return on_workers / stage_replicas.front() * stages_per_worker;
    return on_workers * stages_per_worker;
  }

  // The workers that hold each of `stages` stages, where these are replicas; whether the job lists them, and so
  // says how many stages it has.
  std::vector<int32_t> ReplicasOfStages(int64_t stages) const {
    if (knows_stages()) return stage_replicas;
    return std::vector<int32_t>(stages, stage_replicas.empty() ? 1 : stage_replicas.front());
  }
  bool knows_stages() const { return stage_replicas.size() > 1; }

  // Whether its stages are passed there and back, the forwards on other workers than the backwards.
  bool goes_there_and_back() const {
    return listed != nullptr ? listed->topology.form == Topology::Form::kThereAndBack
                             : method->placement == Placement::kRoundTrip;
  }

  // The pipelines of `stages` stages each that a step's microbatches go through in turn.
  int32_t PipelinesOf(int64_t stages) const {
    if (method->placement != Placement::kReplicas) return 1;
    return replicas.value_or(static_cast<int32_t>(WorkersOf(stages)));
  }

  const Weights& weights_read() const { return weights == nullptr ? *method->weights : *weights; }

  // Delays and the stage that a microbatch updates are sampled (schedule/block_draws.h).
  bool draws() const { return weights_read().draws; }

  // These hold for the steps after `step`: for a range, the step after which it begins.
  bool DrainsAfter(int64_t step) const { return method->synchronous || step < synchronous_steps; }
  const Method& MethodAfter(int64_t step) const {
    return DrainsAfter(step) && !method->synchronous ? SynchronousStart(*method) : *method;
  }
  int64_t microbatches_of_update(int64_t step) const {
    if (MethodAfter(step).updates_each_microbatch) return 1;
    return DrainsAfter(step) ? microbatches : update_every.value_or(microbatches);
  }
  // Returns how many updates each of `stages` stages makes in the steps after `from_step` up to `to_step`. All
  // make the same number, unless the stages have other numbers of replicas and so update after other numbers of
  // microbatches; then those of `stage`.
  int64_t UpdatesBetween(int64_t from_step, int64_t to_step, int64_t stages,
                         int64_t stage = 0) const;
  // Where updates are sampled: how many of those up to `step` changed the weights of `stage`.
  int64_t MovesUntil(int64_t step, int64_t stage, int64_t stages) const;
  // 0 if the model has none.
  int64_t tokens_per_step() const {
    return model.has_tokens() ? batch * model.targets_per_sample() : 0;
  }
};

// Checks all of `spec` first, so whatever comes out of here is a job that can run somewhere.
//
// REQUIRES: `spec` has its defaults filled in (job/defaults.h).
// Errors: InvalidArgument naming the key ("training.microbatches"), what it is and what is allowed.
absl::StatusOr<ResolvedJob> ResolveJob(const v1::JobSpec& spec);

// The workers of a pipeline of `stages` stages, and who holds which stage; with replicas of the model, all their
// pipelines, and with replicas of stages, all of these, and the groups that average or combine. REQUIRES: CheckStages is OK.
Topology TopologyOf(const ResolvedJob& job, int64_t stages);

// Checks that the job can run as a pipeline of `stages` stages.
// Errors: InvalidArgument naming the key and the reason: more stages than the model has layers, other stages
// or layers than pipeline.stage_layers says, more microbatches than a step of this many stages may hold, a
// stage to recompute that does not exist, or what the method refuses (shared weights on more stages
// than they can be kept together on, a recorded order).
absl::Status CheckStages(const ResolvedJob& job, int64_t stages);

// The learning rate of the chosen optimizer, after warm-up; 0 without one.
double PeakRateOf(const v1::OptimizerSpec& spec);
void ClearPeakRate(v1::OptimizerSpec& spec);

// Where a run drains. Ascending; the last one is the end of the job.
struct Cut {
  int64_t step = 0;  // after this many steps
  bool validate = false;
  bool checkpoint = false;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// The cuts of `spec` after `first_step` (the end of a job with a checkpoint directory saves), the drains of earlier runs (`extra_cuts`, in any order)
// among them; none if the job is done by then. They are constants of the job: part of the schedule
// digest and of the serial reference.
std::vector<Cut> CutsOf(const v1::JobSpec& spec, int64_t first_step,
                        absl::Span<const int64_t> extra_cuts);

// The schedule's options for this job on `topology`, whose parts of the model have the layers `parts`. Parameters that
// several of them share make REDUCE groups (job/run/ties.h). Which stages recompute is the job's choice.
ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology,
                                  absl::Span<const LayerRange> parts);
// What holds for any cut, and all that follows from it but the work of a REDUCE: weights that are read, delays.
ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology);

}  // namespace penstock
