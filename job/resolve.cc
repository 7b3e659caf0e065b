#include "job/resolve.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/check_fields.h"
#include "job/recorded.h"
#include "job/suggest.h"
#include "model/gpt.h"
#include "schedule/lower.h"
#include "schedule/text.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

absl::StatusOr<const Method*> FindMethodOfJob(const std::string& name) {
  absl::StatusOr<const Method*> method = FindMethod(absl::string_view(name));
  if (method.ok()) {
    return method;
  }
  std::vector<std::string> names;
  for (const Method& known : Methods()) {
    names.emplace_back(known.name);
  }
  const std::string nearest = NearestName(name, names);
  return InvalidKey("pipeline.method", absl::StrCat(method.status().message(),
                                                    nearest.empty() ? "" : "; did you mean ",
                                                    nearest, nearest.empty() ? "" : "?"));
}

// Reads and verifies the step that a job brings along.
absl::StatusOr<std::shared_ptr<const Schedule>> ReadListed(const v1::PipelineSpec& pipeline) {
  if (pipeline.method() != ListedMethod().name) {
    return InvalidKey("pipeline.schedule_file",
                      absl::StrCat("cannot be together with pipeline.method ", pipeline.method(),
                                   "; leave one of them out"));
  }
  if (pipeline.has_stages_per_worker()) {
    return InvalidKey("pipeline.stages_per_worker",
                      "cannot be together with pipeline.schedule_file, which says where each stage "
                      "is; leave one of them out");
  }
  const absl::StatusOr<Schedule> schedule = ParseSchedule(pipeline.schedule());
  if (!schedule.ok()) return InvalidKey("pipeline.schedule_file", schedule.status().message());
  const absl::Status topology = CheckTopology(schedule->topology);
  if (!topology.ok()) return InvalidKey("pipeline.schedule_file", topology.message());
  if (!(schedule->weight_policy == kSingleVersion) ||
      schedule->completeness != Completeness::kTrain) {
    return InvalidKey("pipeline.schedule_file",
                      "must list a training step with a single version of the weights");
  }
  const absl::StatusOr<Schedule> complete =
      IsComplete(*schedule) ? schedule : CompleteSchedule(*schedule, {});
  if (!complete.ok()) return InvalidKey("pipeline.schedule_file", complete.status().message());
  const absl::StatusOr<VerifyReport> report = VerifyAndDraw(*complete);
  if (!report.ok()) return InvalidKey("pipeline.schedule_file", report.status().message());
  return std::make_shared<const Schedule>(*schedule);
}

absl::StatusOr<Chain> BuildChain(const v1::ModelSpec& model) {
  const v1::GptSpec& gpt = model.gpt();
  absl::StatusOr<Chain> chain = BuildGpt({.layers = gpt.layers(),
                                          .width = gpt.width(),
                                          .heads = gpt.heads(),
                                          .context = gpt.context(),
                                          .vocabulary = gpt.vocabulary(),
                                          .dropout = gpt.dropout(),
                                          .tied_head = gpt.tied_head()});
  if (!chain.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("model.gpt.", chain.status().message()));
  }
  return chain;
}

OptimizerConfig OptimizerOf(const v1::OptimizerSpec& spec) {
  if (spec.has_sgd()) {
    return SgdConfig{.momentum = spec.sgd().momentum(), .weight_decay = spec.sgd().weight_decay()};
  }
  const v1::AdamWSpec& adamw = spec.adamw();
  return AdamWConfig{.beta1 = adamw.beta1(),
                     .beta2 = adamw.beta2(),
                     .epsilon = adamw.epsilon(),
                     .weight_decay = adamw.weight_decay()};
}

LearningRate LearningRateOf(const v1::TrainingSpec& training) {
  const v1::LearningRateSpec& rate = training.learning_rate();
  const v1::OptimizerSpec& optimizer = training.optimizer();
  return LearningRate{.peak = optimizer.has_sgd() ? optimizer.sgd().learning_rate()
                                                  : optimizer.adamw().learning_rate(),
                      .warmup_samples = rate.warmup_steps() * training.batch(),
                      .total_samples = training.steps() * training.batch(),
                      .decay = rate.decay() == "linear"   ? LearningRate::Decay::kLinear
                               : rate.decay() == "cosine" ? LearningRate::Decay::kCosine
                                                          : LearningRate::Decay::kConstant,
                      .final_fraction = rate.final_fraction()};
}

