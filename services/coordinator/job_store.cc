#include "services/coordinator/job_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"

namespace penstock {
namespace {

// Tells our files from other SQLite files: "pens".
constexpr int64_t kApplicationId = 0x70656e73;

constexpr char kTables[] = R"(
  CREATE TABLE jobs(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE,
    idempotency_key TEXT,
    record BLOB NOT NULL,
    timeline BLOB);
  CREATE TABLE events(
    job_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    event BLOB NOT NULL,
    PRIMARY KEY(job_id, sequence)) WITHOUT ROWID;
)";

// This table exists since version 2.
constexpr char kLayerTimesTable[] = R"(
  CREATE TABLE layer_times(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    times BLOB NOT NULL,
    sha256 TEXT NOT NULL);
)";

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what, " cannot be read"));
}

}  // namespace

absl::StatusOr<JobStore> JobStore::Open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteDatabase database,
                            SqliteDatabase::Open(path.empty() ? ":memory:" : path));
  // The exclusive lock is taken by the first write and kept: a second coordinator on one file would
  // run the same jobs.
  PENSTOCK_RETURN_IF_ERROR(database.Execute(
      "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  JobStore store(std::move(database));
  PENSTOCK_RETURN_IF_ERROR(store.CreateTables());
  return store;
}

absl::Status JobStore::CreateTables() {
  PENSTOCK_RETURN_IF_ERROR(database_.Execute("BEGIN EXCLUSIVE; COMMIT;"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t version, database_.QueryInt("PRAGMA user_version"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t application, database_.QueryInt("PRAGMA application_id"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t tables,
                            database_.QueryInt("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    return database_.Execute(
        absl::StrCat("BEGIN;", kTables, kLayerTimesTable, "PRAGMA user_version = ", kVersion,
                     "; PRAGMA application_id = ", kApplicationId, "; COMMIT;"));
  }
  if (application != kApplicationId) {
    return absl::DataLossError(
        absl::StrCat(database_.path(), ": is an SQLite file, but not a coordinator's"));
  }
  if (version > kVersion) {
    return absl::UnimplementedError(absl::StrCat(database_.path(), ": has version ", version,
                                                 "; this build reads up to ", kVersion,
                                                 ". Use a newer build, or another --state file"));
  }
  if (version < kVersion) {
    return database_.Execute(
        absl::StrCat("BEGIN;", kLayerTimesTable, "PRAGMA user_version = ", kVersion, "; COMMIT;"));
  }
  return absl::OkStatus();
}

absl::Status JobStore::Write(absl::Span<const Change> changes) {
  if (changes.empty()) {
    return absl::OkStatus();
  }
  const bool durable = std::any_of(changes.begin(), changes.end(),
                                   [](const Change& change) { return change.event == nullptr; });
  PENSTOCK_RETURN_IF_ERROR(
      database_.Execute(durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"));
  PENSTOCK_RETURN_IF_ERROR(database_.Execute("BEGIN"));
  absl::Status status = WriteAll(changes);
  if (status.ok()) {
    status = database_.Execute("COMMIT");
  }
  if (!status.ok()) {
    // Fails if SQLite has rolled back by itself, as it does when the disk is full.
    (void)database_.Execute("ROLLBACK");
  }
  return status;
}

absl::Status JobStore::WriteAll(absl::Span<const Change> changes) {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement save_job,
      database_.Prepare("INSERT INTO jobs(job_id, idempotency_key, record) VALUES(?1, "
                        "nullif(?2, ''), ?3) ON CONFLICT(job_id) DO UPDATE SET record = ?3, "
                        "idempotency_key = coalesce(nullif(?2, ''), idempotency_key)"));
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement save_event,
      database_.Prepare("INSERT OR REPLACE INTO events(job_id, sequence, event) VALUES(?, ?, ?)"));
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement save_timeline,
                            database_.Prepare("UPDATE jobs SET timeline = ?2 WHERE job_id = ?1"));
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement save_layer_times,
      database_.Prepare("INSERT OR REPLACE INTO layer_times(key, times, sha256) VALUES(?, ?, ?)"));
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement forget_layer_times,
      database_.Prepare("DELETE FROM layer_times WHERE number NOT IN (SELECT number FROM "
                        "layer_times ORDER BY number DESC LIMIT ?)"));
  for (const Change& change : changes) {
    if (change.job != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(save_job.BindText(1, change.job->record.summary().job_id())
                                   .BindText(2, change.job->idempotency_key)
                                   .BindBlob(3, change.job->record.SerializeAsString())
                                   .Run());
    } else if (change.event != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(save_event.BindText(1, change.event->job_id)
                                   .BindInt(2, change.event->event.sequence())
                                   .BindBlob(3, change.event->event.SerializeAsString())
                                   .Run());
    } else if (change.layer_times != nullptr) {
      const std::string times = change.layer_times->times.SerializeAsString();
      PENSTOCK_RETURN_IF_ERROR(save_layer_times.BindText(1, change.layer_times->key)
                                   .BindBlob(2, times)
                                   .BindText(3, Sha256Hex(times))
                                   .Run());
      PENSTOCK_RETURN_IF_ERROR(forget_layer_times.BindInt(1, kLayerTimesMax).Run());
    } else {
      PENSTOCK_RETURN_IF_ERROR(save_timeline.BindText(1, change.timeline->job_id)
                                   .BindBlob(2, change.timeline->timeline.SerializeAsString())
                                   .Run());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredJob>> JobStore::Load() {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT record, idempotency_key, (SELECT coalesce(max(sequence), 0) FROM "
                        "events WHERE events.job_id = jobs.job_id) FROM jobs ORDER BY number"));
  std::vector<StoredJob> jobs;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      return jobs;
    }
    StoredJob& job = jobs.emplace_back();
    if (!job.record.ParseFromString(query.Bytes(0))) {
      return Damaged(database_.path(), absl::StrCat("job record ", jobs.size()));
    }
    job.idempotency_key = query.Bytes(1);
    job.last_sequence = query.Int(2);
  }
}

absl::StatusOr<v1::GetJobResponse> JobStore::ReadRecord(const std::string& job_id) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query,
                            database_.Prepare("SELECT record FROM jobs WHERE job_id = ?"));
  query.BindText(1, job_id);
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  v1::GetJobResponse record;
  if (!row) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", job_id, "\""));
  }
  if (!record.ParseFromString(query.Bytes(0))) {
    return Damaged(database_.path(), absl::StrCat("the record of job ", job_id));
  }
  return record;
}

