// JobStore: how a file is opened: made, brought up from an earlier version, and checked.
#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/coordinator/job_store.h"
#include "services/coordinator/job_store_rows.h"

namespace penstock {
namespace {

// Tells our files from other SQLite files: "pens".
constexpr int64_t kApplicationId = 0x70656e73;

// Digests stand before what is long, so that they are read without it.
constexpr char kTables[] = R"(
  CREATE TABLE jobs(
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    job_id TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    record BLOB NOT NULL);
  CREATE TABLE timelines(
    job_id TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    timeline BLOB NOT NULL) WITHOUT ROWID;
  CREATE TABLE events(
    job_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    digest BLOB NOT NULL,
    event BLOB NOT NULL,
    PRIMARY KEY(job_id, sequence)) WITHOUT ROWID;
  CREATE TABLE event_heads(
    job_id TEXT PRIMARY KEY,
    digest BLOB NOT NULL,
    last_sequence INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE seal(
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    changes INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    jobs_digest BLOB NOT NULL,
    timelines INTEGER NOT NULL,
    timelines_digest BLOB NOT NULL);
)";

// This table exists since version 2.
constexpr char kLayerTimesTable[] = R"(
  CREATE TABLE layer_times(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    times BLOB NOT NULL,
    sha256 TEXT NOT NULL);
)";

std::string HeaderOf(int64_t version) {
  return absl::StrCat("PRAGMA user_version = ", version,
                      "; PRAGMA application_id = ", kApplicationId, ";");
}

}  // namespace

absl::StatusOr<JobStore> JobStore::Open(const std::string& path, const OnDropped& on_dropped) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteDatabase database,
                            SqliteDatabase::Open(path.empty() ? ":memory:" : path));
  // The exclusive lock is taken by the first write and kept: a second coordinator on one file would
  // run the same jobs.
  PENSTOCK_RETURN_IF_ERROR(database.Execute(
      "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  PENSTOCK_RETURN_IF_ERROR(database.Execute("BEGIN EXCLUSIVE; COMMIT;"));
  JobStore store(std::move(database));
  std::optional<int64_t> witnessed;
  if (!path.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const Settings settings, store.ReadSettings());
    if (settings.journal_mode != "wal") {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": SQLite keeps its journal as \"", settings.journal_mode,
                       "\" there instead of \"wal\"; put the file on a disk of this machine"));
    }
    absl::StatusOr<std::optional<int64_t>> read = StoreWitness::Read(WitnessPath(path));
    if (absl::IsDataLoss(read.status()) && on_dropped != nullptr) {
      on_dropped(std::string(read.status().message()));
      read = std::nullopt;
    }
    if (!read.ok()) return Annotate(read.status(), "the witness of the state file");
    witnessed = *read;
  }
  PENSTOCK_RETURN_IF_ERROR(store.OpenTables(witnessed, on_dropped));
  if (path.empty()) return store;
  const int64_t changes = store.index_.seal.changes;
  // A file that was put there without a witness is taken as it is.
  PENSTOCK_ASSIGN_OR_RETURN(StoreWitness witness,
                            witnessed == changes
                                ? StoreWitness::Open(WitnessPath(path))
                                : StoreWitness::Create(WitnessPath(path), changes));
  store.witness_.emplace(std::move(witness));
  return store;
}

