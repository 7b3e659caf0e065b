#include "services/coordinator/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tests/services/coordinator/state_store_suite.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SqliteHost final : public StateStoreHost {
 public:
  absl::StatusOr<std::unique_ptr<StateStore>> Open() override {
    PENSTOCK_ASSIGN_OR_RETURN(JobStore store, JobStore::Open(own_.path() / "state.sqlite"));
    return std::make_unique<JobStore>(std::move(store));
  }
  void DamageRecord(const std::string& job_id) override {
    Execute(absl::StrCat("UPDATE jobs SET record = x'00' WHERE job_id = '", job_id, "'"));
  }
  void RemoveEvent(const std::string& job_id, int64_t sequence) override {
    Execute(
        absl::StrCat("DELETE FROM events WHERE job_id = '", job_id, "' AND sequence = ", sequence));
  }

 private:
  void Execute(const std::string& statement) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase database,
                                  SqliteDatabase::Open(own_.path() / "state.sqlite"));
    ASSERT_THAT(database.Execute(statement), IsOk());
  }

  const TestDirectory own_;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, StateStoreSuite,
                         ::testing::Values([] { return std::make_unique<SqliteHost>(); }));

class JobStoreTest : public ::testing::Test {
 protected:
  const TestDirectory own_;
  const std::filesystem::path directory_ = own_.path();
  const std::string path_ = directory_ / "state.sqlite";
};

// A changed bit may still be a message.
TEST_F(JobStoreTest, LayerTimesThatWereChanged_AreNotTrusted) {
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    const KeepLayerTimes times = StoredTimesOf("a", "cpu");
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
    const KeepLayerTimes again = StoredTimesOf("a", "cpu");
    ASSERT_THAT(store.Write({{.layer_times = &again}}), IsOk());
    EXPECT_THAT(store.ReadLayerTimes("a"), IsOk()) << change;
  }
}

// As builds made them that knew no digests: version 1 had no layer_times.
TEST_F(JobStoreTest, FileOfAnEarlierVersion_KeepsAllAndGetsDigests) {
  for (const int version : {1, 2}) {
    const std::string path = directory_ / absl::StrCat("version-", version);
    {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path));
      ASSERT_THAT(
          database.Execute(absl::StrCat(
              "CREATE TABLE jobs(number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL "
              "UNIQUE, idempotency_key TEXT, record BLOB NOT NULL, timeline BLOB);"
              "CREATE TABLE events(job_id TEXT NOT NULL, sequence INTEGER NOT NULL, event BLOB NOT "
              "NULL, PRIMARY KEY(job_id, sequence)) WITHOUT ROWID;",
              version == 1
                  ? ""
                  : "CREATE TABLE layer_times(number INTEGER PRIMARY KEY AUTOINCREMENT, key "
                    "TEXT NOT NULL UNIQUE, times BLOB NOT NULL, sha256 TEXT NOT NULL);",
              "PRAGMA user_version = ", version, "; PRAGMA application_id = ", 0x70656e73)),
          IsOk());
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          SqliteStatement job,
          database.Prepare("INSERT INTO jobs(number, job_id, idempotency_key, record, timeline) "
                           "VALUES(?, ?, nullif(?, ''), ?, ?)"));
      v1::GetTimelineResponse timeline;
      timeline.set_workers(3);
      for (const auto& [number, id, key] :
           {std::tuple(4, "z-1", "key"), std::tuple(7, "a-2", "")}) {
        ASSERT_THAT(
            job.BindInt(1, number)
                .BindText(2, id)
                .BindText(3, key)
                .BindBlob(4, StoredJobOf(id, v1::JOB_STATE_QUEUED).record.SerializeAsString())
                .BindBlob(5, timeline.SerializeAsString())
                .Run(),
            IsOk());
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteStatement event,
                                    database.Prepare("INSERT INTO events VALUES(?, ?, ?)"));
      for (const int64_t sequence : {1, 2, 5}) {
        ASSERT_THAT(event.BindText(1, "z-1")
                        .BindInt(2, sequence)
                        .BindBlob(3, StoredEventOf("z-1", sequence).event.SerializeAsString())
                        .Run(),
                    IsOk());
      }
      if (version == 2) {
        PENSTOCK_ASSERT_OK_AND_ASSIGN(
            SqliteStatement times, database.Prepare("INSERT INTO layer_times(key, times, sha256) "
                                                    "VALUES(?, ?, ?)"));
        const std::string bytes = StoredTimesOf("old", "cpu").times.SerializeAsString();
        ASSERT_THAT(times.BindText(1, "old").BindBlob(2, bytes).BindText(3, Sha256Hex(bytes)).Run(),
                    IsOk());
      }
    }
    for (int opening = 0; opening < 2; ++opening) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store.Load());
      ASSERT_EQ(jobs.size(), 2u);
      EXPECT_EQ(jobs[0].record.summary().job_id(), "z-1");
      EXPECT_EQ(jobs[0].idempotency_key, "key");
      EXPECT_EQ(jobs[0].last_sequence, 5);
      EXPECT_EQ(jobs[1].idempotency_key, "");
      EXPECT_EQ(store.ReadEvents("z-1", 0, 10)->size(), 3u);
      EXPECT_EQ(store.ReadTimeline("a-2")->workers(), 3);
      if (version == 2) {
        EXPECT_EQ(store.ReadLayerTimes("old")->device(), "cpu");
      }
      const KeepLayerTimes times = StoredTimesOf("a", "cpu");
      EXPECT_THAT(store.Write({{.layer_times = &times}}), IsOk());
    }
    {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path));
      ASSERT_THAT(database.Execute("DELETE FROM jobs WHERE job_id = 'a-2'"), IsOk());
    }
    EXPECT_THAT(JobStore::Open(path).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("table jobs has 1 rows")));
  }
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
    const SaveJob job = StoredJobOf(absl::StrCat("j-", i), v1::JOB_STATE_QUEUED);
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

