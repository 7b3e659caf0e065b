#include "services/metrics/finished_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/manual_clock.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kMinuteNs = 60'000'000'000;

RunSnapshot RunOf(const std::string& job, int64_t epoch, bool running = false) {
  RunSnapshot run = {.worker = "w", .job_id = job, .epoch = epoch, .running = running};
  run.stages.emplace_back();
  return run;
}

class FinishedRunsTest : public ::testing::Test {
 protected:
  // "job.epoch" of each that is shown.
  std::vector<std::string> Shown(const RunSnapshot& current) {
    std::vector<std::string> shown;
    for (const RunSnapshot& run : finished_.Show(current, clock_.now_ns)) {
      shown.push_back(absl::StrCat(run.job_id, ".", run.epoch, run.running ? " runs" : ""));
    }
    return shown;
  }

  ManualClock clock_{kMinuteNs};
  FinishedRuns finished_;
};

TEST_F(FinishedRunsTest, FinishedRun_StaysFiveMinutes) {
  finished_.Add(RunOf("j1", 1, true), clock_.now_ns);
  EXPECT_THAT(Shown(RunOf("j1", 1)), ElementsAre("j1.1"));
  clock_.now_ns += 5 * kMinuteNs - 1;
  EXPECT_THAT(Shown(RunOf("j1", 1)), ElementsAre("j1.1"));
  clock_.now_ns += 1;
  EXPECT_THAT(Shown(RunOf("j1", 1)), IsEmpty());
}

TEST_F(FinishedRunsTest, NextJob_IsShownBesideIt) {
  EXPECT_THAT(Shown(RunOf("j1", 1, true)), ElementsAre("j1.1 runs"));
  finished_.Add(RunOf("j1", 1), clock_.now_ns);
  EXPECT_THAT(Shown(RunOf("j2", 1, true)), ElementsAre("j1.1", "j2.1 runs"));
}

TEST_F(FinishedRunsTest, RunThatEndsJustNow_IsShownOnce) {
  finished_.Add(RunOf("j1", 1), clock_.now_ns);
  EXPECT_THAT(Shown(RunOf("j1", 1, true)), ElementsAre("j1.1"));
}

TEST_F(FinishedRunsTest, LaterAttempt_TakesThePlaceOfTheEarlier) {
  finished_.Add(RunOf("j1", 1), clock_.now_ns);
  RunSnapshot preparing = RunOf("j1", 2, true);
  preparing.stages.clear();
  EXPECT_THAT(Shown(preparing), ElementsAre("j1.1")) << "it has nothing to show yet";
  EXPECT_THAT(Shown(RunOf("j1", 2, true)), ElementsAre("j1.2 runs"));
  finished_.Add(RunOf("j1", 2), clock_.now_ns);
  EXPECT_THAT(Shown(RunOf("j1", 2)), ElementsAre("j1.2"));
}

TEST_F(FinishedRunsTest, ManyShortJobs_AreBounded) {
  for (int job = 0; job < 100; ++job) {
    finished_.Add(RunOf(absl::StrCat("j", job), 1), clock_.now_ns);
  }
  const std::vector<std::string> shown = Shown(RunOf("j99", 1));
  EXPECT_THAT(shown, SizeIs(FinishedRuns::kRunsMax));
  EXPECT_EQ(shown.back(), "j99.1");
}

}  // namespace
}  // namespace penstock
