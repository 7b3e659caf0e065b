#include "services/coordinator/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class JobStoreTest : public ::testing::Test {
 protected:
  const TestDirectory own_;
  const std::filesystem::path directory_ = own_.path();
  const std::string path_ = directory_ / "state.sqlite";
};

SaveJob Job(const std::string& job_id, v1::JobState state, const std::string& key = "") {
  SaveJob job;
  job.record.mutable_summary()->set_job_id(job_id);
  job.record.mutable_summary()->set_state(state);
  job.idempotency_key = key;
  return job;
}

PublishEvent Event(const std::string& job_id, int64_t sequence) {
  PublishEvent event{job_id, {}};
  event.event.set_sequence(sequence);
  event.event.set_log(absl::StrCat("event ", sequence));
  return event;
}

TEST_F(JobStoreTest, Records_SurviveReopeningInTheOrderOfSubmission) {
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    const SaveJob z = Job("z-1", v1::JOB_STATE_QUEUED, "key"), a = Job("a-2", v1::JOB_STATE_QUEUED);
    const SaveJob later = Job("z-1", v1::JOB_STATE_RUNNING);
    const PublishEvent one = Event("z-1", 1), two = Event("z-1", 2);
    ASSERT_THAT(store.Write({{.job = &z}, {.job = &a}, {.event = &one}}), IsOk());
    ASSERT_THAT(store.Write({{.event = &two}, {.job = &later}}), IsOk());
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store.Load());
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].record.summary().job_id(), "z-1");
  EXPECT_EQ(jobs[0].record.summary().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(jobs[0].idempotency_key, "key") << "a later save without a key keeps it";
  EXPECT_EQ(jobs[0].last_sequence, 2);
  EXPECT_EQ(jobs[1].record.summary().job_id(), "a-2");
  EXPECT_EQ(jobs[1].last_sequence, 0);
}

KeepLayerTimes Times(const std::string& key, const std::string& device) {
  KeepLayerTimes keep{.key = key};
  keep.times.set_device(device);
  return keep;
}

TEST_F(JobStoreTest, LayerTimes_SurviveReopeningAndTheLatestCount) {
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    const KeepLayerTimes a = Times("a", "old"), b = Times("b", "other"), later = Times("a", "new");
    ASSERT_THAT(store.Write({{.layer_times = &a}, {.layer_times = &b}}), IsOk());
    ASSERT_THAT(store.Write({{.layer_times = &later}}), IsOk());
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::DeviceProfile a, store.ReadLayerTimes("a"));
  EXPECT_EQ(a.device(), "new");
  EXPECT_THAT(store.ReadLayerTimes("b"), IsOk());
  EXPECT_THAT(store.ReadLayerTimes("c"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such")));
}

TEST_F(JobStoreTest, LayerTimes_BeyondTheLimitTheOldestGo) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(""));
  for (int i = 0; i < JobStore::kLayerTimesMax + 2; ++i) {
    const KeepLayerTimes times = Times(absl::StrCat("key ", i), "device");
    ASSERT_THAT(store.Write({{.layer_times = &times}}), IsOk());
  }
  EXPECT_THAT(store.ReadLayerTimes("key 1"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such")));
  EXPECT_THAT(store.ReadLayerTimes("key 2"), IsOk());
}

// A changed bit may still be a message.
TEST_F(JobStoreTest, LayerTimesThatWereChanged_AreNotTrusted) {
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    const KeepLayerTimes times = Times("a", "cpu");
    ASSERT_THAT(store.Write({{.layer_times = &times}}), IsOk());
  }
  for (const char* change : {"times = cast(replace(cast(times AS TEXT), 'cpu', 'gpu') AS BLOB)",
                             "times = x'ff'", "sha256 = ''"}) {
    {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path_));
      ASSERT_THAT(database.Execute(absl::StrCat("UPDATE layer_times SET ", change)), IsOk());
    }
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    EXPECT_THAT(store.ReadLayerTimes("a"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)))
        << change;
    const KeepLayerTimes again = Times("a", "cpu");
    ASSERT_THAT(store.Write({{.layer_times = &again}}), IsOk());
    EXPECT_THAT(store.ReadLayerTimes("a"), IsOk()) << change;
  }
}

