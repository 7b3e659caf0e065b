#include "job/resolve.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/check_fields.h"
#include "job/suggest.h"
#include "model/gpt.h"

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

// What the method refuses whatever the number of stages.
absl::Status CheckMethod(const ResolvedJob& job) {
  if (!job.method->synchronous && job.clip.kind == Clip::Kind::kGlobalNorm) {
    return InvalidKey(
        "training.clip.global_norm",
        absl::StrCat(job.method->name,
                     " updates every stage by itself, so no moment has the gradient of "
                     "the whole model; use training.clip.layer_norm or no clipping"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResolvedJob> ResolveJob(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(CheckFields(spec));
  const v1::TrainingSpec& training = spec.training();
  ResolvedJob job;
  PENSTOCK_ASSIGN_OR_RETURN(job.chain, BuildChain(spec.model()));
  PENSTOCK_ASSIGN_OR_RETURN(job.method, FindMethodOfJob(spec.pipeline().method()));
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
  PENSTOCK_RETURN_IF_ERROR(CheckStages(job, std::max(1, spec.pipeline().stages())));
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
  const ScheduleOptions options =
      ScheduleOptionsOf(job, StraightPipeline(static_cast<int32_t>(stages)));
  if (!job.method->synchronous && !options.topology.groups.empty()) {
    return InvalidKey(
        "model.gpt.tied_head",
        absl::StrCat("must be false for ", job.method->name, " with ", stages,
                     " stages: the method updates every stage by itself, so the first "
                     "and the last cannot share the embedding's weight"));
  }
  const absl::Status step =
      CheckBuildable(*job.method, options, {.first = 0, .count = job.microbatches});
  const bool too_long = job.microbatches > ListedMicrobatchesMax(options.topology.stages());
  return step.ok()
             ? absl::OkStatus()
             : InvalidKey(too_long ? "training.microbatches" : "pipeline.method", step.message());
}

ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology) {
  const int32_t last = topology.stages() - 1;
  if (job.chain.tied() && last > 0) {
    topology.groups.push_back({.stages = {StageId(0), StageId(last)}});
  }
  return {.topology = std::move(topology),
          .microbatches_per_step = job.microbatches,
          .global_norm = job.clip.kind == Clip::Kind::kGlobalNorm};
}

}  // namespace penstock
