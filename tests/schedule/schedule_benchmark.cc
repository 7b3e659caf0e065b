// Benchmarks: Machine/Apply (one action of the rules, as the executor pays it), Verify/<method> (a
// range of 10^9 microbatches), Simulate/<method> (time for one action), Digest, RenderSvg.
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
