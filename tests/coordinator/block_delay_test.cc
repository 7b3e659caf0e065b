// The measured block delay of jobs: when workers are asked, and what becomes of their answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/block_delay_watch.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLimitMs = 600'000;
constexpr int64_t kSteps = 100;  // of 4 microbatches and 100 ms

v1::JobSpec JobOf(const std::string& method) {
  v1::JobSpec spec = SmallJob(kSteps, 2);
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_pipeline()->set_method(method);
  return spec;
}

// PipeDream on two stages in slots of 12.5 ms, where an update comes at the end of its backward's slot. So between the
// forward of a microbatch on stage 0 and its updates are 2 (of stage 1) and 3, between that on stage 1 and them 1 and 2.
Timeline PipeDreamOnTwoStages() {
  constexpr int64_t kSlotNs = 12'500'000;
  Timeline timeline = {.workers = 2};
  const auto add = [&](int32_t stage, ActionKind kind, int64_t microbatch, int64_t start_ns,
                       int64_t end_ns) {
    timeline.spans.push_back({.worker = WorkerId(stage),
                              .action = {kind, stage, microbatch},
                              .start_ns = start_ns,
                              .end_ns = end_ns});
  };
  for (int64_t m = 0; m < 4 * kSteps; ++m) {
    for (const int32_t stage : {0, 1}) {
      const int64_t forward_ns = (2 * m + stage) * kSlotNs;
      const int64_t backward_ns = (2 * m + 3 - stage) * kSlotNs;
      add(stage, ActionKind::kForward, m, forward_ns, forward_ns + kSlotNs - 3);
      add(stage, ActionKind::kBackwardWeight, m, backward_ns, backward_ns + kSlotNs - 3);
      add(stage, ActionKind::kUpdate, 0, backward_ns + kSlotNs - 3, backward_ns + kSlotNs - 2);
    }
  }
  return timeline;
}

class BlockDelayOfJobs : public ::testing::Test {
 protected:
  BlockDelayOfJobs() {
    cluster_.timeline_of = [this](const GatherPasses& gather) {
      EXPECT_EQ(gather.plan.stages_size(), 2);
      const int64_t now_ns = cluster_.now().monotonic_ns;
      if (asked_.empty()) began_ns_ = now_ns - gather.last_ns;
      asked_.push_back(gather.last_ns);
      Timeline passes = {.workers = whole_.workers};
      for (Span span : whole_.spans) {
        span.start_ns += began_ns_;
        span.end_ns += began_ns_;
        if (span.end_ns >= now_ns - gather.last_ns && span.end_ns <= now_ns) {
          passes.spans.push_back(span);
        }
      }
      return passes;
    };
    cluster_.RunFor(10);
  }

  const Timeline whole_ = PipeDreamOnTwoStages();
  SimulatedCluster cluster_{{.workers = 2, .step_ms = 100}};
  int64_t began_ns_ = 0;
  std::vector<int64_t> asked_;  // lengths
};

TEST_F(BlockDelayOfJobs, AsynchronousJob_IsMeasuredWhileItRunsAndKeepsItAtItsEnd) {
  const std::string job = cluster_.Submit(JobOf("pipedream"));
  ASSERT_TRUE(cluster_.RunUntil([&] { return asked_.size() >= 2; }));
  cluster_.RunFor(10);
  const v1::JobResult live = cluster_.coordinator().FindRun(job)->Record().result();
  EXPECT_EQ(live.block_delay().max(), 3);
  ASSERT_TRUE(live.has_block_delay_measured());
  EXPECT_EQ(live.block_delay_measured().max(), 3);
  EXPECT_DOUBLE_EQ(live.block_delay_measured().mean(), 2);
  ASSERT_EQ(live.block_delays_measured_size(), 2);
  const auto count_of = [](const v1::JobResult& result) {
    int64_t count = 0;
    for (const v1::DelayCounts& stage : result.block_delays_measured()) {
      for (const int64_t microbatches : stage.microbatches()) count += microbatches;
    }
    return count;
  };
  const int64_t early = count_of(live);
  EXPECT_GT(early, 100);

  ASSERT_TRUE(cluster_.RunUntilOver(kLimitMs));
  EXPECT_EQ(asked_.size(), 5u) << "every two seconds of a little more than ten";
  const v1::JobResult& kept = cluster_.Saved(job).result();
  EXPECT_GT(count_of(kept), early);
  EXPECT_DOUBLE_EQ(kept.block_delay_measured().mean(), 2);
  EXPECT_THAT(cluster_.violations(), ElementsAre());
}

TEST_F(BlockDelayOfJobs, SynchronousJob_AsksForNoPassesAndHasNone) {
  const std::string job = cluster_.Submit(JobOf("1f1b"));
  ASSERT_TRUE(cluster_.RunUntilOver(kLimitMs));
  EXPECT_THAT(asked_, ElementsAre());
  ASSERT_TRUE(cluster_.Saved(job).result().has_block_delay_measured());
  EXPECT_EQ(cluster_.Saved(job).result().block_delay_measured().max(), 0);
}

TEST_F(BlockDelayOfJobs, SampledWeights_AskForNoPassesAndHaveWhatWasSampled) {
  const std::string job = cluster_.Submit(JobOf("rpd"));
  ASSERT_TRUE(cluster_.RunUntilOver(kLimitMs));
  EXPECT_THAT(asked_, ElementsAre());
  const v1::JobResult& result = cluster_.Saved(job).result();
  EXPECT_EQ(result.block_delay_measured().max(), result.block_delay().max());
  EXPECT_NEAR(result.block_delay_measured().mean(), result.block_delay().mean(), 0.2);
}

TEST_F(BlockDelayOfJobs, WorkersThatTellNothing_LeaveItUnknown) {
  cluster_.timeline_of = nullptr;
  const std::string job = cluster_.Submit(JobOf("pipedream"));
  ASSERT_TRUE(cluster_.RunUntilOver(kLimitMs));
  EXPECT_FALSE(cluster_.Saved(job).result().has_block_delay_measured());
}

TEST(WriteBlockDelay, DelaysBeyondTheLongest_AreToldTogether) {
  const BlockDelay delay = {.max = 4, .mean = 2, .count = 6, .pairs = {{1, 0, 2}, {0, 1, 0, 1, 1}}};
  v1::Statistic statistic;
  google::protobuf::RepeatedPtrField<v1::DelayCounts> counts;
  WriteBlockDelay(delay, 2, statistic, counts);
  ASSERT_EQ(counts.size(), 2);
  EXPECT_THAT(counts[0].microbatches(), ElementsAre(1, 0, 2, 0));
  EXPECT_EQ(counts[0].sum(), 4);
  EXPECT_THAT(counts[1].microbatches(), ElementsAre(0, 1, 0, 2));
  EXPECT_EQ(counts[1].sum(), 8);
  EXPECT_EQ(statistic.max(), 4);
}

}  // namespace
}  // namespace penstock
