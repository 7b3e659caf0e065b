#include "services/coordinator/live_runs.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "tests/support/manual_clock.h"

namespace penstock {
namespace {

class LiveRunsTest : public ::testing::Test {
 protected:
  std::shared_ptr<const LiveRun> Look(const std::string& job_id = "j", int64_t attempt = 0) {
    return live_.Look(job_id, attempt, v1::Plan(), absl::ZeroDuration());
  }
  // The oldest gathering ends.
  void Answer(int64_t gathered_ns) {
    asked_.front().done({.gathered_ns = gathered_ns});
    asked_.pop_front();
  }
  void Pass(absl::Duration time) { clock_.now_ns += absl::ToInt64Nanoseconds(time); }

  struct Asked {
    std::string job_id;
    std::function<void(LiveRun)> done;
  };
  ManualClock clock_;
  std::deque<Asked> asked_;
  LiveRuns live_{clock_, [this](const std::string& job_id, const v1::Plan&, absl::Duration,
                                std::function<void(LiveRun)> done) {
                   asked_.push_back({job_id, std::move(done)});
                 }};
};

TEST_F(LiveRunsTest, FirstLook_AsksTheWorkersAndDoesNotWait) {
  EXPECT_EQ(Look(), nullptr);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].job_id, "j");
  Answer(7);
  EXPECT_EQ(Look()->gathered_ns, 7);
}

TEST_F(LiveRunsTest, ManyLooks_AskOnceInAnInterval) {
  for (int i = 0; i < 100; ++i) Look();
  EXPECT_EQ(asked_.size(), 1u);
  Answer(1);
  for (int i = 0; i < 100; ++i) Look();
  EXPECT_TRUE(asked_.empty());
  Pass(LiveRuns::kRefreshInterval);
  EXPECT_EQ(Look()->gathered_ns, 1);  // the old one, while the next is under way
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(LiveRunsTest, SlowWorkers_AreNotAskedAgainMeanwhile) {
  Look();
  Pass(10 * LiveRuns::kRefreshInterval);
  Look();
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(LiveRunsTest, NobodyLooks_IsForgotten) {
  Look();
  Answer(1);
  Pass(LiveRuns::kForgetAfter + absl::Seconds(1));
  Look("another");
  EXPECT_EQ(Look(), nullptr);
}

TEST_F(LiveRunsTest, ManyJobs_KeepThoseLookedAtLast) {
  for (size_t i = 0; i <= LiveRuns::kJobsMax; ++i) {
    Look(std::to_string(i));
    Answer(static_cast<int64_t>(i) + 1);
    Pass(absl::Milliseconds(1));
  }
  EXPECT_EQ(Look(std::to_string(LiveRuns::kJobsMax))->gathered_ns, int64_t{LiveRuns::kJobsMax} + 1);
  EXPECT_EQ(Look("0"), nullptr);
}

TEST_F(LiveRunsTest, JobThatBeganAnew_ShowsNothingOfItsEarlierAttempt) {
  Look();
  Answer(1);
  EXPECT_EQ(Look("j", 1), nullptr);
  ASSERT_EQ(asked_.size(), 1u) << "the workers are others, and asked at once";
  // One of the earlier attempt that comes late.
  Look("k");
  Look("k", 1);
  ASSERT_EQ(asked_.size(), 3u);
  Answer(2);
  Answer(3);
  EXPECT_EQ(Look("j", 1)->gathered_ns, 2);
  EXPECT_EQ(Look("k", 1), nullptr);
  Answer(4);
  EXPECT_EQ(Look("k", 1)->gathered_ns, 4);
}

TEST_F(LiveRunsTest, AnswerAfterBeingForgotten_ChangesNothing) {
  Look();
  Pass(LiveRuns::kForgetAfter + absl::Seconds(1));
  Look("another");
  Answer(1);  // of "j"
  EXPECT_EQ(Look("another"), nullptr);
}

}  // namespace
}  // namespace penstock
