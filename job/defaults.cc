#include "job/defaults.h"

#include <algorithm>
#include <cmath>

#include "job/limits.h"
#include "job/resolve.h"

namespace penstock {
namespace {

// Of the Nesterov pipeline's paper, for 134 million parameters.
constexpr double kNesterovRate = 3e-4;

// Sets an absent `optional` field; the accessors of a message have no common type.
#define PENSTOCK_DEFAULT(message, field, value) \
  if (!(message).has_##field()) (message).set_##field(value)

void FillModel(v1::ModelSpec& model) {
  if (model.has_gpt()) {
    v1::GptSpec& gpt = *model.mutable_gpt();
    PENSTOCK_DEFAULT(gpt, vocabulary, 256);
    PENSTOCK_DEFAULT(gpt, dropout, 0.0);
    PENSTOCK_DEFAULT(gpt, tied_head, true);
  }
}

void FillData(v1::DataSpec& data) {
  if (data.has_text()) {
    v1::TextSpec& text = *data.mutable_text();
    if (text.tokenizer().empty()) {
      text.set_tokenizer("bytes");
    }
    PENSTOCK_DEFAULT(text, validation_fraction, 0.1);
  }
}

void FillOptimizer(v1::OptimizerSpec& optimizer) {
  if (optimizer.has_sgd()) {
    v1::SgdSpec& sgd = *optimizer.mutable_sgd();
    PENSTOCK_DEFAULT(sgd, momentum, 0.0);
    PENSTOCK_DEFAULT(sgd, weight_decay, 0.0);
  }
  if (optimizer.has_adamw()) {
    v1::AdamWSpec& adamw = *optimizer.mutable_adamw();
    PENSTOCK_DEFAULT(adamw, beta1, 0.9);
    PENSTOCK_DEFAULT(adamw, beta2, 0.95);
    PENSTOCK_DEFAULT(adamw, epsilon, 1e-8);
    PENSTOCK_DEFAULT(adamw, weight_decay, 0.1);
  }
  if (optimizer.has_nadamw()) {
    v1::NAdamWSpec& nadamw = *optimizer.mutable_nadamw();
    const NAdamWConfig defaults;
    PENSTOCK_DEFAULT(nadamw, beta1, defaults.beta1);
    PENSTOCK_DEFAULT(nadamw, beta2, defaults.beta2);
    PENSTOCK_DEFAULT(nadamw, epsilon, defaults.epsilon);
    PENSTOCK_DEFAULT(nadamw, weight_decay, defaults.weight_decay);
    PENSTOCK_DEFAULT(nadamw, momentum_decay, defaults.momentum_decay);
  }
  if (optimizer.has_muon()) {
    v1::MuonSpec& muon = *optimizer.mutable_muon();
    const MuonConfig defaults;
    PENSTOCK_DEFAULT(muon, momentum, defaults.momentum);
    PENSTOCK_DEFAULT(muon, beta1, defaults.adamw.beta1);
    PENSTOCK_DEFAULT(muon, beta2, defaults.adamw.beta2);
    PENSTOCK_DEFAULT(muon, epsilon, defaults.adamw.epsilon);
    PENSTOCK_DEFAULT(muon, weight_decay, defaults.adamw.weight_decay);
  }
}

// The update rules of the method's paper, where the job names none.
void FillUpdateRules(const UpdatePreset& preset, v1::TrainingSpec& training) {
  if (preset.optimizer == "nadamw" && training.optimizer().kind_case() == 0) {
    training.mutable_optimizer()->mutable_nadamw()->set_learning_rate(kNesterovRate);
  }
  v1::StalenessSpec& staleness = *training.mutable_staleness();
  const int64_t warmup = training.learning_rate().warmup_steps();
  const int64_t rescheduled = warmup > 0 ? 5 * warmup : training.steps() / 4;
  PENSTOCK_DEFAULT(staleness, rescheduled_steps,
                   preset.reschedules_rates ? std::clamp<int64_t>(rescheduled, 1, kStepsMax) : 0);
  if (preset.stage_momentum) PENSTOCK_DEFAULT(staleness, stage_momentum, 0.9);
  PENSTOCK_DEFAULT(staleness, delay_compensation, 0.0);
  PENSTOCK_DEFAULT(staleness, error_feedback, false);
  PENSTOCK_DEFAULT(staleness, motion_decay, std::exp(-2.0));
}

void FillTraining(v1::TrainingSpec& training) {
  FillOptimizer(*training.mutable_optimizer());
  v1::LearningRateSpec& rate = *training.mutable_learning_rate();
  PENSTOCK_DEFAULT(rate, warmup_steps, 0);
  PENSTOCK_DEFAULT(rate, final_fraction, 0.1);
  if (rate.decay().empty()) {
    rate.set_decay("constant");
  }
  if (training.precision().empty()) {
    training.set_precision("f32");
  }
  if (training.rounding().empty()) {
    training.set_rounding("nearest");
  }
  if (training.stash().empty()) {
    training.set_stash("device");
  }
  if (training.device_graphs().empty()) {
    training.set_device_graphs("off");
  }
  PENSTOCK_DEFAULT(training, threads, 1);
  PENSTOCK_DEFAULT(training, deterministic, true);
}

}  // namespace

void FillDefaultsOfAnyMethod(v1::JobSpec& spec) {
  FillModel(*spec.mutable_model());
  FillData(*spec.mutable_data());
  PENSTOCK_DEFAULT(*spec.mutable_validation(), batches, 8);
  PENSTOCK_DEFAULT(*spec.mutable_checkpoint(), keep, 2);
}

void FillDefaults(v1::JobSpec& spec) {
  FillDefaultsOfAnyMethod(spec);
  if (spec.pipeline().method().empty()) {
    const bool listed = !spec.pipeline().schedule_file().empty();
    spec.mutable_pipeline()->set_method(listed ? std::string(ListedMethod().name) : "1f1b");
  }
  if (spec.pipeline().order().empty()) spec.mutable_pipeline()->set_order("static");
  const absl::StatusOr<const Method*> method =
      FindMethod(absl::string_view(spec.pipeline().method()));
  FillUpdateRules(method.ok() ? (*method)->update : UpdatePreset(), *spec.mutable_training());
  FillTraining(*spec.mutable_training());
  PENSTOCK_DEFAULT(*spec.mutable_pipeline(), synchronous_steps, 0);
  if (const int listed = spec.pipeline().stage_layers_size(); listed > 0) {
    PENSTOCK_DEFAULT(*spec.mutable_pipeline(), stages, listed);
  }
  v1::FeedbackSpec& feedback = *spec.mutable_feedback();
  PENSTOCK_DEFAULT(feedback, drift_bound, 0.2);
  PENSTOCK_DEFAULT(feedback, drift_steps, 50);
  if (feedback.replan().empty()) feedback.set_replan("never");
}

#undef PENSTOCK_DEFAULT

void SetMethod(const std::string& method, bool keeps_optimizer, v1::JobSpec& spec) {
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  if (pipeline.method() != method) spec.clear_prediction();
  pipeline.set_method(method);
  pipeline.clear_schedule_file();
  pipeline.clear_schedule();
  const absl::StatusOr<const Method*> found = FindMethod(absl::string_view(method));
  if (keeps_optimizer || !found.ok() || (*found)->update.optimizer != "nadamw") return;
  v1::OptimizerSpec& optimizer = *spec.mutable_training()->mutable_optimizer();
  if (optimizer.has_nadamw() || optimizer.kind_case() == 0) return;
  const double rate = PeakRateOf(optimizer);
  optimizer.mutable_nadamw()->set_learning_rate(rate);
}

absl::Status ValidateJob(const v1::JobSpec& spec) { return ResolveJob(spec).status(); }

}  // namespace penstock
