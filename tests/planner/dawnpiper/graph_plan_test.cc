#include "planner/dawnpiper/graph_plan.h"

#include <gtest/gtest.h>

#include <limits>

#include "planner/graph/limits.h"
#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

ChainPlanRequest RequestFor(const LayerGraph& graph, double memory_bytes, ChainPlanner planner) {
  ChainPlanRequest request = {.cluster = UniformCluster(1, 4, kInfinity, 1.25e9),
                              .memory = GuessMemory(graph, 1),
                              .rule = {.versions = KeptVersions::kOne},
                              .planner = planner,
                              .host_bytes_per_second = 12e9};
  for (PlanWorker& worker : request.cluster.workers) worker.memory_bytes = memory_bytes;
  return request;
}

TEST(PlanChain, PublishedProfiles_BestCutsAreNeverWorse) {
  for (const char* profile : {"vgg16.txt", "gnmt.txt", "resnet50.txt"}) {
    const LayerGraph graph = PublishedProfile(profile);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const StagePlan free,
        PlanChain(graph, RequestFor(graph, kInfinity, ChainPlanner::kBestCuts)));
    EXPECT_TRUE(free.is_optimal);
    double needed = 0;
    for (const PlannedStage& stage : free.stages) needed = std::max(needed, stage.memory_bytes);
    for (const double share : {1.0, 0.6}) {
      const auto own = PlanChain(graph, RequestFor(graph, share * needed, ChainPlanner::kBestCuts));
      const auto dawn =
          PlanChain(graph, RequestFor(graph, share * needed, ChainPlanner::kDawnPiper));
      if (!dawn.ok()) continue;
      ASSERT_THAT(own.status(), IsOk()) << profile;
      EXPECT_LE(own->period_s, dawn->period_s) << profile << " " << share;
      size_t nodes = 0;
      for (const PlannedStage& stage : dawn->stages) {
        nodes += stage.nodes.size();
        EXPECT_LE(stage.memory_bytes, share * needed) << profile;
      }
      EXPECT_EQ(nodes, graph.nodes.size());
    }
  }
}

TEST(PlanChain, RefusesWhatDoesNotFit) {
  const LayerGraph graph = PublishedProfile("vgg16.txt");
  EXPECT_THAT(PlanChain(graph, RequestFor(graph, 1e6, ChainPlanner::kDawnPiper)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("4 stages")));
  ChainPlanRequest request = RequestFor(graph, 1e12, ChainPlanner::kDawnPiper);
  request.memory.pop_back();
  EXPECT_THAT(PlanChain(graph, request).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("memory")));
}

}  // namespace
}  // namespace penstock