// ------------------------------------------------------------------------------------------ damage

// Two jobs with all that a store can have.
class DamagedStoreTest : public JobStoreTest {
 protected:
  DamagedStoreTest() {
    absl::StatusOr<JobStore> store = JobStore::Open(path_);
    EXPECT_THAT(store, IsOk());
    const SaveJob a = StoredJobOf("a-1", v1::JOB_STATE_RUNNING, "key"),
                  b = StoredJobOf("b-2", v1::JOB_STATE_QUEUED);
    JobStore::Change::Timeline timeline{.job_id = "a-1"};
    timeline.timeline.set_workers(3);
    const KeepLayerTimes times = StoredTimesOf("layers", "cpu");
    EXPECT_THAT(
        store->Write({{.job = &a}, {.job = &b}, {.timeline = &timeline}, {.layer_times = &times}}),
        IsOk());
    for (int64_t sequence = 1; sequence <= 6; ++sequence) {
      const PublishEvent event = StoredEventOf("a-1", sequence);
      EXPECT_THAT(store->Write({{.event = &event}}), IsOk());
    }
  }

  absl::Status Execute(const std::string& sql) {
    PENSTOCK_ASSIGN_OR_RETURN(SqliteDatabase database, SqliteDatabase::Open(path_));
    return database.Execute(sql);
  }

  // Everything that is read from a store, or the first error.
  static absl::StatusOr<std::string> ReadAll(const std::string& path) {
    PENSTOCK_ASSIGN_OR_RETURN(JobStore store, JobStore::Open(path));
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredJob> jobs, store.Load());
    std::string all;
    for (const StoredJob& job : jobs) {
      const std::string& job_id = job.record.summary().job_id();
      absl::StrAppend(&all, job.record.DebugString(), job.idempotency_key, job.last_sequence);
      PENSTOCK_ASSIGN_OR_RETURN(const auto events, store.ReadEvents(job_id, 0, 100));
      for (const v1::JobEvent& event : events) absl::StrAppend(&all, event.DebugString());
      const auto timeline = store.ReadTimeline(job_id);
      if (!timeline.ok() && !absl::IsNotFound(timeline.status())) return timeline.status();
      if (timeline.ok()) absl::StrAppend(&all, timeline->DebugString());
    }
    return all;
  }

  // Copies the state with its log and its witness.
  std::string Copy(const std::string& name) const {
    std::filesystem::create_directories(directory_ / name);
    for (const char* ending : {"", "-wal", "-witness"}) {
      const std::string from = path_ + ending;
      if (!std::filesystem::exists(from)) continue;
      std::filesystem::copy_file(from, directory_ / name / absl::StrCat("state.sqlite", ending),
                                 std::filesystem::copy_options::overwrite_existing);
    }
    return directory_ / name / "state.sqlite";
  }

  static void Flip(const std::string& path, int64_t offset, int bit) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const int byte = file.get();
    file.seekp(offset);
    file.put(static_cast<char>(byte ^ (1 << bit)));
  }
};

