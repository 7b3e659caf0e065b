// Plans for many hosts: what no placement can beat, and the placements that come close to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/graph/column_search.h"
#include "planner/graph/fewer_layers.h"
#include "planner/graph/host_bound.h"
#include "planner/graph/ideals.h"
#include "planner/graph/limits.h"
#include "planner/graph/placement_planner.h"
#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

CutFamily AllCutsOf(const LayerGraph& graph) {
  absl::StatusOr<CutFamily> family =
      EnumerateIdeals(SortGraph(graph), {.ideals_max = std::numeric_limits<int64_t>::max()});
  EXPECT_THAT(family, IsOk());
  EXPECT_TRUE(family->complete());
  return *std::move(family);
}

std::vector<int> AllOf(const CutFamily& family) {
  std::vector<int> chain(family.size());
  std::iota(chain.begin(), chain.end(), 0);
  return chain;
}

LayerGraph EqualChain(int layers, double work_s, double output_bytes, double parameter_bytes) {
  std::vector<LayerNode> nodes;
  for (int layer = 0; layer < layers; ++layer) {
    nodes.push_back({.id = "layer" + std::to_string(layer),
                     .forward_s = work_s / 3,
                     .backward_s = work_s * 2 / 3,
                     .activation_bytes = output_bytes,
                     .parameter_bytes = parameter_bytes});
  }
  return ChainGraph(std::move(nodes));
}

double BoundOf(const LayerGraph& graph, const Cluster& cluster, double known_s) {
  return HostBound(graph, AllCutsOf(graph), cluster, known_s, Unlimited());
}

TEST(HostBound, TwoLayersOnTwoHosts_IsTheOneByHand) {
  // With both layers on one host the period is 2, and NICs are idle. For a shorter period T each host has work for T of
  // the 2 seconds, so shares of T/2 and 1 - T/2 at best; gradients of 200 bytes then send 400 (T/2) (1 - T/2) bytes
  // over each NIC, which carries T of them at T = 1.99. A cut of 1000 bytes is no way out.
  const LayerGraph graph = EqualChain(2, 1, 1000, 100);
  const Cluster cluster = UniformCluster(2, 1, 1, kInfinity);
  EXPECT_NEAR(BoundOf(graph, cluster, 2), 1.99, 2.1e-3);
  // Where NICs carry both ways in turn they have half of the bytes a second.
  Cluster half = cluster;
  half.full_duplex = false;
  EXPECT_NEAR(BoundOf(graph, half, 2), 1.995, 2.1e-3);
}

TEST(HostBound, CheapCut_IsWhatCrosses) {
  // A cut of 3 bytes is better than gradients: 3 on each side, over two NICs of 1 byte a second.
  EXPECT_NEAR(BoundOf(EqualChain(2, 1, 3, 1e6), UniformCluster(2, 1, 1, kInfinity), 10), 2.0,
              2e-3 * 10);
  EXPECT_NEAR(BoundOf(EqualChain(2, 2, 3, 1e6), UniformCluster(2, 1, 1, kInfinity), 10), 3.0,
              2e-3 * 10);
}

TEST(HostBound, WithoutLimitOfNics_SaysNothing) {
  EXPECT_EQ(BoundOf(EqualChain(3, 1, 3, 4), UniformCluster(2, 2, kInfinity, 1), 5), 0);
  EXPECT_EQ(BoundOf(EqualChain(3, 1, 3, 4), UniformCluster(1, 4, 1, 1), 3), 0);
}

// Hosts with NICs of few bytes a second, so that NICs decide.
Cluster SlowCluster(RandomStream& random, int workers) {
  Cluster cluster;
  cluster.full_duplex = random.Below(2) == 0;
  const int hosts = 2 + static_cast<int>(random.Below(workers - 1));
  for (int host = 0; host < hosts; ++host) {
    cluster.hosts.push_back({.name = "h" + std::to_string(host),
                             .nic_bytes_per_second = 0.05 + 0.5 * random.Uniform()});
  }
  for (int worker = 0; worker < workers; ++worker) {
    cluster.workers.push_back(
        {.name = "w" + std::to_string(worker),
         .host = worker < hosts ? worker : static_cast<int>(random.Below(hosts)),
         .speed = random.Below(2) == 0 ? 1.0 : 0.5 + random.Uniform()});
  }
  return cluster;
}