absl::Status JobStore::OpenTables(std::optional<int64_t> witnessed, const OnDropped& on_dropped) {
  const std::string& path = database_.path();
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t version, database_.QueryInt("PRAGMA user_version"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t application, database_.QueryInt("PRAGMA application_id"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t tables,
                            database_.QueryInt("SELECT count(*) FROM sqlite_master"));
  PENSTOCK_ASSIGN_OR_RETURN(
      const int64_t sealed,
      database_.QueryInt("SELECT count(*) FROM sqlite_master WHERE name = 'seal'"));
  const bool lost_all = tables == 0 && (version != 0 || application != 0 || witnessed.has_value());
  if (lost_all && on_dropped == nullptr) {
    return absl::DataLossError(absl::StrCat(path,
                                            ": has none of its tables any more; does its log ",
                                            path, "-wal lie beside it? Else ", kMendAdvice));
  }
  if (lost_all) on_dropped(absl::StrCat(path, ": all jobs, for it has no tables any more"));
  if (tables == 0) {
    PENSTOCK_RETURN_IF_ERROR(InTransaction([this] { return CreateTables(); }));
  } else if (application != kApplicationId) {
    return absl::DataLossError(absl::StrCat(path, ": is an SQLite file, but not a coordinator's"));
  } else if (version > kVersion) {
    return absl::UnimplementedError(absl::StrCat(path, ": has version ", version,
                                                 "; this build reads up to ", kVersion,
                                                 ". Use a newer build, or another --state file"));
  } else if (version < kVersion && sealed > 0) {
    return absl::DataLossError(absl::StrCat(path, ": says version ", version,
                                            " and has the tables of version ", kVersion,
                                            ", so it is damaged; restore a backup of the state"));
  } else if (version < kVersion) {
    PENSTOCK_RETURN_IF_ERROR(InTransaction([&] { return Migrate(version); }));
  } else if (on_dropped != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(InTransaction([&] { return Mend(on_dropped); }));
  }
  PENSTOCK_RETURN_IF_ERROR(ReadIndex());
  const int64_t changes = index_.seal.changes;
  if (witnessed.value_or(0) <= changes) return absl::OkStatus();
  const std::string lost =
      absl::StrCat(path, ": lacks the last ", *witnessed - changes, " of ", *witnessed, " changes");
  if (on_dropped == nullptr) {
    return absl::DataLossError(
        absl::StrCat(lost, ": its log ", path,
                     "-wal is damaged or missing, or the file is an older copy. If you have "
                     "put a backup there, remove ",
                     WitnessPath(path), " too; else ", kMendAdvice));
  }
  on_dropped(lost);
  return absl::OkStatus();
}

absl::Status JobStore::CreateTables() {
  PENSTOCK_RETURN_IF_ERROR(
      database_.Execute(absl::StrCat(kTables, kLayerTimesTable, HeaderOf(kVersion))));
  return WriteSeal(Seal());
}

// ------------------------------------------------------------------------------ earlier versions

absl::Status JobStore::Migrate(int64_t version) {
  PENSTOCK_RETURN_IF_ERROR(database_.Execute(
      absl::StrCat("ALTER TABLE jobs RENAME TO old_jobs; ALTER TABLE events RENAME TO old_events;",
                   version < 2 ? kLayerTimesTable : "", kTables)));
  PENSTOCK_RETURN_IF_ERROR(MigrateJobs());
  PENSTOCK_RETURN_IF_ERROR(MigrateEvents());
  PENSTOCK_RETURN_IF_ERROR(MigrateLayerTimes());
  return database_.Execute(
      absl::StrCat("DROP TABLE old_jobs; DROP TABLE old_events;", HeaderOf(kVersion)));
}

absl::Status JobStore::MigrateJobs() {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement old,
      database_.Prepare("SELECT number, job_id, coalesce(idempotency_key, ''), record, timeline "
                        "FROM old_jobs ORDER BY number"));
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement job,
      database_.Prepare("INSERT INTO jobs(number, digest, job_id, idempotency_key, record) "
                        "VALUES(?, ?, ?, ?, ?)"));
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement timeline,
      database_.Prepare("INSERT INTO timelines(job_id, digest, timeline) VALUES(?, ?, ?)"));
  Seal seal;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, old.Step());
    if (!row) break;
    const int64_t number = old.Int(0);
    const std::string job_id = old.Bytes(1), key = old.Bytes(2), record = old.Bytes(3);
    v1::GetJobResponse parsed;
    if (!parsed.ParseFromString(record) || parsed.summary().job_id() != job_id) {
      return absl::DataLossError(absl::StrCat(database_.path(), ": table jobs, job ", job_id,
                                              ": its record is damaged; restore a backup of the "
                                              "state"));
    }
    const std::string digest = JobDigest(number, job_id, key, record);
    ++seal.jobs;
    ToggleRow(digest, seal.jobs_digest);
    PENSTOCK_RETURN_IF_ERROR(job.BindInt(1, number)
                                 .BindBlob(2, digest)
                                 .BindText(3, job_id)
                                 .BindText(4, key)
                                 .BindBlob(5, record)
                                 .Run());
    if (old.IsNull(4)) continue;
    const std::string bytes = old.Bytes(4);
    const std::string timeline_digest = TimelineDigest(job_id, bytes);
    ++seal.timelines;
    ToggleRow(TimelineSeal(job_id, timeline_digest), seal.timelines_digest);
    PENSTOCK_RETURN_IF_ERROR(
        timeline.BindText(1, job_id).BindBlob(2, timeline_digest).BindBlob(3, bytes).Run());
  }
  return WriteSeal(seal);
}

