#include "tests/planner/job/planning_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "job/defaults.h"
#include "job/profile/model_profile.h"
#include "job/resolve.h"
#include "job/yaml/yaml_message.h"
#include "model/describe.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"

namespace penstock {

const char kPlannedJob[] = R"(name: planned
model:
  gpt: {layers: 3, width: 16, heads: 2, context: 8, tied_head: false}
data:
  text: {path: input.txt, tokenizer: bytes}
training:
  steps: 100
  batch: 32
  microbatches: 8
  optimizer: {adamw: {learning_rate: 1.0e-3}}
)";

namespace {

v1::ModelProfile ProfileOf(const v1::JobSpec& written, const std::map<std::string, double>& slow) {
  v1::JobSpec spec = written;
  FillDefaults(spec);
  const ModelGraph model = ResolveJob(spec)->model;
  v1::ModelProfile profile;
  profile.set_precision("f32");
  profile.set_optimizer("adamw");
  profile.set_time_steps(model.targets_per_sample());
  SetLayers(model, Precision::kF32, profile);
  for (const LayerSpec& layer : model.layers) {
    const std::string shape = DescribeWork(model, layer);
    const auto known =
        std::find_if(profile.shapes().begin(), profile.shapes().end(),
                     [&](const v1::ShapeProfile& other) { return other.shape() == shape; });
    if (known != profile.shapes().end()) continue;
    const auto factor = slow.find(layer.name);
    const double ms = factor == slow.end() ? 1.0 : factor->second;
    v1::ShapeProfile& of_shape = *profile.add_shapes();
    of_shape.set_shape(shape);
    of_shape.set_weight_bytes(1'000);
    of_shape.set_gradient_bytes(1'000);
    of_shape.set_optimizer_bytes(2'000);
    for (const int64_t samples : {1, 2, 4, 8}) {
      v1::SizeProfile& size = *of_shape.add_sizes();
      size.set_samples(samples);
      const double of_size = ms * static_cast<double>(samples) / 4.0;
      size.mutable_forward()->set_ms(of_size);
      size.mutable_backward_input()->set_ms(of_size);
      size.mutable_backward_weight()->set_ms(of_size);
      for (int node = 0; node < layer.node_count; ++node) {
        size.add_nodes()->set_stash_bytes(samples * 1024);
      }
    }
  }
  return profile;
}

}  // namespace

TimeBudget& Unlimited() {
  static TickingClock clock(0);
  static TimeBudget budget(clock, absl::Hours(1));
  return budget;
}

Cluster Alike(int workers) { return UniformCluster(1, workers, kInfinity, kInfinity); }

PlanningInput InputOf(const std::string& job, Cluster cluster,
                      const std::map<std::string, double>& slow) {
  PlanningInput input;
  v1::JobSpec spec;
  YamlPositions positions;
  EXPECT_THAT(ReadYamlMessage(job, "job.yaml", spec, positions), IsOk());
  input.profile = ProfileOf(spec, slow);
  input.spec = std::move(spec);
  input.cluster = std::move(cluster);
  return input;
}

}  // namespace penstock