TEST_F(JobStoreTest, FileOfVersion1_KeepsItsJobsAndTakesLayerTimes) {
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    const SaveJob job = Job("a-1", v1::JOB_STATE_QUEUED);
    ASSERT_THAT(store.Write({{.job = &job}}), IsOk());
  }
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path_));
    ASSERT_THAT(database.Execute("DROP TABLE layer_times; PRAGMA user_version = 1;"), IsOk());
  }
  for (int opening = 0; opening < 2; ++opening) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store.Load());
    EXPECT_EQ(jobs.size(), 1u);
    const KeepLayerTimes times = Times("a", "cpu");
    EXPECT_THAT(store.Write({{.layer_times = &times}}), IsOk());
  }
}

TEST_F(JobStoreTest, Events_ComeInPagesAfterASequence) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(""));
  for (int64_t i = 1; i <= 10; ++i) {
    const PublishEvent event = Event("j", i), other = Event("k", i);
    ASSERT_THAT(store.Write({{.event = &event}, {.event = &other}}), IsOk());
    ASSERT_THAT(store.Write({{.event = &event}}), IsOk()) << "again";
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto page, store.ReadEvents("j", 3, 4));
  ASSERT_EQ(page.size(), 4u);
  EXPECT_EQ(page.front().sequence(), 4);
  EXPECT_EQ(page.back().log(), "event 7");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto none, store.ReadEvents("j", 10, 4));
  EXPECT_TRUE(none.empty());
}

TEST_F(JobStoreTest, Timeline_IsKeptWithItsJob) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(""));
  const SaveJob job = Job("j", v1::JOB_STATE_RUNNING);
  JobStore::Change::Timeline timeline{.job_id = "j"};
  timeline.timeline.set_workers(3);
  ASSERT_THAT(store.Write({{.job = &job}}), IsOk());
  EXPECT_THAT(store.ReadTimeline("j"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("job j")));
  ASSERT_THAT(store.Write({{.timeline = &timeline}, {.job = &job}}), IsOk());
  EXPECT_EQ(store.ReadTimeline("j")->workers(), 3);
  EXPECT_THAT(store.ReadRecord("nope"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nope")));
}

TEST_F(JobStoreTest, SecondOpener_IsRefused) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
  EXPECT_THAT(JobStore::Open(path_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does another coordinator use this file?")));
}

TEST_F(JobStoreTest, MissingDirectory_IsNotFound) {
  EXPECT_THAT(JobStore::Open(directory_ / "none" / "state.sqlite").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("does its directory exist?")));
}

TEST_F(JobStoreTest, OtherFiles_AreRefusedUnchanged) {
  const std::string text(5000, 'x');
  std::ofstream(path_) << text;
  EXPECT_THAT(JobStore::Open(path_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
  EXPECT_EQ(std::filesystem::file_size(path_), text.size());

  const std::string other = directory_ / "other.sqlite";
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(other));
    ASSERT_THAT(database.Execute("CREATE TABLE photos(name TEXT)"), IsOk());
  }
  EXPECT_THAT(JobStore::Open(other).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not a coordinator's")));
}

TEST_F(JobStoreTest, LaterVersion_IsRefusedByName) {
  { PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_)); }
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path_));
    ASSERT_THAT(database.Execute("PRAGMA user_version = 99"), IsOk());
  }
  EXPECT_THAT(JobStore::Open(path_).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("version 99")));
}

// Whatever is cut off the end of the log, what comes back is a state that was once written.
TEST_F(JobStoreTest, LogCutShort_LosesTheEndOnly) {
  constexpr int kJobs = 20;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
  for (int i = 1; i <= kJobs; ++i) {
    const SaveJob job = Job(absl::StrCat("j-", i), v1::JOB_STATE_QUEUED);
    ASSERT_THAT(store.Write({{.job = &job}}), IsOk());
  }
  const std::string log = path_ + "-wal";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(log));
  int most = 0;
  for (int64_t kept = 0; kept <= size; kept += size / 37) {
    const std::filesystem::path copy = directory_ / absl::StrCat("copy-", kept);
    std::filesystem::copy_file(path_, copy);
    std::filesystem::copy_file(log, copy.string() + "-wal");
    std::filesystem::resize_file(copy.string() + "-wal", kept);
    absl::StatusOr<JobStore> opened = JobStore::Open(copy);
    ASSERT_THAT(opened, IsOk()) << kept;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, opened->Load());
    EXPECT_GE(static_cast<int>(jobs.size()), most);
    most = static_cast<int>(jobs.size());
    for (int i = 0; i < most; ++i) {
      EXPECT_EQ(jobs[i].record.summary().job_id(), absl::StrCat("j-", i + 1));
    }
  }
  EXPECT_GT(most, kJobs - 3);
}

}  // namespace
}  // namespace penstock
