#include "services/coordinator/job_store.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "services/coordinator/drafted.h"
#include "services/coordinator/job_store_rows.h"

namespace penstock {

struct JobStore::Draft {
  std::map<std::string, JobRow> jobs;
  std::map<std::string, std::string> timelines;
  std::map<std::string, int64_t> last_sequences;
  int64_t last_number = 0;
  Seal seal;
};

// ---------------------------------------------------------------------------------------- writing

absl::StatusOr<SqliteStatement*> JobStore::Kept(const std::string& sql) {
  auto known = kept_.find(sql);
  if (known == kept_.end()) {
    PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement prepared, database_.Prepare(sql));
    known = kept_.emplace(sql, std::move(prepared)).first;
  }
  return &known->second;
}

absl::Status JobStore::InTransaction(const std::function<absl::Status()>& act) {
  PENSTOCK_FAULT_POINT_STATUS(kStoreBeforeTransaction);
  PENSTOCK_RETURN_IF_ERROR(database_.Execute("BEGIN"));
  absl::Status status = act();
  if (status.ok()) status = database_.Execute("COMMIT");
  if (!status.ok()) {
    // Fails if SQLite has rolled back by itself, as it does when the disk is full.
    (void)database_.Execute("ROLLBACK");
  }
  return status;
}

absl::Status JobStore::Write(absl::Span<const Change> changes) {
  if (changes.empty()) {
    return absl::OkStatus();
  }
  return WriteAndSync(changes,
                      std::any_of(changes.begin(), changes.end(),
                                  [](const Change& change) { return change.event == nullptr; }));
}

absl::Status JobStore::Touch() { return WriteAndSync({}, /*durable=*/true); }

absl::Status JobStore::WriteAndSync(absl::Span<const Change> changes, bool durable) {
  // One change may be missing in the witness. With a second, damage could take one that was acknowledged.
  if (witness_is_behind_) PENSTOCK_RETURN_IF_ERROR(WriteWitness());
  PENSTOCK_RETURN_IF_ERROR(
      database_.Execute(durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"));
  Draft draft{.last_number = index_.last_number, .seal = index_.seal};
  PENSTOCK_RETURN_IF_ERROR(InTransaction([&]() -> absl::Status {
    PENSTOCK_RETURN_IF_ERROR(WriteAll(changes, draft));
    if (durable) {
      ++draft.seal.changes;
      PENSTOCK_RETURN_IF_ERROR(WriteSeal(draft.seal));
    }
    PENSTOCK_FAULT_POINT_STATUS(kStoreBeforeCommit);
    return absl::OkStatus();
  }));
  PENSTOCK_FAULT_POINT(kStoreAfterCommit);
  Take(draft.jobs, index_.jobs);
  Take(draft.timelines, index_.timelines);
  Take(draft.last_sequences, index_.last_sequences);
  index_.last_number = draft.last_number;
  index_.seal = std::move(draft.seal);
  // What is committed is kept, whether or not the witness can say so: the next write tries again, and fails if it cannot.
  if (durable) WriteWitness().IgnoreError();
  return absl::OkStatus();
}

absl::Status JobStore::WriteWitness() {
  if (!witness_.has_value()) return absl::OkStatus();
  const absl::Status written = witness_->Write(index_.seal.changes);
  witness_is_behind_ = !written.ok();
  PENSTOCK_FAULT_POINT(kStoreAfterWitness);
  return written;
}

absl::Status JobStore::WriteAll(absl::Span<const Change> changes, Draft& draft) {
  for (const Change& change : changes) {
    if (change.job != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(WriteJob(*change.job, draft));
    } else if (change.event != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(WriteEvent(*change.event, draft));
    } else if (change.layer_times != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(WriteLayerTimes(*change.layer_times));
    } else {
      PENSTOCK_RETURN_IF_ERROR(WriteTimeline(*change.timeline, draft));
    }
  }
  for (const auto& [job_id, last_sequence] : draft.last_sequences) {
    PENSTOCK_RETURN_IF_ERROR(WriteHead(job_id, last_sequence));
  }
  return absl::OkStatus();
}

absl::Status JobStore::WriteJob(const SaveJob& job, Draft& draft) {
  const std::string& job_id = job.record.summary().job_id();
  const JobRow* const before = FindIn(draft.jobs, index_.jobs, job_id);
  JobRow row{.idempotency_key = job.idempotency_key};
  if (before != nullptr) {
    row.number = before->number;
    if (row.idempotency_key.empty()) row.idempotency_key = before->idempotency_key;
    ToggleRow(before->digest, draft.seal.jobs_digest);
  } else {
    row.number = ++draft.last_number;
    ++draft.seal.jobs;
  }
  const std::string record = job.record.SerializeAsString();
  row.digest = JobDigest(row.number, job_id, row.idempotency_key, record);
  ToggleRow(row.digest, draft.seal.jobs_digest);
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement * write,
      Kept("INSERT OR REPLACE INTO jobs(number, digest, job_id, idempotency_key, record) "
           "VALUES(?, ?, ?, ?, ?)"));
  PENSTOCK_RETURN_IF_ERROR(write->BindInt(1, row.number)
                               .BindBlob(2, row.digest)
                               .BindText(3, job_id)
                               .BindText(4, row.idempotency_key)
                               .BindBlob(5, record)
                               .Run());
  draft.jobs[job_id] = std::move(row);
  return absl::OkStatus();
}

absl::Status JobStore::WriteEvent(const PublishEvent& event, Draft& draft) {
  const int64_t sequence = event.event.sequence();
  const int64_t* const last = FindIn(draft.last_sequences, index_.last_sequences, event.job_id);
  const int64_t previous = last == nullptr ? 0 : *last;
  if (sequence <= previous) return absl::OkStatus();  // it is there
  const std::string bytes = event.event.SerializeAsString();
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement * write,
      Kept("INSERT OR REPLACE INTO events(job_id, sequence, previous, digest, event) "
           "VALUES(?, ?, ?, ?, ?)"));
  PENSTOCK_RETURN_IF_ERROR(write->BindText(1, event.job_id)
                               .BindInt(2, sequence)
                               .BindInt(3, previous)
                               .BindBlob(4, EventDigest(event.job_id, sequence, previous, bytes))
                               .BindBlob(5, bytes)
                               .Run());
  draft.last_sequences[event.job_id] = sequence;
  return absl::OkStatus();
}

