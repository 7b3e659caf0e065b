#include "tests/worker/test_job.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"

namespace penstock {

std::string TestText(int64_t size_bytes) {
  RandomStream random(/*seed=*/42, /*purpose=*/0);
  const std::vector<std::string> words = {"the ",   "river ", "turns ", "a ",
                                          "wheel ", "under ", "high ",  "pressure. "};
  std::string text;
  while (static_cast<int64_t>(text.size()) < size_bytes) text += words[random.Below(words.size())];
  text.resize(size_bytes);
  return text;
}

v1::JobSpec SmallJob(const std::string& method) {
  v1::JobSpec spec;
  spec.set_name("small");
  v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
  gpt.set_layers(2);
  gpt.set_width(16);
  gpt.set_heads(2);
  gpt.set_context(8);
  gpt.set_tied_head(false);
  spec.mutable_data()->mutable_text()->set_path(kTextPath);
  v1::TrainingSpec& training = *spec.mutable_training();
  training.set_steps(3);
  training.set_batch(8);
  training.set_microbatches(4);
  training.mutable_optimizer()->mutable_adamw()->set_learning_rate(0.01);
  training.mutable_learning_rate()->set_warmup_steps(1);
  training.mutable_learning_rate()->set_decay("cosine");
  training.set_seed(7);
  spec.mutable_pipeline()->set_method(method);
  FillDefaults(spec);
  return spec;
}

absl::Span<const StalenessCase> StalenessCases() {
  static constexpr StalenessCase kCases[] = {
      {"nadamw", "pipedream",
       [](v1::JobSpec& spec) {
         spec.mutable_training()->mutable_optimizer()->mutable_nadamw()->set_learning_rate(0.01);
         FillDefaults(spec);
       }},
      {"rescheduled_steps", "pipedream",
       [](v1::JobSpec& spec) {
         spec.mutable_training()->mutable_staleness()->set_rescheduled_steps(3);
       }},
      {"stage_momentum", "pipedream",
       [](v1::JobSpec& spec) {
         spec.mutable_training()->mutable_staleness()->set_stage_momentum(0.5);
       }},
      {"delay_compensation", "pipedream",
       [](v1::JobSpec& spec) {
         spec.mutable_training()->mutable_staleness()->set_delay_compensation(10.0);
       }},
      {"adaptive_compensation", "pipedream",
       [](v1::JobSpec& spec) {
         v1::StalenessSpec& staleness = *spec.mutable_training()->mutable_staleness();
         staleness.set_delay_compensation(10.0);
         staleness.set_adaptive_compensation(true);
       }},
      {"error_feedback", "pipedream-2bw",
       [](v1::JobSpec& spec) {
         spec.mutable_training()->mutable_staleness()->set_error_feedback(true);
       }},
      {"muon", "pipedream",
       [](v1::JobSpec& spec) {
         spec.mutable_training()->mutable_optimizer()->mutable_muon()->set_learning_rate(0.01);
         FillDefaults(spec);
       }},
      {"synchronous_steps", "pipedream",
       [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_synchronous_steps(2); }},
  };
  return kCases;
}

ModelGraph ChainOf(const v1::JobSpec& spec) {
  const auto job = ResolveJob(spec);
  PENSTOCK_CHECK(job.ok());
  return job->model;
}

std::vector<LayerRange> SplitInto(absl::Span<const int> counts) {
  std::vector<LayerRange> layers;
  int first = 0;
  for (int count : counts) {
    layers.push_back({first, count});
    first += count;
  }
  return layers;
}

std::vector<LayerRange> RandomSplit(int layers, int stages, std::mt19937& random) {
  std::vector<int> counts(stages, 1);
  for (int left = layers - stages; left > 0; --left) ++counts[random() % stages];
  return SplitInto(counts);
}

std::vector<LayerRange> EvenSplit(int layers, int stages) {
  std::vector<int> counts;
  counts.reserve(stages);
  for (int s = 0; s < stages; ++s)
    counts.push_back(layers * (s + 1) / stages - layers * s / stages);
  return SplitInto(counts);
}

std::vector<std::vector<LayerRange>> AllSplits(int layers, int stages) {
  std::vector<std::vector<LayerRange>> splits;
  std::vector<int> counts;
  const std::function<void(int)> extend = [&](int left) {
    const int stages_left = stages - static_cast<int>(counts.size());
    if (stages_left == 1) {
      counts.push_back(left);
      splits.push_back(SplitInto(counts));
      counts.pop_back();
      return;
    }
    for (int count = 1; count <= left - (stages_left - 1); ++count) {
      counts.push_back(count);
      extend(left - count);
      counts.pop_back();
    }
  };
  extend(layers);
  return splits;
}

std::vector<int> WorkersOfStages(const v1::JobSpec& spec, int stages) {
  std::vector<int> workers;
  const auto job = ResolveJob(spec);
  if (job.ok() && CheckStages(*job, stages).ok()) {
    for (const StageWiring& stage : TopologyOf(*job, stages).table) {
      workers.push_back(stage.worker.value);
    }
  } else {
    for (int s = 0; s < stages; ++s) workers.push_back(s);
  }
  return workers;
}

v1::PrepareRunRequest MakeRequest(const v1::JobSpec& spec, absl::Span<const LayerRange> layers,
                                  int worker_index, int64_t first_step,
                                  const std::vector<int64_t>& extra_cuts) {
  v1::PrepareRunRequest request;
  request.set_job_id("job");
  request.set_epoch(1);
  *request.mutable_spec() = spec;
  request.set_worker_index(worker_index);
  request.set_first_step(first_step);
  request.mutable_extra_cuts()->Add(extra_cuts.begin(), extra_cuts.end());
  request.set_staging_tag("job-1");
  v1::Plan& plan = *request.mutable_plan();
  plan.set_method(spec.pipeline().method());
  const int stages = static_cast<int>(layers.size());
  const std::vector<int> worker_of_stage = WorkersOfStages(spec, stages);
  const int all_stages = static_cast<int>(worker_of_stage.size());
  const auto job = ResolveJob(spec);
  const bool fits = job.ok() && CheckStages(*job, stages).ok();
  Topology topology = fits ? TopologyOf(*job, stages) : StraightPipeline(all_stages);
  if (topology.pipelines > 1) plan.set_pipelines(topology.pipelines);
  // There and back the inputs of a round wait for their backwards.
  plan.set_channel_capacity(std::max<int64_t>(2, topology.rounds.microbatches));
  for (int s = 0; s < all_stages; ++s) {
    const int part = fits ? topology[StageId(s)].part : s % stages;
    v1::StageAssignment& stage = *plan.add_stages();
    stage.set_stage(s);
    stage.set_worker_index(worker_of_stage[s]);
    stage.set_worker(absl::StrCat("worker-", worker_of_stage[s]));
    stage.set_first_layer(layers[part].first);
    stage.set_layers(layers[part].count);
  }
  if (!fits) return request;
  const auto digest = DigestOfRun(*job, ScheduleOptionsOf(*job, std::move(topology), layers),
                                  first_step, CutsOf(spec, first_step, extra_cuts));
  if (digest.ok()) plan.set_schedule_digest(*digest);
  return request;
}

}  // namespace penstock
