// The catalog: every method a job can name, as one table.
//
// To add one: a file <name>.cc beside this one with a function that lists a worker's compute
// actions (lowering adds messages, reductions and norms), and a row with its name in catalog.cc.
// `UPDATE_GOLDEN=1 ctest -R schedule` then draws its golden picture.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "schedule/offload.h"
#include "schedule/placements.h"
#include "schedule/schedule.h"

namespace penstock {

// The most actions that a step may have, all workers together. The coordinator lists and verifies steps between two
// heartbeats, which takes a second or two at this limit.
inline constexpr int64_t kStepActionsMax = 2'000'000;

// A catalog schedule depends on these and on the range.
struct ScheduleOptions {
  Topology topology;
  int64_t microbatches_per_step = 1;
  // Other weights than the method's own, where it allows them; null: its own.
  const Weights* weights = nullptr;
  // For sampled weights: the greatest delay (absent: PipelineDelay of block_draws.h), and the seed of the samples.
  std::optional<int64_t> delta;
  uint64_t seed = 0;
  // For ListedMethod and SearchedMethod: a custom schedule of one step, compute actions alone or with messages (UPDATE, REDUCE, NORM and FLUSH are
  // left out and added as needed). `topology` is its own, but for groups.
  std::shared_ptr<const Schedule> listed;
  // Clipping by the global gradient norm: a NORM before the steps. Only methods that drain at every
  // step accept it.
  bool global_norm = false;
  // Gradients leave for the previous stage before W (lower.h).
  bool send_gradient_early = false;
  // For methods that choose the microbatches of an update (pipeline.update_every): a divisor of the step; absent: a step.
  std::optional<int64_t> microbatches_per_update = std::nullopt;
  // The stages that keep only some of their stashes on the device. None that recompute, and none there and back.
  OffloadChoice offload;
  // More than kStepActionsMax is for simulations of what no coordinator runs.
  int64_t step_actions_max = kStepActionsMax;
};

// A method sets these defaults for the updates of a job that does not set them (job.proto has the meaning of each).
struct UpdatePreset {
  absl::string_view optimizer = "";  // "nadamw"; empty: the job names one
  bool reschedules_rates = false;    // training.staleness.rescheduled_steps
  bool stage_momentum = false;       // training.staleness.stage_momentum
};

struct Method {
  // The compute actions (F, I, W, UPDATE) of `worker` over `range`.
  using List = Program(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);

  absl::string_view name;     // what the job says: "1f1b"
  absl::string_view summary;  // one line for `penstock methods` and --help
  absl::string_view paper;
  const Weights* weights;
  // The pipeline drains at the end of every step; otherwise it runs on until the next cut.
  bool synchronous;
  List* program;
  Placement placement = Placement::kStraight;
  // A stage updates after every microbatch, otherwise with the mean gradient of a whole step.
  bool updates_each_microbatch = false;
  // The microbatches between two updates of a stage are the job's choice (pipeline.update_every), otherwise a step or one.
  bool chooses_update_interval = false;
  // The microbatches of a step must be a multiple of the workers; with replicas, of their number;
  // there and back they may also be fewer.
  bool steps_in_rounds = false;
  // Workers keep the weights of those parts alone that they update, whatever the job says: the method lives by it.
  bool streams_weights = false;
  // Gradients leave for the previous stage before W whatever the options say: the method lives by
  // it.
  bool sends_gradient_early = false;
  // Why stages have no replicas (Topology::Form::kReplicas), which they have if it is empty: "takes .."
  absl::string_view why_no_replicas = "";
  UpdatePreset update;

  bool replicates_stages() const { return why_no_replicas.empty(); }
};

// The topology of `method` without replicas of stages: that of its placement (Place), with streamed weights where it lives by
// them. Errors: those of Place and of StreamWeights.
absl::StatusOr<Topology> PlaceMethod(const Method& method, int32_t stages, int32_t workers,
                                     int64_t microbatches_per_step,
                                     std::optional<int32_t> copies = std::nullopt,
                                     int32_t stages_per_forward = 1);

// The topology of `method` whose stage s is held by replicas[s] workers. Their gradients are added
// up where all updates are those of a step, whose microbatches each have their share of the loss,
// and averaged where each microbatch has an update otherwise. Where a worker has several stages
// (`stages_per_worker`; 0: as few as the method runs with) the replicas are whole pipelines. REQUIRES:
// `replicas` is not empty. Errors: InvalidArgument (why the method has no replicas of stages, or not in
// these numbers; a number below 1; numbers that start over together only after too many
// microbatches; stages that do not fit on workers).
absl::StatusOr<Topology> PlaceReplicas(const Method& method, absl::Span<const int32_t> replicas,
                                       int32_t stages_per_worker = 0);

// The microbatches between two updates of a stage: 1, those of a step, or what the options say.
int64_t MicrobatchesOfUpdate(const Method& method, const ScheduleOptions& options);

// How the replicas of its stages combine their gradients.
ReduceGroup::Operation GradientsCombine(const Method& method);
// Makes the replicas of stages that there are combine their gradients as those of `method` do.
void CombineGradientsAs(const Method& method, Topology& topology);

// A method of the same placement that drains at every step: what the first steps of an asynchronous
// one may be (pipeline.synchronous_steps). REQUIRES: `method` is one that does not drain.
const Method& SynchronousStart(const Method& method);

// Checks that passes of the method may read such weights, on any topology. Errors: InvalidArgument with the reason.
absl::Status CheckWeights(const Method& method, const Weights& weights);

// REQUIRES: the method can do what the options ask (CheckBuildable).
WeightPolicy WeightPolicyOf(const Method& method, const ScheduleOptions& options);

absl::Span<const Method> Methods();

// Not in the catalog: repeats the step of a custom schedule (ScheduleOptions::listed).
const Method& ListedMethod();
// The same of a step that a search found for the times of a job (schedule/search.h).
const Method& SearchedMethod();

// Of the catalog, or SearchedMethod. Errors: NotFound, listing the names there are.
absl::StatusOr<const Method*> FindMethod(absl::string_view name);

// The most microbatches that a step may have in a pipeline of `stages` stages, so that it has no more than `actions_max`
// actions. (The R of stages that recompute is not counted.)
int64_t ListedMicrobatchesMax(int32_t stages, int64_t actions_max = kStepActionsMax);

// Checks that BuildSchedule can build this, without building it. Errors: those of BuildSchedule.
absl::Status CheckBuildable(const Method& method, const ScheduleOptions& options,
                            MicrobatchRange range);

// The complete, lowered schedule of `method` over `range`. Every party (coordinator, workers,
// reference, command line) calls this; catalog schedules do not travel, their digest does.
//
// Errors: InvalidArgument if the range is empty or (with an update per step) not a multiple of
// microbatches_per_step, a step is too long to be listed, the topology is not valid, or the method
// cannot do what the options ask (with the reason).
absl::StatusOr<Schedule> BuildSchedule(const Method& method, const ScheduleOptions& options,
                                       MicrobatchRange range);

// Forward only, over `range` (validation). Its microbatches are numbered by themselves and go
// through several pipelines, or replicas of stages, in turn; there and back all through the first.
// REQUIRES: `topology` is valid.
Schedule BuildEvaluation(const Topology& topology, MicrobatchRange range);

}  // namespace penstock
