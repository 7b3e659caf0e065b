#include "planner/graph/hierarchy_search.h"

#include <cmath>
#include <map>
#include <tuple>

#include "planner/graph/ideals.h"
#include "planner/graph/limits.h"
#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// The recurrence of the paper and of the released code, written plainly over sets of layers.
class Recurrence {
 public:
  Recurrence(const LayerGraph& graph, const std::vector<HierarchyLevel>& levels)
      : graph_(graph), levels_(levels), cuts_(AllCuts(graph)) {}

  double Solve() {
    const int top = static_cast<int>(levels_.size()) - 1;
    return Best(top, 0, cuts_.back(), levels_[top].workers);
  }

 private:
  double Best(int level, uint32_t from, uint32_t to, int components) {
    const auto [at, is_new] = known_.try_emplace({level, from, to, components}, kInfinity);
    if (!is_new) return at->second;
    const StageCostModel& model = levels_[level].model;
    double best_s = kInfinity;
    if (components == 1 || model.replicates) {
      const double divisor =
          level > 0 && model.sync == SyncRule::kSum4 ? levels_[level - 1].workers : 1;
      best_s = model.StageS(Inner(level, from, to), Parameters(from, to) / divisor, components);
    }
    for (const uint32_t cut : cuts_) {
      if (cut == from || cut == to || (from & ~cut) != 0 || (cut & ~to) != 0) continue;
      for (int replicas = 1; replicas < (model.replicates ? components : 2); ++replicas) {
        if (replicas >= components) break;
        double stage_s = model.StageS(Inner(level, cut, to), Parameters(cut, to), replicas);
        stage_s = std::max(stage_s, model.LinkS(BytesOver(graph_, cut), replicas));
        if (model.link == LinkRule::kOwnReplicas && to != cuts_.back()) {
          stage_s = std::max(stage_s, model.LinkS(BytesOver(graph_, to), replicas));
        }
        best_s = std::min(best_s, std::max(Best(level, from, cut, components - replicas), stage_s));
      }
    }
    return known_[{level, from, to, components}] = best_s;
  }

  double Inner(int level, uint32_t from, uint32_t to) {
    if (level > 0) return Best(level - 1, from, to, levels_[level - 1].workers);
    double work_s = 0;
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      if ((((to & ~from) >> node) & 1) != 0) work_s += graph_.nodes[node].work_s();
    }
    return work_s;
  }
  double Parameters(uint32_t from, uint32_t to) const {
    double bytes = 0;
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      if ((((to & ~from) >> node) & 1) != 0) bytes += graph_.nodes[node].parameter_bytes;
    }
    return bytes;
  }

  const LayerGraph& graph_;
  const std::vector<HierarchyLevel>& levels_;
  const std::vector<uint32_t> cuts_;
  std::map<std::tuple<int, uint32_t, uint32_t, int>, double> known_;
};

TEST(SearchHierarchy, RandomGraphs_EqualTheRecurrence) {
  RandomStream random(21, 1);
  int planned = 0;
  for (int round = 0; round < 1500; ++round) {
    const int layers = static_cast<int>(1 + random.Below(7));
    const LayerGraph graph = round % 2 == 0
                                 ? RandomChain(random, layers)
                                 : RandomGraph(random, layers, 0.3 + 0.5 * random.Uniform());
    std::vector<HierarchyLevel> levels(1 + random.Below(3));
    const uint64_t kind = random.Below(4);
    for (HierarchyLevel& level : levels) {
      level.workers = static_cast<int>(1 + random.Below(3));
      const double bandwidth = 0.2 + 4 * random.Uniform();
      level.model = kind == 0   ? PipeDream2019Model(bandwidth)
                    : kind == 1 ? PipeDream2018Model(bandwidth)
                                : PipeDreamReleasedModel(bandwidth, kind == 2);
      level.model.replicates = round % 5 != 0;
    }
    SCOPED_TRACE(testing::Message() << "round " << round << " " << levels.front().model.name);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(SortGraph(graph), {}));
    const double expected_s = Recurrence(graph, levels).Solve();
    const HierarchySearchResult result = SearchHierarchy(family, levels, Unlimited());
    ASSERT_EQ(result.plan.has_value(), std::isfinite(expected_s));
    if (!result.plan.has_value()) continue;
    ++planned;
    EXPECT_NEAR(result.plan->period_s, expected_s, 1e-9 * expected_s + 1e-12);
    EXPECT_DOUBLE_EQ(result.lower_bound_s, result.plan->period_s);
  }
  EXPECT_GT(planned, 1000);
}

TEST(SearchHierarchy, StagesOfEveryLevel_FillTheirRangeAndWorkers) {
  RandomStream random(22, 1);
  const LayerGraph graph = RandomChain(random, 40);
  const std::vector<HierarchyLevel> levels = {{4, PipeDreamReleasedModel(50, true)},
                                              {3, PipeDreamReleasedModel(5, true)}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(SortGraph(graph), {}));
  const HierarchySearchResult result = SearchHierarchy(family, levels, Unlimited());
  ASSERT_TRUE(result.plan.has_value());
  int cut = 0;
  int hosts = 0;
  for (const HierarchyStage& stage : result.plan->stages) {
    EXPECT_EQ(stage.from_cut, cut);
    cut = stage.to_cut;
    hosts += stage.replicas;
    int inner_cut = stage.from_cut;
    int workers = 0;
    for (const HierarchyStage& inner : stage.inner) {
      EXPECT_EQ(inner.from_cut, inner_cut);
      inner_cut = inner.to_cut;
      workers += inner.replicas;
    }
    EXPECT_EQ(inner_cut, stage.to_cut);
    EXPECT_EQ(workers, 4);
  }
  EXPECT_EQ(cut, family.size() - 1);
  EXPECT_EQ(hosts, 3);
}

TEST(SearchHierarchy, SpentBudget_SaysSo) {
  RandomStream random(23, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family,
                                EnumerateIdeals(SortGraph(RandomChain(random, 600)), {}));
  TickingClock clock(1'000'000'000);
  TimeBudget budget(clock, absl::Milliseconds(1));
  const HierarchySearchResult result =
      SearchHierarchy(family, {{4, PipeDream2019Model(50)}, {4, PipeDream2019Model(5)}}, budget);
  EXPECT_FALSE(result.in_time);
  EXPECT_FALSE(result.plan.has_value());
}

}  // namespace
}  // namespace penstock