absl::Status JobStore::MigrateEvents() {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement old,
      database_.Prepare(
          "SELECT job_id, sequence, event FROM old_events ORDER BY job_id, sequence"));
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement event,
      database_.Prepare("INSERT INTO events(job_id, sequence, previous, digest, event) "
                        "VALUES(?, ?, ?, ?, ?)"));
  std::string job_id;
  int64_t last_sequence = 0;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, old.Step());
    const std::string next_id = row ? old.Bytes(0) : "";
    if (next_id != job_id || !row) {
      if (last_sequence > 0) PENSTOCK_RETURN_IF_ERROR(WriteHead(job_id, last_sequence));
      job_id = next_id;
      last_sequence = 0;
    }
    if (!row) return absl::OkStatus();
    const int64_t sequence = old.Int(1);
    const std::string bytes = old.Bytes(2);
    PENSTOCK_RETURN_IF_ERROR(event.BindText(1, job_id)
                                 .BindInt(2, sequence)
                                 .BindInt(3, last_sequence)
                                 .BindBlob(4, EventDigest(job_id, sequence, last_sequence, bytes))
                                 .BindBlob(5, bytes)
                                 .Run());
    last_sequence = sequence;
  }
}

// Their digests did not cover the key. What is damaged already keeps a digest that is wrong.
absl::Status JobStore::MigrateLayerTimes() {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement old, database_.Prepare("SELECT number, key, times, sha256 FROM layer_times"));
  std::vector<std::pair<int64_t, std::string>> digests;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, old.Step());
    if (!row) break;
    const std::string times = old.Bytes(2);
    if (Sha256Hex(times) != old.Bytes(3)) continue;
    digests.emplace_back(old.Int(0), LayerTimesDigest(old.Bytes(1), times));
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement update,
      database_.Prepare("UPDATE layer_times SET sha256 = ?2 WHERE number = ?1"));
  for (const auto& [number, digest] : digests) {
    PENSTOCK_RETURN_IF_ERROR(update.BindInt(1, number).BindText(2, digest).Run());
  }
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------- checking

absl::Status JobStore::ReadIndex() {
  index_ = Index();
  PENSTOCK_RETURN_IF_ERROR(ReadJobs());
  PENSTOCK_RETURN_IF_ERROR(ReadTimelines());
  PENSTOCK_RETURN_IF_ERROR(ReadHeads());
  return CheckSeal();
}

