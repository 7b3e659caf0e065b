// Jobs that the tests start from.
#pragma once

#include <string>

#include "penstock/v1/job.pb.h"

namespace penstock {

// A complete, valid job file: 6 blocks, so 15 layers; batch 32 in 8 microbatches.
inline constexpr char kGoodJobYaml[] = R"(name: shakespeare
model:
  gpt: {layers: 6, width: 192, heads: 6, context: 128}
data:
  text: {path: input.txt, tokenizer: bytes, validation_fraction: 0.1}
training:
  steps: 400
  batch: 32                # sequences per step, all microbatches together
  microbatches: 8
  optimizer: {adamw: {learning_rate: 1.0e-3, weight_decay: 0.1}}
  learning_rate: {warmup_steps: 20, decay: cosine}
  clip: {global_norm: 1.0}
  precision: f32
  seed: 1
validation: {every_steps: 100, batches: 20}
pipeline:
  method: 1f1b
  stages: 4
checkpoint: {every_steps: 150, directory: checkpoints/}
)";

// kGoodJobYaml with `from`, which must occur in it, replaced by `to`.
std::string GoodJobWith(const std::string& from, const std::string& to);

// kGoodJobYaml, parsed.
v1::JobSpec GoodJob();

// A job whose stages can be two layers fine, with its defaults: `steps` steps, 4 microbatches. 0 stages: as many as
// there are workers.
v1::JobSpec SmallJob(int64_t steps, int32_t stages);
// The same, saved in /ckpt at its end, or every second step, too.
v1::JobSpec SavedJob(int64_t steps, int32_t stages);
v1::JobSpec OftenSavedJob(int64_t steps, int32_t stages);

// Predicts steps of `step_s` for `spec`, which says its stages, on workers that all take 1 ms for each pass of a layer.
void PredictOnEqualWorkers(v1::JobSpec& spec, double step_s);

}  // namespace penstock