TEST_F(DamagedStoreTest, AnyChangeBySql_IsRefusedNamingTableAndKey) {
  for (const auto& [change, said] : std::vector<std::pair<std::string, std::string>>{
           {"UPDATE jobs SET record = x'00' WHERE job_id = 'b-2'", "table jobs, row 2, job b-2"},
           {"UPDATE jobs SET idempotency_key = 'kex' WHERE number = 1", "table jobs, row 1"},
           {"UPDATE jobs SET job_id = 'c-2' WHERE number = 2", "table jobs, row 2, job c-2"},
           {"UPDATE jobs SET number = 9 WHERE number = 2", "table jobs, row 9, job b-2"},
           {"DELETE FROM jobs WHERE number = 2", "table jobs has 1 rows, and was sealed with 2"},
           {"DELETE FROM jobs", "table jobs has 0 rows"},
           {"DELETE FROM timelines", "table timelines has 0 rows"},
           {"UPDATE timelines SET digest = x'00'", "table timelines has 1 rows"},
           {"UPDATE timelines SET job_id = 'b-2'", "table timelines has 1 rows"},
           {"DELETE FROM seal", "table seal, row 1: it is missing"},
           {"UPDATE seal SET jobs = 1", "table seal, row 1: it is damaged"},
           {"UPDATE event_heads SET last_sequence = 5", "table event_heads, job a-1"},
           {"DELETE FROM event_heads", "table events, job a-1: its last event is 6"},
           {"DELETE FROM events WHERE sequence = 6", "table events, job a-1: its last event is 5"},
           {"DROP TABLE jobs", "jobs"},
           {"PRAGMA user_version = 2", "has the tables of version 3"}}) {
    const std::string good = Copy("good");
    ASSERT_THAT(Execute(change), IsOk());
    const absl::Status status = JobStore::Open(path_).status();
    EXPECT_FALSE(status.ok()) << change;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr(said))) << change;
    std::filesystem::copy_file(good, path_, std::filesystem::copy_options::overwrite_existing);
    EXPECT_THAT(JobStore::Open(path_), IsOk());
  }
}

TEST_F(DamagedStoreTest, RowsThatAreReadLater_AreRefusedThen) {
  for (const auto& [change, said] : std::vector<std::pair<std::string, std::string>>{
           {"UPDATE events SET event = x'' WHERE sequence = 3", "event 3 of job a-1: is damaged"},
           {"UPDATE events SET previous = 1 WHERE sequence = 3", "event 3 of job a-1: is damaged"},
           {"DELETE FROM events WHERE sequence = 3", "event 3 of job a-1: is missing"},
           {"DELETE FROM events WHERE sequence < 3", "event 2 of job a-1: is missing"},
           {"UPDATE timelines SET timeline = x'00'", "table timelines, job a-1"}}) {
    const std::string good = Copy("good");
    ASSERT_THAT(Execute(change), IsOk());
    EXPECT_THAT(ReadAll(path_).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(path_), HasSubstr(said), HasSubstr("--drop-damaged"))))
        << change;
    std::filesystem::copy_file(good, path_, std::filesystem::copy_options::overwrite_existing);
  }
}

TEST_F(DamagedStoreTest, AnyFlippedBitOfTheFile_IsRefusedOrChangesNothing) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string good, ReadAll(path_));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_));
  RandomStream random(1, 7);
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto offset = static_cast<int64_t>(random.Below(size));
    const int bit = static_cast<int>(random.Below(8));
    const std::string path = Copy("flipped");
    Flip(path, offset, bit);
    const absl::StatusOr<std::string> read = ReadAll(path);
    refused += !read.ok();
    EXPECT_TRUE(!read.ok() || *read == good) << "bit " << bit << " of byte " << offset << *read;
    std::filesystem::remove_all(directory_ / "flipped");
  }
  EXPECT_GT(refused, 0);
}

TEST_F(DamagedStoreTest, AnyDamageOfTheLog_IsRefusedOrChangesNothing) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
  for (int i = 3; i <= 12; ++i) {
    const SaveJob job = StoredJobOf(absl::StrCat("j-", i), v1::JOB_STATE_QUEUED);
    ASSERT_THAT(store.Write({{.job = &job}}), IsOk());
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string good, ReadAll(Copy("good")));
  ASSERT_THAT(good, HasSubstr("j-12"));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_ + "-wal"));
  ASSERT_GT(size, 0);
  for (int64_t kept = 0; kept < size; kept += size / 23) {
    const std::string path = Copy("cut");
    std::filesystem::resize_file(path + "-wal", kept);
    EXPECT_THAT(ReadAll(path).status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("-wal")))
        << kept;
    std::filesystem::remove_all(directory_ / "cut");
  }
  RandomStream random(2, 7);
  for (int trial = 0; trial < 100; ++trial) {
    const auto offset = static_cast<int64_t>(random.Below(size));
    const std::string path = Copy("flipped");
    Flip(path + "-wal", offset, static_cast<int>(random.Below(8)));
    const absl::StatusOr<std::string> read = ReadAll(path);
    EXPECT_TRUE(!read.ok() || *read == good) << "byte " << offset << *read;
    std::filesystem::remove_all(directory_ / "flipped");
  }
}

