// How long the plan of a job takes as workers, blocks and methods grow.
#include <benchmark/benchmark.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "compute/device.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "job/yaml/yaml_message.h"
#include "planner/job/plan_job.h"
#include "worker/layer_profiler.h"

namespace penstock {
namespace {

v1::JobSpec Job(int64_t blocks) {
  const std::string text = absl::StrCat("model: {gpt: {layers: ", blocks,
                                        ", width: 32, heads: 2, context: 32, tied_head: false}}\n"
                                        "data: {text: {path: input.txt, tokenizer: bytes}}\n"
                                        "training: {steps: 400, batch: 64, microbatches: 16, "
                                        "optimizer: {adamw: {learning_rate: 1.0e-3}}}\n"
                                        "name: planned\n");
  v1::JobSpec spec;
  YamlPositions positions;
  PENSTOCK_CHECK(ReadYamlMessage(text, "job.yaml", spec, positions).ok());
  return spec;
}

v1::ModelProfile Profile(const v1::JobSpec& written) {
  v1::JobSpec spec = written;
  FillDefaults(spec);
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  PENSTOCK_CHECK(job.ok());
  const auto backend = MakeBackendOn({.kind = Device::Kind::kCpu}, 1);
  PENSTOCK_CHECK(backend.ok());
  absl::StatusOr<v1::ModelProfile> profile =
      ProfileLayers(**backend, job->model,
                    {.samples = {1, 2, 4, 8},
                     .precision = job->precision,
                     .optimizer = job->optimizer,
                     .seconds = 0.01},
                    RealClock(), [](const ProfilerProgress&) { return absl::OkStatus(); });
  PENSTOCK_CHECK(profile.ok());
  return *std::move(profile);
}

void PlanJobs(benchmark::State& state) {
  PlanningInput input = {.spec = Job(state.range(1))};
  input.profile = Profile(input.spec);
  input.cluster = UniformCluster(static_cast<int>(state.range(0)), 1, 1.25e9, 1.25e9);
  PlanJobOptions options;
  for (const Method& method : Methods()) {
    if (static_cast<int64_t>(options.methods.size()) == state.range(2)) break;
    options.methods.emplace_back(method.name);
  }
  JobPlan plan;
  for (auto _ : state) {
    TimeBudget budget(RealClock(), absl::Seconds(10));
    absl::StatusOr<JobPlan> planned = PlanJob(input, options, budget);
    PENSTOCK_CHECK(planned.ok());
    plan = *std::move(planned);
  }
  state.counters["candidates"] = static_cast<double>(plan.candidates.size());
  state.counters["in_time"] = plan.in_time ? 1 : 0;
  state.counters["step_ms"] = plan.candidates[*plan.fastest].step_s * 1e3;
}
BENCHMARK(PlanJobs)
    ->ArgNames({"workers", "blocks", "methods"})
    ->ArgsProduct({{4, 16, 64}, {8, 32}, {4, 19}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
