#include "services/coordinator/finished_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/job_state.h"
#include "tests/support/manual_clock.h"

namespace penstock {
namespace {

using ::testing::IsEmpty;

constexpr int64_t kMinuteNs = 60'000'000'000;

class FinishedJobsTest : public ::testing::Test {
 protected:
  // A job that has ended now.
  void End(const std::string& id) {
    v1::JobSummary& job = *jobs_.add_jobs();
    job.set_job_id(id);
    job.set_state(v1::JOB_STATE_SUCCEEDED);
    job.set_ended_unix_ms(UnixMs());
  }
  int64_t UnixMs() { return absl::ToUnixMillis(clock_.WallTime()); }
  const std::map<std::string, v1::JobResult>& Shown() {
    return finished_.At(jobs_, UnixMs(), [this](const std::string& id) {
      ++reads_;
      return stored_.contains(id) ? absl::StatusOr<v1::GetJobResponse>(stored_[id])
                                  : absl::NotFoundError(id);
    });
  }
  void Store(const v1::JobSummary& job) {
    v1::GetJobResponse& record = stored_[job.job_id()];
    *record.mutable_summary() = job;
    record.mutable_result()->set_steps(7);
    record.mutable_result()->add_losses()->set_step(1);
  }

  ManualClock clock_{1'700'000'000'000'000'000};
  v1::ListJobsResponse jobs_;
  std::map<std::string, v1::GetJobResponse> stored_;
  FinishedJobs finished_;
  int reads_ = 0;
};

TEST_F(FinishedJobsTest, EndedJob_IsReadOnceAndStaysFiveMinutes) {
  End("j1");
  Store(jobs_.jobs(0));
  ASSERT_EQ(Shown().count("j1"), 1u);
  EXPECT_EQ(Shown().at("j1").steps(), 7);
  EXPECT_EQ(Shown().at("j1").losses_size(), 0) << "nobody needs the curve";
  EXPECT_EQ(reads_, 1);
  clock_.now_ns += 5 * kMinuteNs - 1'000'000;
  EXPECT_EQ(Shown().count("j1"), 1u);
  clock_.now_ns += 1'000'000;
  EXPECT_THAT(Shown(), IsEmpty());
  EXPECT_EQ(reads_, 1);
}

TEST_F(FinishedJobsTest, RecordFromBeforeTheEnd_IsReadAgain) {
  End("j1");
  EXPECT_THAT(Shown(), IsEmpty()) << "it is not written yet";
  v1::JobSummary running = jobs_.jobs(0);
  running.clear_ended_unix_ms();
  Store(running);
  EXPECT_THAT(Shown(), IsEmpty());
  Store(jobs_.jobs(0));
  EXPECT_EQ(Shown().count("j1"), 1u);
}

TEST_F(FinishedJobsTest, JobUnderWay_IsNotReadAtAll) {
  jobs_.add_jobs()->set_job_id("j1");
  EXPECT_THAT(Shown(), IsEmpty());
  EXPECT_EQ(reads_, 0);
}

}  // namespace
}  // namespace penstock