Clip ClipOf(const v1::ClipSpec& spec) {
  switch (spec.kind_case()) {
    case v1::ClipSpec::kGlobalNorm:
      return {.kind = Clip::Kind::kGlobalNorm, .norm_max = spec.global_norm()};
    case v1::ClipSpec::kLayerNorm:
      return {.kind = Clip::Kind::kLayerNorm, .norm_max = spec.layer_norm()};
    case v1::ClipSpec::KIND_NOT_SET:
      return {};
  }
  return {};
}

absl::StatusOr<Weights> WeightsOfJob(const std::string& name) {
  std::vector<std::string> names;
  for (const Weights weights :
       {Weights::kSingle, Weights::kStash, Weights::kDoubleBuffer, Weights::kVerticalSync}) {
    if (name == Name(weights)) return weights;
    names.emplace_back(std::string(Name(weights)));
  }
  const std::string nearest = NearestName(name, names);
  return InvalidKey(
      "pipeline.weights",
      absl::StrCat("\"", name, "\" is not one of ", absl::StrJoin(names, ", "),
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

// What the method refuses whatever the number of stages.
absl::Status CheckMethod(const ResolvedJob& job) {
  if (job.stages_per_worker < StagesPerWorkerMin(job.method->placement)) {
    return InvalidKey("pipeline.stages_per_worker",
                      absl::StrCat("is ", job.stages_per_worker, ", but ", job.method->name,
                                   " needs two or more stages on each worker"));
  }
  if (job.stash == StashPlace::kHost && job.weights == Weights::kVerticalSync) {
    return InvalidKey(
        "training.stash",
        "cannot be host with pipeline.weights vertical-sync: every microbatch in flight "
        "reads another old version, so that all would be on the device again");
  }
  if (!job.method->synchronous && job.clip.kind == Clip::Kind::kGlobalNorm) {
    return InvalidKey(
        "training.clip.global_norm",
        absl::StrCat(job.method->name,
                     " updates every stage by itself, so no moment has the gradient of "
                     "the whole model; use training.clip.layer_norm or no clipping"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Topology> PlaceStages(const ResolvedJob& job, int64_t stages) {
  if (job.listed != nullptr) {
    Topology topology = job.listed->topology;
    topology.groups.clear();  // the model says what is shared
    return topology;
  }
  return Place(job.method->placement, static_cast<int32_t>(stages),
               static_cast<int32_t>(job.WorkersOf(stages)));
}

absl::Status CheckListedStages(const ResolvedJob& job, int64_t stages) {
  const Schedule& listed = *job.listed;
  if (stages != listed.topology.stages()) {
    return InvalidKey("pipeline.stages",
                      absl::StrCat("is ", stages, ", but pipeline.schedule_file lists ",
                                   listed.topology.stages(), " stages"));
  }
  if (listed.range.count != job.microbatches) {
    return InvalidKey("training.microbatches",
                      absl::StrCat("is ", job.microbatches, ", but pipeline.schedule_file lists ",
                                   listed.range.count, " microbatches"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResolvedJob> ResolveJob(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(CheckFields(spec));
  const v1::TrainingSpec& training = spec.training();
  ResolvedJob job;
  PENSTOCK_ASSIGN_OR_RETURN(job.chain, BuildChain(spec.model()));
  if (spec.pipeline().schedule_file().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(job.method, FindMethodOfJob(spec.pipeline().method()));
  } else {
    job.method = &ListedMethod();
    PENSTOCK_ASSIGN_OR_RETURN(job.listed, ReadListed(spec.pipeline()));
  }
  if (!spec.pipeline().weights().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(job.weights, WeightsOfJob(spec.pipeline().weights()));
  }
  job.stages_per_worker = spec.pipeline().has_stages_per_worker()
                              ? spec.pipeline().stages_per_worker()
                              : StagesPerWorkerMin(job.method->placement);
  if (spec.pipeline().order() == "recorded") job.order = Order::kRecorded;
  if (spec.pipeline().has_in_flight_factor()) {
    job.in_flight_factor = spec.pipeline().in_flight_factor();
  }
  job.steps = training.steps();
  job.batch = training.batch();
  job.microbatches = training.microbatches();
  job.microbatch = {.batch = training.batch() / training.microbatches(), .time = job.chain.context};
  job.optimizer = OptimizerOf(training.optimizer());
  job.learning_rate = LearningRateOf(training);
  job.clip = ClipOf(training.clip());
  job.precision = training.precision() == "bf16" ? Precision::kBf16 : Precision::kF32;
  job.rounding = training.rounding() == "stochastic" ? Rounding::kStochastic : Rounding::kNearest;
  job.stash = training.stash() == "host" ? StashPlace::kHost : StashPlace::kDevice;
  job.repeatability = training.deterministic() ? Repeatability::kBitwise : Repeatability::kFast;
  job.seed = training.seed();
  job.threads = training.threads();
  job.validation_batches = spec.validation().batches() * job.microbatches;
  PENSTOCK_RETURN_IF_ERROR(CheckMethod(job));
  PENSTOCK_RETURN_IF_ERROR(
      CheckStages(job, spec.pipeline().has_stages() ? spec.pipeline().stages() : job.StagesOn(1)));
  return job;
}

absl::Status CheckStages(const ResolvedJob& job, int64_t stages) {
  if (stages > job.chain.size()) {
    return InvalidKey(
        "pipeline.stages",
        absl::StrCat("is ", stages, ", but the model has only ", job.chain.size(),
                     " layers (embedding, attention and MLP of each block, final norm, "
                     "head) and every stage needs one"));
  }
  if (job.listed != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(CheckListedStages(job, stages));
  } else if (stages % job.stages_per_worker != 0) {
    const int64_t below = stages / job.stages_per_worker * job.stages_per_worker;
    return InvalidKey("pipeline.stages",
                      absl::StrCat("is ", stages, ", but every worker holds ",
                                   job.stages_per_worker, " stages (pipeline.stages_per_worker); ",
                                   below > 0 ? absl::StrCat(below, " or ") : "",
                                   below + job.stages_per_worker, " would do"));
  }
  const absl::StatusOr<Topology> topology = PlaceStages(job, stages);
  if (!topology.ok()) {
    return InvalidKey("pipeline.stages_per_worker",
                      absl::StrCat(job.method->name, ": ", topology.status().message()));
  }
  const ScheduleOptions options = ScheduleOptionsOf(job, *topology);
  if (!job.method->synchronous && !options.topology.groups.empty()) {
    return InvalidKey(
        "model.gpt.tied_head",
        absl::StrCat("must be false for ", job.method->name, " with ", stages,
                     " stages: the method updates every stage by itself, so the first "
                     "and the last cannot share the embedding's weight"));
  }
  const absl::Status step =
      CheckBuildable(*job.method, options, {.first = 0, .count = job.microbatches});
  if (step.ok()) return CheckRecordable(job, options);
  const bool too_long = job.microbatches > ListedMicrobatchesMax(options.topology.stages());
  return InvalidKey(too_long ? "training.microbatches" : "pipeline.method", step.message());
}

Topology TopologyOf(const ResolvedJob& job, int64_t stages) {
  return PlaceStages(job, stages).value();
}

ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology) {
  const int32_t last = topology.stages() - 1;
  if (job.chain.tied() && last > 0) {
    topology.groups.push_back({.stages = {StageId(0), StageId(last)}});
  }
  return {.topology = std::move(topology),
          .microbatches_per_step = job.microbatches,
          .weights = job.weights,
          .listed = job.listed,
          .global_norm = job.clip.kind == Clip::Kind::kGlobalNorm};
}

}  // namespace penstock
