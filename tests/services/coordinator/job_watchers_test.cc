#include "services/coordinator/job_watchers.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

TEST(JobWatchers, Wake_ReachesTheJobsWatchersOnly) {
  JobWatchers watchers;
  int a_woken = 0, b_woken = 0;
  const auto a = std::make_shared<WakeTarget>([&] { ++a_woken; });
  const auto b = std::make_shared<WakeTarget>([&] { ++b_woken; });
  watchers.Add("a", StreamWaker(a));
  watchers.Add("b", StreamWaker(b));
  watchers.Wake("a");
  watchers.Wake("other");
  EXPECT_EQ(a_woken, 1);
  EXPECT_EQ(b_woken, 0);
}

// Of a job that has ended there is no event any more at which its watchers could be forgotten.
TEST(JobWatchers, Add_ForgetsTheWatchersOfEndedJobs) {
  JobWatchers watchers;
  for (int job = 0; job < 1000; ++job) {
    const auto stream = std::make_shared<WakeTarget>([] {});
    watchers.Add(absl::StrCat("job-", job), StreamWaker(stream));
    EXPECT_EQ(watchers.jobs(), 1u);
  }
}

}  // namespace
}  // namespace penstock