// The planner proves these plans by looking at all placements, and equals brute force (placement_test.cc).
TEST(HostBound, OfSmallInstances_IsNeverAboveTheBestPlacement) {
  RandomStream random(23, 0);
  int close = 0;
  for (int trial = 0; trial < 800; ++trial) {
    SCOPED_TRACE(trial);
    const int layers = 1 + static_cast<int>(random.Below(5));
    const LayerGraph graph =
        random.Below(2) == 0 ? RandomChain(random, layers) : RandomGraph(random, layers, 0.4);
    const int workers = 2 + static_cast<int>(random.Below(3));
    const PlacementRequest request = {.cluster = SlowCluster(random, workers),
                                      .memory = GuessMemory(graph, 0)};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan plan, PlanPlacement(graph, request, Unlimited()));
    ASSERT_TRUE(plan.is_optimal);
    // A known period that is too long leaves room for a bound that is wrong.
    const double bound_s = BoundOf(graph, request.cluster, 4 * plan.period_s);
    EXPECT_LE(bound_s, plan.period_s * (1 + 1e-9));
    close += bound_s > 0.8 * plan.period_s ? 1 : 0;
  }
  EXPECT_GT(close, 50);  // else it says nothing here
}

TEST(HostBound, OfFewerLayers_IsNeverAboveTheBestPlacement) {
  RandomStream random(24, 0);
  int close = 0;
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(trial);
    const int layers = 2 + static_cast<int>(random.Below(5));
    const LayerGraph graph = RandomGraph(random, layers, 0.4);
    const PlacementRequest request = {.cluster = SlowCluster(random, 2 + random.Below(3)),
                                      .memory = GuessMemory(graph, 0)};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const StagePlan plan, PlanPlacement(graph, request, Unlimited()));
    const auto cuts_max = static_cast<int64_t>(2 + random.Below(AllCutsOf(graph).size()));
    const absl::StatusOr<ListedGraph> fewer = WithFewerLayers(graph, cuts_max, Unlimited());
    if (!fewer.ok()) continue;
    EXPECT_LE(fewer->family.size(), cuts_max);
    const double bound_s =
        HostBound(fewer->graph, fewer->family, request.cluster, 4 * plan.period_s, Unlimited());
    EXPECT_LE(bound_s, plan.period_s * (1 + 1e-9));
    close += bound_s > 0.5 * plan.period_s ? 1 : 0;
  }
  EXPECT_GT(close, 50);
}

