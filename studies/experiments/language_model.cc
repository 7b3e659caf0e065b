#include "studies/experiments/language_model.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/defaults.h"
#include "job/resolve.h"

namespace penstock {
namespace {

constexpr int kLayersOfBlock = 2;  // attention and MLP
constexpr int kLayersOfEnd = 2;    // final norm and head

LocalSgdShape ShapeOf(const LanguageModelStudy& study, const LanguageModelMethod& method) {
  return {study.stages(), study.stages(), method.local_steps};
}

// With as many replicas as stages.
int64_t RoundTicks(const LanguageModelStudy& study, const LanguageModelMethod& method) {
  return 2 * study.stages() * method.local_steps + 2 * (study.stages() - 1);
}

int64_t Rounds(const LanguageModelStudy& study, const LanguageModelMethod& method) {
  return study.ticks() / RoundTicks(study, method);
}

absl::Status CheckRounds(const LanguageModelStudy& study) {
  for (const LanguageModelMethod& method : MethodsOf(study)) {
    if (method.is_pipedream() || Rounds(study, method) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "microbatches: is ", study.microbatches, ", which PipeDream trains in ", study.ticks(),
        " ticks, but a round of ", method.label(), " takes ", RoundTicks(study, method),
        "; give at least ", study.stages() * method.local_steps));
  }
  return absl::OkStatus();
}

}  // namespace

std::string LanguageModelMethod::name() const { return is_pipedream() ? "pipedream" : "local-sgd"; }

std::string LanguageModelMethod::label() const {
  return is_pipedream() ? "PipeDream" : absl::StrCat("LocalSGD H = ", local_steps);
}

std::vector<LanguageModelMethod> MethodsOf(const LanguageModelStudy& study) {
  std::vector<LanguageModelMethod> methods = {{}};
  for (const int64_t local_steps : study.local_steps) methods.push_back({local_steps});
  return methods;
}

absl::Status CheckLanguageModel(const LanguageModelStudy& study) {
  if (study.microbatches < 1 || study.microbatches > kLanguageModelMicrobatchesMax) {
    return absl::InvalidArgumentError(absl::StrCat("microbatches: is ", study.microbatches,
                                                   "; expected a whole number from 1 to ",
                                                   kLanguageModelMicrobatchesMax));
  }
  if (study.local_steps.empty()) {
    return absl::InvalidArgumentError("local steps: there are none; expected at least one number");
  }
  for (const int64_t local_steps : study.local_steps) {
    if (local_steps >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("local steps: is ", local_steps, "; expected at least 1"));
  }
  if (study.learning_rates.empty()) {
    return absl::InvalidArgumentError("learning rates: there is none; expected at least one");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRounds(study));
  for (const LanguageModelMethod& method : MethodsOf(study)) {
    for (const double rate : study.learning_rates) {
      PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(JobOf(study, method, rate)));
      PENSTOCK_RETURN_IF_ERROR(CheckStages(job, study.stages()));
    }
  }
  return absl::OkStatus();
}

int64_t MicrobatchesOf(const LanguageModelStudy& study, const LanguageModelMethod& method) {
  if (method.is_pipedream()) return study.microbatches;
  return Rounds(study, method) * ShapeOf(study, method).round();
}

absl::StatusOr<TickSequence> SequenceOf(const LanguageModelStudy& study,
                                        const LanguageModelMethod& method) {
  if (method.is_pipedream()) return PipeDreamSequence(study.stages(), study.microbatches);
  return LocalSgdSequence(ShapeOf(study, method), MicrobatchesOf(study, method));
}

v1::JobSpec JobOf(const LanguageModelStudy& study, const LanguageModelMethod& method,
                  double learning_rate) {
  v1::JobSpec spec;
  spec.set_name("language-model");
  v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
  gpt.set_layers(study.blocks);
  gpt.set_width(study.width);
  gpt.set_heads(study.heads);
  gpt.set_context(study.context);
  gpt.set_vocabulary(study.vocabulary);
  gpt.set_tied_head(false);
  spec.mutable_model()->set_init("pytorch");
  v1::TextSpec& text = *spec.mutable_data()->mutable_text();
  text.set_path(study.text_path);
  text.set_sha256(study.text_sha256);
  text.set_tokenizer(kCharacterTokenizer);
  text.set_order(kBlockOrder);
  text.set_validation_fraction(0.0);  // the study looks at the training loss

  // A step is what goes between two drains: a round of LocalSGD. PipeDream has none before its end, and one
  // microbatch in a step.
  const int64_t of_step = method.is_pipedream() ? 1 : ShapeOf(study, method).round();
  v1::TrainingSpec& training = *spec.mutable_training();
  training.set_steps(MicrobatchesOf(study, method) / of_step);
  training.set_batch(of_step * study.batch);
  training.set_microbatches(of_step);
  training.mutable_optimizer()->mutable_sgd()->set_learning_rate(learning_rate);
  training.set_seed(study.seed);
  training.set_threads(1);  // its sums do not depend on how many runs there are at a time
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.set_method(method.name());
  pipeline.set_stages(study.stages());
  if (!method.is_pipedream()) {
    pipeline.add_replicas(study.stages());
    pipeline.set_local_steps(static_cast<int32_t>(method.local_steps));
  }
  FillDefaults(spec);
  return spec;
}

std::vector<LayerRange> StagesOf(const LanguageModelStudy& study) {
  std::vector<LayerRange> stages = {{0, 1}};
  for (int64_t block = 0; block < study.blocks; ++block) {
    stages.push_back({stages.back().end(), kLayersOfBlock});
  }
  stages.push_back({stages.back().end(), kLayersOfEnd});
  return stages;
}

}  // namespace penstock
