#include "tests/job/jobs.h"

#include "base/check.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"

namespace penstock {

std::string GoodJobWith(const std::string& from, const std::string& to) {
  std::string text = kGoodJobYaml;
  const size_t place = text.find(from);
  PENSTOCK_CHECK(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

v1::JobSpec GoodJob() {
  const absl::StatusOr<v1::JobSpec> job = ParseJobYaml(kGoodJobYaml, "good.yaml");
  PENSTOCK_CHECK(job.ok());
  return *job;
}

v1::JobSpec SmallJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec;
  spec.set_name("small");
  v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
  gpt.set_layers(2);
  gpt.set_width(8);
  gpt.set_heads(2);
  gpt.set_context(16);
  spec.mutable_data()->mutable_text()->set_path("a.txt");
  v1::TrainingSpec& training = *spec.mutable_training();
  training.set_steps(steps);
  training.set_batch(8);
  training.set_microbatches(4);
  training.mutable_optimizer()->mutable_adamw()->set_learning_rate(0.01);
  if (stages > 0) {
    spec.mutable_pipeline()->set_stages(stages);
  }
  spec.mutable_planning()->set_split("estimated");
  FillDefaults(spec);
  return spec;
}

v1::JobSpec SavedJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec = SmallJob(steps, stages);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  return spec;
}

v1::JobSpec OftenSavedJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec = SavedJob(steps, stages);
  spec.mutable_checkpoint()->set_every_steps(2);
  return spec;
}

void PredictOnEqualWorkers(v1::JobSpec& spec, double step_s) {
  v1::PredictionSpec& prediction = *spec.mutable_prediction();
  prediction.set_step_seconds(step_s);
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  PENSTOCK_CHECK(job.ok());
  for (const LayerSpec& layer : job->model.layers) {
    v1::LayerTimes& times = *prediction.mutable_times()->add_layers();
    times.set_layer(layer.name);
    times.mutable_times()->set_forward_ms(1.0);
    times.mutable_times()->set_backward_input_ms(1.0);
    times.mutable_times()->set_backward_weight_ms(1.0);
  }
}

}  // namespace penstock
