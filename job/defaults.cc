#include "job/defaults.h"

#include "job/resolve.h"

namespace penstock {
namespace {

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
  PENSTOCK_DEFAULT(training, threads, 1);
  PENSTOCK_DEFAULT(training, deterministic, true);
}

}  // namespace

void FillDefaults(v1::JobSpec& spec) {
  FillModel(*spec.mutable_model());
  FillData(*spec.mutable_data());
  FillTraining(*spec.mutable_training());
  PENSTOCK_DEFAULT(*spec.mutable_validation(), batches, 8);
  if (spec.pipeline().method().empty()) {
    const bool listed = !spec.pipeline().schedule_file().empty();
    spec.mutable_pipeline()->set_method(listed ? std::string(ListedMethod().name) : "1f1b");
  }
  if (spec.pipeline().order().empty()) spec.mutable_pipeline()->set_order("static");
  PENSTOCK_DEFAULT(*spec.mutable_checkpoint(), keep, 2);
}

#undef PENSTOCK_DEFAULT

absl::Status ValidateJob(const v1::JobSpec& spec) { return ResolveJob(spec).status(); }

}  // namespace penstock