// What crosses a cut of all layers is no less than what crosses it without one of them.
TEST(WithoutLayer, AnyCut_CarriesNoMore) {
  RandomStream random(25, 0);
  int checked = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int layers = 3 + static_cast<int>(random.Below(6));
    const LayerGraph graph = RandomGraph(random, layers, 0.4);
    const Neighbours neighbours = NeighboursOf(graph);
    for (int node = 0; node < layers; ++node) {
      if (neighbours.producers[node].size() > 1 && neighbours.consumers[node].size() > 1) continue;
      const LayerGraph without = WithoutLayer(graph, node);
      const std::vector<uint32_t> cuts_without = AllCuts(without);
      for (const uint32_t cut : AllCuts(graph)) {
        const uint32_t below = cut & ((uint32_t{1} << node) - 1);
        const uint32_t rest = below | (cut >> (node + 1) << node);
        ASSERT_TRUE(std::find(cuts_without.begin(), cuts_without.end(), rest) !=
                    cuts_without.end());
        ASSERT_LE(BytesOver(without, rest), BytesOver(graph, cut) * (1 + 1e-12))
            << "without " << node << ", cut " << cut << " of trial " << trial;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 10'000);
}

TEST(WithoutLayer, ByHand_JoinsWhatItReadToWhatReadIt) {
  // a (8 bytes) and b (4) are read by c (6), which d reads; a is read by d, too.
  const LayerGraph graph = {.nodes = {{.id = "a", .activation_bytes = 8},
                                      {.id = "b", .activation_bytes = 4},
                                      {.id = "c", .activation_bytes = 6},
                                      {.id = "d", .activation_bytes = 1}},
                            .edges = {{0, 2}, {1, 2}, {2, 3}, {0, 3}}};
  const LayerGraph without = WithoutLayer(graph, 2);
  ASSERT_EQ(without.nodes.size(), 3u);
  EXPECT_EQ(without.nodes[0].activation_bytes, 4);  // 6 of the 12 bytes that c read
  EXPECT_EQ(without.nodes[1].activation_bytes, 2);
  EXPECT_EQ(NeighboursOf(without).producers[2], (std::vector<int>{0, 1}));
}

// Its 16,887 cuts are too many for the bound; before, nothing but the work was counted, and plans were 1,534 % above.
TEST(PlanPlacement, ManyCuts_AreBoundedWithoutTheLeastLayers) {
  const LayerGraph graph = PublishedProfile("gnmt_large.txt");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ListedGraph fewer, WithFewerLayers(graph, 1000, Unlimited()));
  EXPECT_LE(fewer.family.size(), 1000);
  EXPECT_GT(TotalParameterBytes(fewer.graph), 0.95 * TotalParameterBytes(graph));
  const double bound_s = HostBound(fewer.graph, fewer.family,
                                   UniformCluster(128, 8, 1.25e9, kInfinity), 0.011, Unlimited());
  EXPECT_GT(bound_s, 0.008);
}

TEST(SearchColumns, ExpensiveGradients_GiveEachHostItsOwnLayers) {
  const LayerGraph graph = EqualChain(16, 1, 0.01, 1000);
  const CutFamily family = AllCutsOf(graph);
  const Cluster cluster = UniformCluster(8, 2, 1, 1e6);
  const PlacementCosts costs(graph, family, cluster, GuessMemory(graph, 0), {});
  const auto found = SearchColumns(costs, AllOf(family), 100, Unlimited());
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(costs.Charge(*found).period_s, 1, 2e-3);  // all 16 workers all the time
}

TEST(SearchColumns, ExpensiveCuts_RunEverythingOnAllHosts) {
  const LayerGraph graph = EqualChain(16, 1, 1e6, 0.01);
  const CutFamily family = AllCutsOf(graph);
  const Cluster cluster = UniformCluster(8, 2, 1, kInfinity);
  const PlacementCosts costs(graph, family, cluster, GuessMemory(graph, 0), {});
  const auto found = SearchColumns(costs, AllOf(family), 100, Unlimited());
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(costs.Charge(*found).period_s, 1, 0.05);
  for (const PlacedStage& stage : *found) EXPECT_EQ(stage.workers.size() % 8, 0u);
}

TEST(SearchColumns, NothingBetter_IsNotFound) {
  const LayerGraph graph = EqualChain(4, 1, 1, 1);
  const CutFamily family = AllCutsOf(graph);
  const Cluster cluster = UniformCluster(2, 2, 1, 1);
  const PlacementCosts costs(graph, family, cluster, GuessMemory(graph, 0), {});
  EXPECT_FALSE(SearchColumns(costs, AllOf(family), 0.9, Unlimited()).has_value());
}

TEST(SearchColumns, RandomClusters_PlacementsAreWholeAndAsChargedByThePlan) {
  RandomStream random(29, 0);
  int found_any = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const int layers = 2 + static_cast<int>(random.Below(30));
    const LayerGraph graph = RandomChain(random, layers);
    const CutFamily family = AllCutsOf(graph);
    const int hosts = 2 + static_cast<int>(random.Below(20));
    const int workers = 1 + static_cast<int>(random.Below(4));
    const Cluster cluster = UniformCluster(hosts, workers, 0.5 + 5 * random.Uniform(), 10);
    const PlacementCosts costs(graph, family, cluster, GuessMemory(graph, 0), {});
    const double must_beat_s = 2 * TotalWorkS(graph) + 1;
    const auto found = SearchColumns(costs, AllOf(family), must_beat_s, Unlimited());
    if (!found.has_value()) continue;
    ++found_any;
    EXPECT_LT(costs.Charge(*found).period_s, must_beat_s);
    EXPECT_EQ(found->front().from_cut, 0);
    EXPECT_EQ(found->back().to_cut, family.size() - 1);
    std::vector<int> uses(cluster.size());
    for (size_t at = 0; at < found->size(); ++at) {
      if (at > 0) {
        EXPECT_EQ((*found)[at].from_cut, (*found)[at - 1].to_cut);
      }
      for (const int worker : (*found)[at].workers) EXPECT_EQ(++uses[worker], 1);
    }
  }
  EXPECT_GT(found_any, 150);
}

// Layers as in tests/bench/planner_benchmark.cc.
LayerGraph BenchmarkChain(int layers) {
  RandomStream random(1, 1);
  std::vector<LayerNode> nodes;
  for (int index = 0; index < layers; ++index) {
    nodes.push_back({.id = "node" + std::to_string(index),
                     .forward_s = 1e-3 * (0.2 + random.Uniform()),
                     .backward_s = 1e-3 * (0.2 + random.Uniform()),
                     .activation_bytes = 1e6 * (1 + 9 * random.Uniform()),
                     .parameter_bytes = 1e6 * random.Uniform()});
  }
  return ChainGraph(std::move(nodes));
}

TEST(ManyHosts, ColumnsAreCloseToTheBound) {
  for (const int layers : {100, 300}) {
    const LayerGraph graph = BenchmarkChain(layers);
    const CutFamily family = AllCutsOf(graph);
    for (const int hosts : {8, 32, 128}) {
      SCOPED_TRACE(absl::StrCat(layers, " layers, ", hosts, " hosts"));
      const Cluster cluster = UniformCluster(hosts, 8, 1.25e9, 12e9);
      const PlacementCosts costs(graph, family, cluster, GuessMemory(graph, 2), {});
      const auto found = SearchColumns(costs, AllOf(family), 10, Unlimited());
      ASSERT_TRUE(found.has_value());
      const double period_s = costs.Charge(*found).period_s;
      const double bound_s = std::max(HostBound(graph, family, cluster, period_s, Unlimited()),
                                      TotalWorkS(graph) / cluster.size());
      EXPECT_GT(bound_s, 0.75 * period_s);
      EXPECT_LE(bound_s, period_s);
    }
  }
}

}  // namespace
}  // namespace penstock
