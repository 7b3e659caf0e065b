// Cuts of a job for workers of limited memory: DawnPiper's, and plans that have to be as good.
#include "planner/job/memory_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "planner/job/plan_job.h"
#include "tests/planner/job/planning_input.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

const Candidate kFour = {.method = "1f1b", .stages = 4, .microbatches = 8};

// Workers with a share of what the fullest needs when everything is kept.
Cluster Limited(double share) {
  const absl::StatusOr<JudgedCandidate> kept =
      JudgeCandidate(InputOf(kPlannedJob, Alike(4)), kFour);
  EXPECT_THAT(kept, IsOk());
  Cluster cluster = Alike(4);
  for (PlanWorker& worker : cluster.workers) {
    worker.memory_bytes = share * static_cast<double>(kept->most_memory());
  }
  return cluster;
}

TEST(SplitForMemory, WithRoom_KeepsEverythingAndRuns) {
  for (const ChainPlanner planner : {ChainPlanner::kDawnPiper, ChainPlanner::kBestCuts}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate judged,
                                  SplitForMemory(InputOf(kPlannedJob, Alike(4)), kFour, planner));
    EXPECT_EQ(judged.rejected, "");
    EXPECT_TRUE(judged.candidate.recompute.none());
    EXPECT_THAT(ValidateJob(judged.spec), IsOk());
    EXPECT_EQ(judged.spec.pipeline().stage_layers_size(), 4);
  }
}

TEST(SplitForMemory, WithoutRoom_SaysSo) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JudgedCandidate judged,
      SplitForMemory(InputOf(kPlannedJob, Limited(0.01)), kFour, ChainPlanner::kDawnPiper));
  EXPECT_FALSE(judged.runs());
  EXPECT_THAT(judged.rejected, HasSubstr("fits"));
}

TEST(SplitForMemory, OtherPlacements_AreRefused) {
  Candidate candidate = {.method = "interleaved-1f1b", .stages = 4, .microbatches = 8};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JudgedCandidate judged,
      SplitForMemory(InputOf(kPlannedJob, Alike(2)), candidate, ChainPlanner::kDawnPiper));
  EXPECT_THAT(judged.rejected, HasSubstr("one stage on each"));
}

// Less and less memory, layers of unlike times: what runs fits to the byte, and the planner's own choice of the same method is never
// slower.
TEST(PlanJob, EqualMemory_IsNeverSlowerThanDawnPiper) {
  RandomStream random(3, 1);
  int both = 0;
  int recomputed = 0;
  for (int round = 0; round < 3; ++round) {
    std::map<std::string, double> slow;
    // Layers of one shape take equally long.
    for (const char* layer : {"h.0.attention", "h.0.mlp", "head"}) {
      slow[layer] = 0.5 + 3 * random.Uniform();
    }
    for (const double share : {1.3, 1.1, 0.9, 0.8}) {
      const PlanningInput input = InputOf(kPlannedJob, Limited(share), slow);
      const PlanJobOptions options = {.methods = {"1f1b"}, .stages = {4}};
      PlanJobOptions theirs = options;
      theirs.as_dawnpiper = true;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan dawn, PlanJob(input, theirs, Unlimited()));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan own, PlanJob(input, options, Unlimited()));
      for (const JudgedCandidate& judged : dawn.candidates) {
        if (!judged.runs()) continue;
        for (const WorkerMemory& memory : judged.memory) {
          EXPECT_LE(static_cast<double>(memory.total()), input.cluster.workers[0].memory_bytes);
        }
        if (!judged.candidate.recompute.none()) ++recomputed;
      }
      if (!dawn.fastest.has_value()) continue;
      ++both;
      ASSERT_TRUE(own.fastest.has_value()) << round << " " << share;
      EXPECT_LE(own.candidates[*own.fastest].step_s,
                dawn.candidates[*dawn.fastest].step_s * (1 + 1e-9))
          << round << " " << share;
    }
  }
  EXPECT_GT(both, 5);
  EXPECT_GT(recomputed, 0);
}

}  // namespace
}  // namespace penstock
