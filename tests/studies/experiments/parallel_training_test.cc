// Four ways to train a profiled model, against closed forms.
#include "studies/experiments/parallel_training.h"

#include <gmock/gmock.h>

#include "planner/graph/stage_planner.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr double kBytesPerSecond = 1e9;

// Layers that take 1 s forward and 2 s backward, and hand on 0.1 s of a card.
LayerGraph Layers(std::vector<double> parameter_bytes) {
  std::vector<LayerNode> nodes;
  for (const double bytes : parameter_bytes) {
    nodes.push_back({.id = "layer" + std::to_string(nodes.size()),
                     .forward_s = 1,
                     .backward_s = 2,
                     .activation_bytes = 0.1 * kBytesPerSecond,
                     .parameter_bytes = bytes});
  }
  return ChainGraph(std::move(nodes));
}

// One layer to a stage.
std::vector<PlannedStage> StagesOf(const LayerGraph& graph) {
  std::vector<PlannedStage> stages;
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    const bool last = node + 1 == static_cast<int>(graph.nodes.size());
    stages.push_back({.nodes = {node},
                      .parameter_bytes = graph.nodes[node].parameter_bytes,
                      .input_bytes = node == 0 ? 0 : graph.nodes[node - 1].activation_bytes,
                      .output_bytes = last ? 0 : graph.nodes[node].activation_bytes});
  }
  return stages;
}

TEST(OverlappedDataParallelism, LastLayersGradients_AreReducedDuringTheBackward) {
  // Of 2 workers an all-reduce takes as long as a card takes for the parameters.
  const auto step_s = [](const LayerGraph& graph) {
    return 2 * OverlappedDataParallelism(graph, 2, kBytesPerSecond).seconds;
  };
  EXPECT_NEAR(step_s(Layers({0, 0, 0})), 9, 1e-9);
  EXPECT_NEAR(step_s(Layers({0, 0, 4e9})), 9, 1e-9);       // hidden by the backward of two layers
  EXPECT_NEAR(step_s(Layers({0, 0, 5e9})), 10, 1e-9);      // all but a second
  EXPECT_NEAR(step_s(Layers({4e9, 0, 0})), 13, 1e-9);      // nothing is left to hide it
  EXPECT_NEAR(step_s(Layers({1e9, 1e9, 5e9})), 12, 1e-9);  // one after the other
  EXPECT_NEAR(step_s(Layers({1e9, 1e9, 1e9})), 10, 1e-9);  // only the first layer's is seen
  const MinibatchCost of_one = OverlappedDataParallelism(Layers({7e9}), 1, kBytesPerSecond);
  EXPECT_EQ(of_one.seconds, 3);
  EXPECT_EQ(of_one.bytes, 0);
}

TEST(SimulatePipeline, DataParallelism_ReducesAfterTheBackward) {
  const LayerGraph graph = Layers({1e9, 1e9, 5e9});
  const PlannedStage stage = ReplicatedModel(graph, 4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const MinibatchCost cost,
                                SimulatePipeline(graph, {.method = "gpipe",
                                                         .stages = {&stage, 1},
                                                         .minibatches_per_step = 4,
                                                         .bytes_per_second = kBytesPerSecond}));
  EXPECT_NEAR(cost.seconds, (9 + 2 * 3 / 4.0 * 7) / 4, 1e-6);
  EXPECT_NEAR(cost.bytes, 2 * 3 / 4.0 * 7e9, 1);
}

TEST(SimulatePipeline, ModelParallelism_TakesAllPassesAndMessages) {
  const LayerGraph graph = Layers({1e9, 1e9, 5e9});
  const std::vector<PlannedStage> stages = StagesOf(graph);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const MinibatchCost cost,
      SimulatePipeline(graph,
                       {.method = "gpipe", .stages = stages, .bytes_per_second = kBytesPerSecond}));
  EXPECT_NEAR(cost.seconds, 9 + 4 * 0.1, 1e-6);
  EXPECT_NEAR(cost.bytes, 4e8, 1);
}

TEST(SimulatePipeline, Gpipe_FillsAndDrains) {
  const LayerGraph graph = Layers({1e9, 1e9, 5e9});
  const std::vector<PlannedStage> stages = StagesOf(graph);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const MinibatchCost cost,
                                SimulatePipeline(graph, {.method = "gpipe",
                                                         .stages = stages,
                                                         .minibatches_per_step = 12,
                                                         .bytes_per_second = kBytesPerSecond}));
  EXPECT_NEAR(cost.seconds, ((12 + 2) * 3 + 4 * 0.1) / 12, 1e-6);
}

TEST(SimulatePipeline, PipeDream_TakesThePassesOfItsSlowestStage) {
  const LayerGraph graph = Layers({1e9, 1e9, 5e9});
  const std::vector<PlannedStage> stages = StagesOf(graph);
  // On slow stages messages are under way meanwhile only if there are enough minibatches; 0.1 s of 3 are few.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const MinibatchCost straight,
      SimulatePipeline(graph, {.method = "pipedream", .stages = stages, .bytes_per_second = 1e15}));
  EXPECT_NEAR(straight.seconds, 3, 1e-4);
  // 2-1 of 2 : 1 work, whose two replicas average 2e9 bytes of gradients every second minibatch.
  std::vector<PlannedStage> replicated = {
      {.nodes = {0, 1}, .replicas = 2, .parameter_bytes = 2e9, .output_bytes = 1e8},
      {.nodes = {2}, .parameter_bytes = 5e9, .input_bytes = 1e8}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const MinibatchCost cost,
                                SimulatePipeline(graph, {.method = "pipedream",
                                                         .stages = replicated,
                                                         .bytes_per_second = kBytesPerSecond}));
  EXPECT_GE(cost.seconds, (6 + 2) / 2.0);
  EXPECT_LE(cost.seconds, (6 + 2) / 2.0 + 0.2);
  EXPECT_NEAR(cost.bytes, 2 * 1e8 + 2 / 2.0 * 2e9, 1);
}

TEST(WithMinibatch, Parameters_StayAsTheyAre) {
  const LayerGraph half = WithMinibatch(Layers({1e9, 2e9}), 0.5);
  EXPECT_EQ(half.nodes[1].forward_s, 0.5);
  EXPECT_EQ(half.nodes[1].backward_s, 1);
  EXPECT_EQ(half.nodes[1].activation_bytes, 0.05 * kBytesPerSecond);
  EXPECT_EQ(TotalParameterBytes(half), 3e9);
}

}  // namespace
}  // namespace penstock