absl::Status JobStore::WriteHead(const std::string& job_id, int64_t last_sequence) {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement * write,
      Kept("INSERT OR REPLACE INTO event_heads(job_id, digest, last_sequence) VALUES(?, ?, ?)"));
  return write->BindText(1, job_id)
      .BindBlob(2, HeadDigest(job_id, last_sequence))
      .BindInt(3, last_sequence)
      .Run();
}

absl::Status JobStore::WriteTimeline(const Change::Timeline& timeline, Draft& draft) {
  const std::string& job_id = timeline.job_id;
  if (FindIn(draft.jobs, index_.jobs, job_id) == nullptr) return absl::OkStatus();
  const std::string bytes = timeline.timeline.SerializeAsString();
  const std::string digest = TimelineDigest(job_id, bytes);
  const std::string* const before = FindIn(draft.timelines, index_.timelines, job_id);
  if (before != nullptr) {
    ToggleRow(TimelineSeal(job_id, *before), draft.seal.timelines_digest);
  } else {
    ++draft.seal.timelines;
  }
  ToggleRow(TimelineSeal(job_id, digest), draft.seal.timelines_digest);
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement * write,
      Kept("INSERT OR REPLACE INTO timelines(job_id, digest, timeline) VALUES(?, ?, ?)"));
  PENSTOCK_RETURN_IF_ERROR(write->BindText(1, job_id).BindBlob(2, digest).BindBlob(3, bytes).Run());
  draft.timelines[job_id] = digest;
  return absl::OkStatus();
}

absl::Status JobStore::WriteLayerTimes(const KeepLayerTimes& keep) {
  const std::string times = keep.times.SerializeAsString();
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement * write,
      Kept("INSERT OR REPLACE INTO layer_times(key, times, sha256) VALUES(?, ?, ?)"));
  PENSTOCK_RETURN_IF_ERROR(write->BindText(1, keep.key)
                               .BindBlob(2, times)
                               .BindText(3, LayerTimesDigest(keep.key, times))
                               .Run());
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement * forget,
                            Kept("DELETE FROM layer_times WHERE number NOT IN (SELECT number "
                                 "FROM layer_times ORDER BY number DESC LIMIT ?)"));
  return forget->BindInt(1, kLayerTimesMax).Run();
}

absl::Status JobStore::WriteSeal(const Seal& seal) {
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement * write,
      Kept("INSERT OR REPLACE INTO seal(id, digest, changes, jobs, jobs_digest, timelines, "
           "timelines_digest) VALUES(1, ?, ?, ?, ?, ?, ?)"));
  return write
      ->BindBlob(1, SealDigest(seal.changes, seal.jobs, seal.jobs_digest, seal.timelines,
                               seal.timelines_digest))
      .BindInt(2, seal.changes)
      .BindInt(3, seal.jobs)
      .BindBlob(4, seal.jobs_digest)
      .BindInt(5, seal.timelines)
      .BindBlob(6, seal.timelines_digest)
      .Run();
}

// ---------------------------------------------------------------------------------------- reading

