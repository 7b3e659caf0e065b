#include "planner/graph/layer_graph.h"

#include <limits>

#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayerGraph Diamond() {
  LayerGraph graph;
  for (const char* id : {"a", "b", "c", "d"}) graph.nodes.push_back({.id = id, .forward_s = 1});
  graph.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  return graph;
}

auto IsRefused(const std::string& why) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why));
}

TEST(LayerGraph, Diamond_HasOneSourceAndOneSink) {
  EXPECT_THAT(CheckLayerGraph(Diamond()), IsOk());
  EXPECT_THAT(SourcesOf(Diamond()), ElementsAre(0));
  EXPECT_THAT(SinksOf(Diamond()), ElementsAre(3));
}

TEST(LayerGraph, TopologicalOrder_PrefersEarlierNodes) {
  LayerGraph graph = Diamond();
  graph.edges = {{3, 1}, {1, 0}};
  EXPECT_THAT(TopologicalOrder(graph), IsOkAndHolds(ElementsAre(2, 3, 1, 0)));
}

TEST(LayerGraph, RandomGraphs_EveryLayerComesAfterItsProducers) {
  RandomStream random(1, 1);
  for (int round = 0; round < 200; ++round) {
    const LayerGraph graph = RandomGraph(random, static_cast<int>(1 + random.Below(20)), 0.3);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<int> order, TopologicalOrder(graph));
    std::vector<int> place(order.size());
    for (size_t at = 0; at < order.size(); ++at) place[order[at]] = static_cast<int>(at);
    for (const LayerEdge& edge : graph.edges) EXPECT_LT(place[edge.from], place[edge.to]);
  }
}

TEST(LayerGraph, RepeatedEdge_CountsOnce) {
  LayerGraph graph = Diamond();
  graph.edges.push_back({0, 1});
  EXPECT_THAT(NeighboursOf(graph).consumers[0], ElementsAre(1, 2));
  EXPECT_THAT(CheckLayerGraph(graph), IsOk());
}

TEST(LayerGraph, Cycle_IsWrittenOut) {
  LayerGraph graph = Diamond();
  graph.edges.push_back({3, 2});
  EXPECT_THAT(CheckLayerGraph(graph), IsRefused("cycle"));
  const std::string message(CheckLayerGraph(graph).message());
  EXPECT_TRUE(message.find("c -> d -> c") != std::string::npos ||
              message.find("d -> c -> d") != std::string::npos)
      << message;
  graph.edges = {{1, 1}};
  EXPECT_THAT(CheckLayerGraph(graph), IsRefused("b -> b"));
}

TEST(LayerGraph, BadNodesAndEdges_AreNamed) {
  EXPECT_THAT(CheckLayerGraph({}), IsRefused("no node"));
  LayerGraph graph = Diamond();
  graph.nodes[2].id = "a";
  EXPECT_THAT(CheckLayerGraph(graph), IsRefused("node a is there twice"));
  graph = Diamond();
  graph.nodes[1].id = "";
  EXPECT_THAT(CheckLayerGraph(graph), IsRefused("node number 2 has no id"));
  graph = Diamond();
  graph.edges.push_back({0, 4});
  EXPECT_THAT(CheckLayerGraph(graph), IsRefused("0 -> 4"));
  const double bad[] = {-1, std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity(), 1e300};
  for (const double value : bad) {
    graph = Diamond();
    graph.nodes[1].forward_s = value;
    EXPECT_THAT(CheckLayerGraph(graph), IsRefused("node b: forward time"));
    graph = Diamond();
    graph.nodes[1].backward_s = value;
    EXPECT_THAT(CheckLayerGraph(graph), IsRefused("node b: backward time"));
    graph = Diamond();
    graph.nodes[1].activation_bytes = value;
    EXPECT_THAT(CheckLayerGraph(graph), IsRefused("node b: activation size"));
    graph = Diamond();
    graph.nodes[1].parameter_bytes = value;
    EXPECT_THAT(CheckLayerGraph(graph), IsRefused("node b: parameter size"));
  }
}

TEST(LayerGraph, WithoutNodes_RenumbersEdges) {
  const LayerGraph left = WithoutNodes(Diamond(), {true, false, false, false});
  EXPECT_THAT(left.edges, ElementsAre(LayerEdge{0, 2}, LayerEdge{1, 2}));
  EXPECT_EQ(left.nodes[0].id, "b");
}

}  // namespace
}  // namespace penstock
