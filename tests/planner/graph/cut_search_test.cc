#include "planner/graph/cut_search.h"

#include <cmath>

#include "planner/graph/cut_bound.h"
#include "planner/graph/ideals.h"
#include "planner/graph/limits.h"
#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

std::vector<StageCostModel> Models(double bandwidth) {
  std::vector<StageCostModel> models = {
      PipeDream2018Model(bandwidth), PipeDream2019Model(bandwidth),
      PipeDreamReleasedModel(bandwidth, true), PipeDreamReleasedModel(bandwidth, false),
      ConsistentModel(bandwidth)};
  for (StageCostModel model : std::vector<StageCostModel>(models)) {
    model.replicates = false;
    models.push_back(model);
  }
  for (StageCostModel model : std::vector<StageCostModel>(models)) {
    model.uses_all_workers = !model.uses_all_workers;
    models.push_back(model);
  }
  return models;
}

void ExpectEqualsBruteForce(const LayerGraph& graph, const StageCostModel& model, int workers) {
  SCOPED_TRACE(testing::Message() << model.name << (model.replicates ? "" : " straight")
                                  << (model.uses_all_workers ? " exactly " : " at most ")
                                  << workers);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(SortGraph(graph), {}));
  const double expected_s = BruteForce(graph, model, workers);
  const CutSearchResult result = SearchCuts(family, model, workers, kInfinity, Unlimited());
  ASSERT_EQ(result.plan.has_value(), std::isfinite(expected_s));
  if (!result.plan.has_value()) return;
  const double margin_s = 1e-9 * expected_s + 1e-12;
  EXPECT_NEAR(result.plan->period_s, expected_s, margin_s);
  EXPECT_NEAR(result.lower_bound_s, expected_s, margin_s);
  EXPECT_DOUBLE_EQ(PeriodOf(family, model, *result.plan), result.plan->period_s);
  int used = 0;
  for (const int replicas : result.plan->replicas) used += replicas;
  if (model.uses_all_workers) {
    EXPECT_EQ(used, workers);
  } else {
    EXPECT_LE(used, workers);
  }
}

TEST(SearchCuts, RandomChains_EqualBruteForce) {
  RandomStream random(11, 1);
  for (int round = 0; round < 150; ++round) {
    const LayerGraph graph = RandomChain(random, static_cast<int>(1 + random.Below(8)));
    const int workers = static_cast<int>(1 + random.Below(4));
    SCOPED_TRACE(testing::Message() << "round " << round);
    for (const StageCostModel& model : Models(0.25 + 4 * random.Uniform())) {
      ExpectEqualsBruteForce(graph, model, workers);
    }
  }
}

TEST(SearchCuts, RandomGraphs_EqualBruteForce) {
  RandomStream random(12, 1);
  for (int round = 0; round < 150; ++round) {
    const LayerGraph graph =
        RandomGraph(random, static_cast<int>(2 + random.Below(6)), 0.2 + 0.6 * random.Uniform());
    const int workers = static_cast<int>(1 + random.Below(4));
    SCOPED_TRACE(testing::Message() << "round " << round);
    for (const StageCostModel& model : Models(0.25 + 4 * random.Uniform())) {
      ExpectEqualsBruteForce(graph, model, workers);
    }
  }
}

TEST(SearchCuts, MoreThan64Workers_EqualClosedForm) {
  // Equal layers without communication: everything on all workers.
  const LayerGraph graph = ChainGraph(std::vector<LayerNode>(
      {{.id = "a", .forward_s = 1}, {.id = "b", .forward_s = 1}, {.id = "c", .forward_s = 1}}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(SortGraph(graph), {}));
  for (const int workers : {63, 64, 65, 128, 1000}) {
    for (const StageCostModel& model : {ConsistentModel(1), PipeDreamReleasedModel(1, true)}) {
      const CutSearchResult result = SearchCuts(family, model, workers, kInfinity, Unlimited());
      ASSERT_TRUE(result.plan.has_value());
      EXPECT_NEAR(result.plan->period_s, 3.0 / workers, 1e-9);
    }
  }
}

TEST(SearchCuts, NothingBetterThanAsked_FindsNoPlanAndProvesIt) {
  RandomStream random(13, 1);
  const LayerGraph graph = RandomChain(random, 8);
  const StageCostModel model = ConsistentModel(1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(SortGraph(graph), {}));
  const double best_s = BruteForce(graph, model, 4);
  const CutSearchResult result = SearchCuts(family, model, 4, best_s, Unlimited());
  EXPECT_FALSE(result.plan.has_value());
  EXPECT_NEAR(result.lower_bound_s, best_s, 1e-9 * best_s);
}

TEST(SearchCuts, StraightPipelineOfMoreWorkersThanLayers_HasNoPlan) {
  RandomStream random(14, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family,
                                EnumerateIdeals(SortGraph(RandomChain(random, 3)), {}));
  StageCostModel model = PipeDreamReleasedModel(1, true);
  model.replicates = false;
  EXPECT_FALSE(SearchCuts(family, model, 4, kInfinity, Unlimited()).plan.has_value());
}

TEST(LowerBoundS, RandomGraphs_NoPlanBeatsIt) {
  RandomStream random(15, 1);
  double gap_sum = 0;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const LayerGraph graph =
        RandomGraph(random, static_cast<int>(2 + random.Below(6)), random.Uniform());
    if (TotalWorkS(graph) == 0) continue;
    const int workers = static_cast<int>(1 + random.Below(4));
    for (const StageCostModel& model :
         {ConsistentModel(1), PipeDreamReleasedModel(1, true), PipeDream2019Model(1)}) {
      const double bound_s = LowerBoundS(SortGraph(graph), model, workers, kInfinity, Unlimited());
      const double best_s = BruteForce(graph, model, workers);
      EXPECT_LE(bound_s, best_s * (1 + 1e-9)) << model.name << " round " << round;
      EXPECT_GE(bound_s, TotalWorkS(graph) / workers * (1 - 1e-9));
      // Knowing a plan refuses slices, which no better plan may need.
      for (const double known_s : {best_s, 1.05 * best_s}) {
        const double finer_s = LowerBoundS(SortGraph(graph), model, workers, known_s, Unlimited());
        EXPECT_LE(finer_s, best_s * (1 + 1e-9)) << model.name << " round " << round;
      }
      gap_sum += best_s / bound_s - 1;
    }
  }
  EXPECT_LT(gap_sum / (3 * kRounds), 0.3);  // coarse layers; thin slices tell little of them
}

}  // namespace
}  // namespace penstock
