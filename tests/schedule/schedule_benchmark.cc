// Benchmarks: Machine/Apply (one action of the rules, as the executor pays it), Verify/<method> (a
// range of 10^9 microbatches), Simulate/<method> (time for one action), SimulateStages (by stages),
// Digest, RenderSvg.
#include <benchmark/benchmark.h>

#include "schedule/catalog/catalog.h"
#include "schedule/digest.h"
#include "schedule/render_svg.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

Schedule MakeSchedule(absl::string_view method, MicrobatchRange range) {
  const ScheduleOptions options{.topology = StraightPipeline(8), .microbatches_per_step = 16};
  return BuildSchedule(**FindMethod(method), options, range).value();
}

void MachineApply(benchmark::State& state) {
  const Schedule schedule = MakeSchedule("pipedream", {0, int64_t{1} << 40});
  Machine machine(schedule.topology, WorkerId(3), schedule.weight_policy);
  ProgramCursor cursor(schedule.programs[3]);
  for (auto _ : state) {
    benchmark::DoNotOptimize(machine.Apply(cursor.Current()));
    cursor.Advance();
  }
}
BENCHMARK(MachineApply);

void VerifyBillion(benchmark::State& state, absl::string_view method) {
  const Schedule schedule = MakeSchedule(method, {0, 1'000'000'000});
  for (auto _ : state) benchmark::DoNotOptimize(Verify(schedule));
}
BENCHMARK_CAPTURE(VerifyBillion, 1f1b, "1f1b");
BENCHMARK_CAPTURE(VerifyBillion, pipedream, "pipedream");

void SimulateAction(benchmark::State& state, absl::string_view method) {
  const Schedule schedule = MakeSchedule(method, {0, 16'000});
  int64_t actions = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Simulate(schedule, {}));
    for (const Program& program : schedule.programs) actions += program.size();
  }
  state.SetItemsProcessed(actions);
}
BENCHMARK_CAPTURE(SimulateAction, 1f1b, "1f1b");
BENCHMARK_CAPTURE(SimulateAction, pipedream, "pipedream");

// 8 microbatches a stage: the cost of an action must not grow with the stages.
void SimulateStages(benchmark::State& state) {
  const auto stages = static_cast<int32_t>(state.range(0));
  const ScheduleOptions options{.topology = StraightPipeline(stages),
                                .microbatches_per_step = 8 * int64_t{stages}};
  const Schedule schedule =
      BuildSchedule(**FindMethod("pipedream"), options, {0, options.microbatches_per_step}).value();
  int64_t actions = 0;
  for (auto _ : state) {
    const absl::StatusOr<SimulationResult> result = Simulate(schedule, {});
    if (!result.ok()) state.SkipWithError(std::string(result.status().message()).c_str());
    for (const Program& program : schedule.programs) actions += program.size();
  }
  state.SetItemsProcessed(actions);
}
BENCHMARK(SimulateStages)->RangeMultiplier(4)->Range(4, 1024)->Unit(benchmark::kMillisecond);

void Digest(benchmark::State& state) {
  const Schedule schedule = MakeSchedule("1f1b", {0, 16'000'000});
  for (auto _ : state) benchmark::DoNotOptimize(DigestOf(schedule));
}
BENCHMARK(Digest);

void Svg(benchmark::State& state) {
  const Timeline timeline = Simulate(MakeSchedule("1f1b", {0, 16 * state.range(0)}), {},
                                     {.timeline_spans_max = 1'000'000})
                                ->timeline;
  for (auto _ : state) benchmark::DoNotOptimize(RenderSvg(timeline));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(timeline.spans.size()));
}
BENCHMARK(Svg)->Arg(1)->Arg(100);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
