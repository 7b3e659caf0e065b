#include "planner/graph/stage_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// Each layer in one stage, no stage before one it reads from, and the numbers agree.
void ExpectIsSound(const LayerGraph& graph, const StagePlanRequest& request,
                   const StagePlan& plan) {
  std::map<int, size_t> stage_of;
  double longest_s = 0;
  int workers = 0;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const PlannedStage& here = plan.stages[stage];
    double work_s = 0;
    for (const int node : here.nodes) {
      EXPECT_TRUE(stage_of.emplace(node, stage).second);
      work_s += graph.nodes[node].work_s();
    }
    EXPECT_NEAR(here.work_s, work_s, 1e-9);
    longest_s = std::max(longest_s, here.period_s());
    workers += here.workers;
  }
  EXPECT_EQ(stage_of.size(), graph.nodes.size());
  for (const LayerEdge& edge : graph.edges) EXPECT_LE(stage_of[edge.from], stage_of[edge.to]);
  EXPECT_NEAR(plan.period_s, longest_s, 1e-9 * longest_s);
  EXPECT_EQ(plan.workers_used, workers);
  int there_are = 1;
  for (const HierarchyLevel& level : request.levels) there_are *= level.workers;
  EXPECT_LE(workers, there_are);
  if (request.levels.front().model.uses_all_workers) {
    EXPECT_EQ(workers, there_are);
  }
  EXPECT_LE(plan.lower_bound_s, plan.period_s);
  EXPECT_NEAR(plan.stages[plan.binding_stage].period_s(), longest_s, 1e-9 * longest_s);
}

TEST(PlanStages, RandomGraphs_AreSoundAndOptimal) {
  RandomStream random(31, 1);
  for (int round = 0; round < 200; ++round) {
    const LayerGraph graph =
        RandomGraph(random, static_cast<int>(1 + random.Below(7)), random.Uniform());
    const int workers = static_cast<int>(1 + random.Below(4));
    const StagePlanRequest request = FlatRequest(workers, ConsistentModel(1 + random.Uniform()));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan plan, PlanStages(graph, request, Unlimited()));
    ExpectIsSound(graph, request, plan);
    EXPECT_TRUE(plan.is_optimal);
    EXPECT_NEAR(plan.period_s, BruteForce(graph, request.levels[0].model, workers),
                1e-9 * plan.period_s + 1e-12);
    EXPECT_LE(plan.period_s, std::min(plan.data_parallel_s, plan.one_worker_s) * (1 + 1e-9));
    EXPECT_FALSE(Explain(graph, plan).empty());
  }
}

TEST(PlanStages, MoreWorkersOrBandwidthOrReplication_NeverCostTime) {
  RandomStream random(32, 1);
  for (int round = 0; round < 30; ++round) {
    const LayerGraph graph = RandomGraph(random, 14, 0.25);
    const auto period_s = [&](int workers, double bandwidth, bool replicates) {
      StageCostModel model = ConsistentModel(bandwidth);
      model.replicates = replicates;
      return PlanStages(graph, FlatRequest(workers, model), Unlimited())->period_s;
    };
    for (const int workers : {1, 2, 5, 9}) {
      const double here_s = period_s(workers, 2, true);
      EXPECT_LE(period_s(workers + 1, 2, true), here_s * (1 + 1e-9));
      EXPECT_LE(period_s(workers, 4, true), here_s * (1 + 1e-9));
      EXPECT_GE(period_s(workers, 2, false), here_s * (1 - 1e-9));
    }
  }
}

TEST(PlanStages, WhatBinds_IsNamed) {
  const LayerGraph graph = ChainGraph({{.id = "a", .forward_s = 4, .activation_bytes = 1},
                                       {.id = "b", .forward_s = 1, .parameter_bytes = 1000}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StagePlan compute,
      PlanStages(graph, FlatRequest(2, ConsistentModel(100)), Unlimited()));
  EXPECT_EQ(compute.binding, Binding::kCompute);
  EXPECT_EQ(compute.binding_stage, 0);
  EXPECT_EQ(ReplicasText(compute), "1-1");
  EXPECT_THAT(Explain(graph, compute), HasSubstr("layer a, replicas: 1"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StagePlan link, PlanStages(graph, FlatRequest(2, ConsistentModel(0.45)), Unlimited()));
  EXPECT_EQ(link.binding, Binding::kLink);
  EXPECT_NEAR(link.period_s, 2 / 0.45, 1e-9);
  const LayerGraph heavy = ChainGraph({{.id = "a", .forward_s = 4, .parameter_bytes = 6}});
  StageCostModel all = PipeDreamReleasedModel(1, true);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan sync,
                                PlanStages(heavy, FlatRequest(2, all), Unlimited()));
  EXPECT_EQ(sync.binding, Binding::kSync);
  EXPECT_NEAR(sync.period_s, (4 + 12) / 2.0, 1e-9);
}

TEST(PlanStages, SpentBudget_ReturnsTheBestFoundAndItsBound) {
  RandomStream random(33, 1);
  const LayerGraph graph = RandomGraph(random, 34, 0.06);
  const StagePlanRequest request = FlatRequest(8, ConsistentModel(3));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan best, PlanStages(graph, request, Unlimited()));
  int cut_short = 0;
  for (int readings = 0; readings < 60; readings += 3) {
    TickingClock clock(1);
    TimeBudget budget(clock, absl::Nanoseconds(readings));
    const absl::StatusOr<StagePlan> plan = PlanStages(graph, request, budget);
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kDeadlineExceeded);
      continue;
    }
    ExpectIsSound(graph, request, *plan);
    EXPECT_LE(plan->lower_bound_s, best.period_s * (1 + 1e-9));
    EXPECT_GE(plan->period_s, best.lower_bound_s * (1 - 1e-9));
    if (!plan->in_time) ++cut_short;
  }
  EXPECT_GT(cut_short, 0);
}

TEST(PlanStages, BadRequests_AreNamed) {
  const LayerGraph graph = ChainGraph({{.id = "a", .forward_s = 1}, {.id = "b", .forward_s = 1}});
  const auto refused = [&](const StagePlanRequest& request, const std::string& why) {
    EXPECT_THAT(PlanStages(graph, request, Unlimited()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused({}, "at least one level");
  refused(FlatRequest(0, ConsistentModel(1)), "1 to 4096 workers, got 0");
  refused(FlatRequest(5000, ConsistentModel(1)), "1 to 4096 workers, got 5000");
  refused(FlatRequest(2, ConsistentModel(0)), "bandwidth");
  refused(FlatRequest(2, ConsistentModel(std::numeric_limits<double>::quiet_NaN())), "bandwidth");
  refused({.levels = {{2, ConsistentModel(1)}, {2, ConsistentModel(1)}}}, "no form for several");
  refused({.levels = {{100, PipeDream2019Model(1)}, {100, PipeDream2019Model(1)}}},
          "at most 4096 workers");
  StageCostModel straight = PipeDreamReleasedModel(1, true);
  straight.replicates = false;
  refused(FlatRequest(3, straight), "cannot be cut into that many");
  std::vector<LayerNode> many(5001);
  for (size_t node = 0; node < many.size(); ++node) many[node].id = std::to_string(node);
  EXPECT_THAT(PlanStages(ChainGraph(many), FlatRequest(2, ConsistentModel(1)), Unlimited()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 5000 layers are planned, the graph has 5001")));
  LayerGraph cyclic = graph;
  cyclic.edges.push_back({1, 0});
  EXPECT_THAT(PlanStages(cyclic, FlatRequest(2, ConsistentModel(1)), Unlimited()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cycle")));
}

}  // namespace
}  // namespace penstock