absl::StatusOr<v1::GetTimelineResponse> JobStore::ReadTimeline(const std::string& job_id) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query,
                            database_.Prepare("SELECT timeline FROM jobs WHERE job_id = ?"));
  query.BindText(1, job_id);
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row || query.IsNull(0)) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " has no timeline"));
  }
  v1::GetTimelineResponse timeline;
  if (!timeline.ParseFromString(query.Bytes(0))) {
    return Damaged(database_.path(), absl::StrCat("the timeline of job ", job_id));
  }
  return timeline;
}

absl::StatusOr<v1::DeviceProfile> JobStore::ReadLayerTimes(const std::string& key) {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT times, sha256 FROM layer_times WHERE key = ?"));
  query.BindText(1, key);
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) {
    return absl::NotFoundError("there are no such layer times");
  }
  const std::string bytes = query.Bytes(0);
  v1::DeviceProfile times;
  if (Sha256Hex(bytes) != query.Bytes(1) || !times.ParseFromString(bytes)) {
    return Damaged(database_.path(), "the times of some layers");
  }
  return times;
}

absl::StatusOr<std::vector<v1::JobEvent>> JobStore::ReadEvents(const std::string& job_id,
                                                               int64_t after_sequence,
                                                               int count_max) {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT event FROM events WHERE job_id = ? AND sequence > ? "
                        "ORDER BY sequence LIMIT ?"));
  query.BindText(1, job_id).BindInt(2, after_sequence).BindInt(3, count_max);
  std::vector<v1::JobEvent> events;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      return events;
    }
    if (!events.emplace_back().ParseFromString(query.Bytes(0))) {
      return Damaged(database_.path(), absl::StrCat("an event of job ", job_id));
    }
  }
}

}  // namespace penstock