absl::StatusOr<JobStore::Settings> JobStore::ReadSettings() {
  Settings settings;
  PENSTOCK_ASSIGN_OR_RETURN(settings.journal_mode, database_.QueryText("PRAGMA journal_mode"));
  PENSTOCK_ASSIGN_OR_RETURN(settings.synchronous, database_.QueryInt("PRAGMA synchronous"));
  return settings;
}

absl::StatusOr<std::vector<StoredJob>> JobStore::Load() {
  PENSTOCK_FAULT_POINT(kStoreAfterOpen);
  std::map<int64_t, const std::string*> ids;  // by number
  for (const auto& [job_id, row] : index_.jobs) ids[row.number] = &job_id;
  std::vector<StoredJob> jobs;
  for (const auto& [number, job_id] : ids) {
    StoredJob& job = jobs.emplace_back();
    PENSTOCK_ASSIGN_OR_RETURN(job.record, ReadRecord(*job_id));
    job.idempotency_key = index_.jobs.at(*job_id).idempotency_key;
    if (const auto last = index_.last_sequences.find(*job_id);
        last != index_.last_sequences.end()) {
      job.last_sequence = last->second;
    }
  }
  return jobs;
}

absl::StatusOr<v1::GetJobResponse> JobStore::ReadRecord(const std::string& job_id) {
  const auto known = index_.jobs.find(job_id);
  if (known == index_.jobs.end()) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", job_id, "\""));
  }
  const auto& [number, idempotency_key, digest] = known->second;
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query,
                            database_.Prepare("SELECT record FROM jobs WHERE number = ?"));
  query.BindInt(1, number);
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  const std::string bytes = row ? query.Bytes(0) : "";
  v1::GetJobResponse record;
  if (!row || JobDigest(number, job_id, idempotency_key, bytes) != digest ||
      !record.ParseFromString(bytes)) {
    return DamagedRow(database_.path(), "jobs", absl::StrCat("job ", job_id),
                      row ? "its record is damaged" : "its record is missing");
  }
  return record;
}

absl::StatusOr<v1::GetTimelineResponse> JobStore::ReadTimeline(const std::string& job_id) {
  const auto known = index_.timelines.find(job_id);
  if (known == index_.timelines.end()) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " has no timeline"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query,
                            database_.Prepare("SELECT timeline FROM timelines WHERE job_id = ?"));
  query.BindText(1, job_id);
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  const std::string bytes = row ? query.Bytes(0) : "";
  v1::GetTimelineResponse timeline;
  if (!row || TimelineDigest(job_id, bytes) != known->second || !timeline.ParseFromString(bytes)) {
    return DamagedRow(database_.path(), "timelines", absl::StrCat("job ", job_id),
                      row ? "its timeline is damaged" : "its timeline is missing");
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
  if (LayerTimesDigest(key, bytes) != query.Bytes(1) || !times.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat(
        database_.path(), ": table layer_times: the times of some layers are damaged"));
  }
  return times;
}

absl::StatusOr<std::vector<v1::JobEvent>> JobStore::ReadEvents(const std::string& job_id,
                                                               int64_t after_sequence,
                                                               int count_max) {
  const auto known = index_.last_sequences.find(job_id);
  const int64_t last_sequence = known == index_.last_sequences.end() ? 0 : known->second;
  const auto damaged = [&](int64_t sequence, absl::string_view what) {
    return DamagedRow(database_.path(), "events",
                      absl::StrCat("event ", sequence, " of job ", job_id), what);
  };
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement* const kept,
      Kept("SELECT sequence, previous, digest, event FROM events WHERE job_id = ? AND "
           "sequence > ? ORDER BY sequence LIMIT ?"));
  SqliteStatement& query = *kept;
  const absl::Cleanup reset = [&query] { query.Reset(); };  // where a row is damaged
  query.BindText(1, job_id).BindInt(2, after_sequence).BindInt(3, count_max);
  std::vector<v1::JobEvent> events;
  int64_t read = after_sequence;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      const bool is_end = static_cast<int>(events.size()) < count_max;
      if (is_end && read < last_sequence) return damaged(last_sequence, "is missing");
      return events;
    }
    const int64_t sequence = query.Int(0);
    const int64_t previous = query.Int(1);
    const std::string bytes = query.Bytes(3);
    if (EventDigest(job_id, sequence, previous, bytes) != query.Bytes(2) ||
        !events.emplace_back().ParseFromString(bytes)) {
      return damaged(sequence, "is damaged");
    }
    // Before the first that is read, those up to `after_sequence` may be anything.
    if (previous > read || (events.size() > 1 && previous != read)) {
      return damaged(previous, "is missing");
    }
    read = sequence;
  }
}

}  // namespace penstock
