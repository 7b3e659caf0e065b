// How long planning takes as layers and workers grow, and on the published profiles.
//
// Synthetic graphs: a chain; and cells as in NASNet, five branches of eight layers each between two
// shared inputs and a sum, whose cuts are too many to list.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/random.h"
#include "planner/graph/pipedream_profile.h"
#include "planner/graph/placement_planner.h"
#include "planner/graph/stage_planner.h"

namespace penstock {
namespace {

constexpr double kTenGigabits = 1.25e9;  // bytes per second

LayerNode RandomLayer(RandomStream& random, int index) {
  return {.id = "node" + std::to_string(index),
          .forward_s = 1e-3 * (0.2 + random.Uniform()),
          .backward_s = 1e-3 * (0.2 + random.Uniform()),
          .activation_bytes = 1e6 * (1 + 9 * random.Uniform()),
          .parameter_bytes = 1e6 * random.Uniform()};
}

LayerGraph Chain(int layers) {
  RandomStream random(1, 1);
  std::vector<LayerNode> nodes;
  nodes.reserve(layers);
  for (int index = 0; index < layers; ++index) nodes.push_back(RandomLayer(random, index));
  return ChainGraph(std::move(nodes));
}

LayerGraph Cells(int layers) {
  constexpr int kBranches = 5;
  constexpr int kBranchLayers = 8;
  RandomStream random(1, 2);
  LayerGraph graph;
  const auto add = [&] {
    graph.nodes.push_back(RandomLayer(random, static_cast<int>(graph.nodes.size())));
    return static_cast<int>(graph.nodes.size()) - 1;
  };
  int before = add();
  int last = add();
  graph.edges.push_back({before, last});
  while (static_cast<int>(graph.nodes.size()) + kBranches * kBranchLayers < layers) {
    std::vector<int> ends;
    for (int branch = 0; branch < kBranches; ++branch) {
      int end = branch % 2 == 0 ? last : before;
      for (int layer = 0; layer < kBranchLayers; ++layer) {
        const int next = add();
        graph.edges.push_back({end, next});
        end = next;
      }
      ends.push_back(end);
    }
    const int sum = add();
    for (const int end : ends) graph.edges.push_back({end, sum});
    before = last;
    last = sum;
  }
  return graph;
}

LayerGraph Published(const std::string& name) {
  const std::string path =
      JoinPath(PENSTOCK_SOURCE_DIR, "tests/planner/graph/profiles/" + name + ".txt");
  const auto text = RealFiles().Read(path, kPipeDreamProfileBytesMax);
  PENSTOCK_CHECK(text.ok());
  const auto profile = ParsePipeDreamProfile(*text);
  PENSTOCK_CHECK(profile.ok());
  return WithoutInputsAndUnreadItems(*profile).graph;
}

void Plan(benchmark::State& state, const LayerGraph& graph, const StagePlanRequest& request) {
  StagePlan plan;
  for (auto _ : state) {
    TimeBudget budget(RealClock(), absl::Minutes(5));
    absl::StatusOr<StagePlan> planned = PlanStages(graph, request, budget);
    PENSTOCK_CHECK(planned.ok());
    plan = *std::move(planned);
  }
  state.counters["period_ms"] = plan.period_s * 1e3;
  state.counters["gap_percent"] = (plan.period_s / plan.lower_bound_s - 1) * 100;
  state.counters["cuts"] = plan.cuts_examined;
}

void PlanChain(benchmark::State& state) {
  const LayerGraph graph = Chain(static_cast<int>(state.range(0)));
  Plan(state, graph, FlatRequest(static_cast<int>(state.range(1)), ConsistentModel(kTenGigabits)));
}
BENCHMARK(PlanChain)
    ->ArgNames({"layers", "workers"})
    ->ArgsProduct({{50, 500, 2000}, {4, 64, 1024}})
    ->Unit(benchmark::kMillisecond);

void PlanCells(benchmark::State& state) {
  const LayerGraph graph = Cells(static_cast<int>(state.range(0)));
  Plan(state, graph, FlatRequest(static_cast<int>(state.range(1)), ConsistentModel(kTenGigabits)));
}
BENCHMARK(PlanCells)
    ->ArgNames({"layers", "workers"})
    ->ArgsProduct({{500, 2000}, {4, 64, 1024}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void PlanRaw(benchmark::State& state, const std::string& name) {
  const LayerGraph graph = Published(name);
  const double bandwidth = 1.25e8 * static_cast<double>(state.range(1));
  Plan(state, graph,
       FlatRequest(static_cast<int>(state.range(0)), PipeDreamReleasedModel(bandwidth, true)));
}
#define PLAN_RAW(name)                      \
  BENCHMARK_CAPTURE(PlanRaw, name, #name)   \
      ->ArgNames({"workers", "gigabits"})   \
      ->ArgsProduct({{4, 8, 16}, {10, 25}}) \
      ->Iterations(1)                       \
      ->Unit(benchmark::kMillisecond)
PLAN_RAW(inception_v3);
PLAN_RAW(nasnetamobile);
PLAN_RAW(nasnetalarge);

void PlanLevels(benchmark::State& state, const std::string& name) {
  const LayerGraph graph = Published(name);
  const double bandwidth = 1.25e8 * static_cast<double>(state.range(1));
  const StagePlanRequest request = {
      .levels = {{4, PipeDreamReleasedModel(12e9, true)},
                 {static_cast<int>(state.range(0)), PipeDreamReleasedModel(bandwidth, true)}},
      .cuts = CutRule::kAntichains};
  Plan(state, graph, request);
}
#define PLAN_LEVELS(name)                    \
  BENCHMARK_CAPTURE(PlanLevels, name, #name) \
      ->ArgNames({"hosts", "gigabits"})      \
      ->ArgsProduct({{2, 4}, {10, 25}})      \
      ->Iterations(1)                        \
      ->Unit(benchmark::kMillisecond)
PLAN_LEVELS(resnet101);
PLAN_LEVELS(densenet121);
PLAN_LEVELS(gnmt_large);
PLAN_LEVELS(inception_v3_compressed);

// Counts what this process computes, so that a budget lasts as long beside other programs as alone.
class CpuClock final : public Clock {
 public:
  int64_t MonotonicNs() override {
    timespec time;
    PENSTOCK_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  absl::Time WallTime() override { return RealClock().WallTime(); }
};

// Hosts of eight workers that share a NIC, within the ten seconds of `penstock plan`.
void Place(benchmark::State& state, const LayerGraph& graph, int workers) {
  const PlacementRequest request = {
      .cluster = UniformCluster(std::max(1, workers / 8), std::min(workers, 8), kTenGigabits, 12e9),
      .memory = GuessMemory(graph, 2)};
  CpuClock clock;
  StagePlan plan;
  for (auto _ : state) {
    TimeBudget budget(clock, absl::Seconds(10));
    absl::StatusOr<StagePlan> planned = PlanPlacement(graph, request, budget);
    PENSTOCK_CHECK(planned.ok());
    plan = *std::move(planned);
  }
  state.counters["period_ms"] = plan.period_s * 1e3;
  state.counters["gap_percent"] = (plan.period_s / plan.lower_bound_s - 1) * 100;
  state.counters["in_time"] = plan.in_time ? 1 : 0;
}

void PlacePlan(benchmark::State& state) {
  Place(state, Chain(static_cast<int>(state.range(0))), static_cast<int>(state.range(1)));
}
BENCHMARK(PlacePlan)
    ->ArgNames({"layers", "workers"})
    ->ArgsProduct({{50, 500, 2000}, {4, 16, 64, 256, 1024}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void PlaceProfile(benchmark::State& state, const std::string& name) {
  Place(state, Published(name), static_cast<int>(state.range(0)));
}
#define PLACE_PROFILE(name)                    \
  BENCHMARK_CAPTURE(PlaceProfile, name, #name) \
      ->ArgName("workers")                     \
      ->ArgsProduct({{16, 64, 256, 1024}})     \
      ->Iterations(1)                          \
      ->Unit(benchmark::kMillisecond)
PLACE_PROFILE(vgg16);
PLACE_PROFILE(resnet101);
PLACE_PROFILE(gnmt_large);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