TEST_F(DamagedStoreTest, OlderCopy_IsRefusedUntilItsWitnessIsRemoved) {
  const std::string backup = Copy("backup");
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
    const SaveJob later = StoredJobOf("c-3", v1::JOB_STATE_QUEUED);
    ASSERT_THAT(store.Write({{.job = &later}}), IsOk());
  }
  std::filesystem::copy_file(backup, path_, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(
      JobStore::Open(path_).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("lacks the last 1 of"), HasSubstr(JobStore::WitnessPath(path_)))));
  std::filesystem::remove(JobStore::WitnessPath(path_));
  EXPECT_THAT(JobStore::Open(path_), IsOk());
  EXPECT_TRUE(std::filesystem::exists(JobStore::WitnessPath(path_)));
}

TEST_F(DamagedStoreTest, WitnessThatIsTornOrDamaged_IsStillHeldAgainstTheStore) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string good, ReadAll(path_));
  const std::string witness = JobStore::WitnessPath(path_);
  Flip(witness, 30, 1);
  EXPECT_THAT(JobStore::Open(path_), IsOk()) << "the other place is whole";
  Flip(witness, 30, 1);
  Flip(witness, 30, 2);
  Flip(witness, 4096 + 30, 2);
  EXPECT_THAT(JobStore::Open(path_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(witness)));
  std::vector<std::string> dropped;
  EXPECT_THAT(
      JobStore::Open(path_, [&](const std::string& line) { dropped.push_back(line); }).status(),
      IsOk());
  EXPECT_THAT(dropped, ElementsAre(HasSubstr(witness)));
  EXPECT_THAT(ReadAll(path_), IsOkAndHolds(good));
}

TEST_F(DamagedStoreTest, DroppingDamage_SaysWhatAndKeepsTheRest) {
  ASSERT_THAT(Execute("UPDATE jobs SET record = x'00' WHERE job_id = 'b-2';"
                      "UPDATE timelines SET timeline = x'00';"
                      "UPDATE events SET event = x'' WHERE sequence = 2;"
                      "DELETE FROM events WHERE sequence IN (4, 6);"
                      "UPDATE layer_times SET times = x'00';"),
              IsOk());
  std::vector<std::string> dropped;
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        JobStore store,
        JobStore::Open(path_, [&](const std::string& line) { dropped.push_back(line); }));
    EXPECT_THAT(
        dropped,
        ElementsAre(
            HasSubstr("table jobs, row 2: job b-2"), "table timelines: the timeline of job a-1",
            "table events: event 2 of job a-1", "table events: events of job a-1 between 1 and 3",
            "table events: events of job a-1 between 3 and 5",
            "table events: events of job a-1 after 5", HasSubstr("table layer_times, row 1"),
            HasSubstr("table jobs: had 2"), HasSubstr("table timelines: had 1 rows, 0 are left")));
    EXPECT_EQ(store.ReadEvents("a-1", 0, 10)->size(), 3u);
    EXPECT_THAT(store.ReadTimeline("a-1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("a-1")));
    const PublishEvent next = StoredEventOf("a-1", 6);
    EXPECT_THAT(store.Write({{.event = &next}}), IsOk());
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store.Load());
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].idempotency_key, "key");
  EXPECT_EQ(jobs[0].last_sequence, 6);
}

TEST_F(DamagedStoreTest, NothingIsDamaged_NothingIsDropped) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string good, ReadAll(path_));
  ASSERT_THAT(
      JobStore::Open(path_, [](const std::string& line) { ADD_FAILURE() << line; }).status(),
      IsOk());
  EXPECT_THAT(ReadAll(path_), IsOkAndHolds(good));
}

// SQLite says itself how it keeps what is written: a record must be on the disk when Write returns.
TEST_F(JobStoreTest, Records_AreOnTheDiskWhenTheyAreWritten) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(path_));
  constexpr int64_t kNormal = 1, kFull = 2;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore::Settings settings, store.ReadSettings());
  EXPECT_EQ(settings.journal_mode, "wal");
  EXPECT_EQ(settings.synchronous, kFull);
  const PublishEvent event = StoredEventOf("a-1", 1);
  ASSERT_THAT(store.Write({{.event = &event}}), IsOk());
  EXPECT_EQ(store.ReadSettings()->synchronous, kNormal) << "a mere event may be lost";
  const SaveJob job = StoredJobOf("a-1", v1::JOB_STATE_QUEUED);
  ASSERT_THAT(store.Write({{.job = &job}}), IsOk());
  EXPECT_EQ(store.ReadSettings()->synchronous, kFull);
}

}  // namespace
}  // namespace penstock