absl::Status JobStore::ReadJobs() {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare(
          "SELECT number, digest, job_id, idempotency_key, record FROM jobs ORDER BY number"));
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    JobRow job = {
        .number = query.Int(0), .idempotency_key = query.Bytes(3), .digest = query.Bytes(1)};
    const std::string job_id = query.Bytes(2);
    if (JobDigest(job.number, job_id, job.idempotency_key, query.Bytes(4)) != job.digest) {
      return DamagedRow(database_.path(), "jobs",
                        absl::StrCat("row ", job.number, ", job ", absl::CHexEscape(job_id)),
                        "it is damaged");
    }
    index_.last_number = std::max(index_.last_number, job.number);
    ++index_.seal.jobs;
    ToggleRow(job.digest, index_.seal.jobs_digest);
    index_.jobs[job_id] = std::move(job);
  }
}

absl::Status JobStore::ReadTimelines() {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query,
                            database_.Prepare("SELECT job_id, digest FROM timelines"));
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return absl::OkStatus();
    const std::string job_id = query.Bytes(0), digest = query.Bytes(1);
    ++index_.seal.timelines;
    ToggleRow(TimelineSeal(job_id, digest), index_.seal.timelines_digest);
    index_.timelines[job_id] = digest;
  }
}

absl::Status JobStore::ReadHeads() {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement heads,
      database_.Prepare("SELECT job_id, digest, last_sequence FROM event_heads"));
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, heads.Step());
    if (!row) break;
    const std::string job_id = heads.Bytes(0);
    if (HeadDigest(job_id, heads.Int(2)) != heads.Bytes(1)) {
      return DamagedRow(database_.path(), "event_heads",
                        absl::StrCat("job ", absl::CHexEscape(job_id)), "it is damaged");
    }
    index_.last_sequences[job_id] = heads.Int(2);
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement last,
      database_.Prepare("SELECT coalesce(max(sequence), 0) FROM events WHERE job_id = ?"));
  for (const auto& [job_id, job] : index_.jobs) {
    last.BindText(1, job_id);
    PENSTOCK_RETURN_IF_ERROR(last.Step().status());
    const int64_t stored = last.Int(0);
    PENSTOCK_RETURN_IF_ERROR(last.Step().status());  // there is one row: the statement starts over
    const auto head = index_.last_sequences.find(job_id);
    const int64_t expected = head == index_.last_sequences.end() ? 0 : head->second;
    if (stored == expected) continue;
    return DamagedRow(database_.path(), "events", absl::StrCat("job ", job_id),
                      absl::StrCat("its last event is ", stored, ", it should be ", expected));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobStore::Seal> JobStore::ReadSeal() {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement query,
      database_.Prepare("SELECT digest, changes, jobs, jobs_digest, timelines, timelines_digest "
                        "FROM seal WHERE id = 1"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return DamagedRow(database_.path(), "seal", "row 1", "it is missing");
  Seal seal = {.changes = query.Int(1),
               .jobs = query.Int(2),
               .timelines = query.Int(4),
               .jobs_digest = query.Bytes(3),
               .timelines_digest = query.Bytes(5)};
  if (SealDigest(seal.changes, seal.jobs, seal.jobs_digest, seal.timelines,
                 seal.timelines_digest) != query.Bytes(0)) {
    return DamagedRow(database_.path(), "seal", "row 1", "it is damaged");
  }
  return seal;
}

absl::Status JobStore::CheckSeal() {
  PENSTOCK_ASSIGN_OR_RETURN(const Seal seal, ReadSeal());
  const Seal& found = index_.seal;
  const auto differs = [&](absl::string_view table, int64_t rows, int64_t sealed) {
    return absl::DataLossError(absl::StrCat(
        database_.path(), ": table ", table, " has ", rows, " rows, and was sealed with ", sealed,
        rows == sealed ? " others" : "", ", so some are missing or old; ", kMendAdvice));
  };
  if (found.jobs != seal.jobs || found.jobs_digest != seal.jobs_digest) {
    return differs("jobs", found.jobs, seal.jobs);
  }
  if (found.timelines != seal.timelines || found.timelines_digest != seal.timelines_digest) {
    return differs("timelines", found.timelines, seal.timelines);
  }
  index_.seal.changes = seal.changes;
  return absl::OkStatus();
}

}  // namespace penstock
