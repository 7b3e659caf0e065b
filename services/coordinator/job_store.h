// JobStore: what must survive the coordinator, in SQLite: job records, their events, their
// timelines, and the times of layers that profiles have measured.
//
//   jobs(number, digest, job_id, idempotency_key, record)     number: order of submission
//   timelines(job_id, digest, timeline)
//   events(job_id, sequence, previous, digest, event)         previous: the sequence of the job's event before; or 0
//   event_heads(job_id, digest, last_sequence)                of the job's last event
//   layer_times(number, key, times, sha256)                   number: order of writing; sha256: the digest
//   seal(id, digest, changes, jobs, jobs_digest, timelines, timelines_digest)   one row: of the tables as a whole
//
// Messages are kept as protobuf bytes, so old records stay readable as fields are added.
// user_version is the version of the tables. Writes go through a write-ahead log; a record is on
// the disk when Write returns, while a mere step event may be lost with the machine (not with the process).
//
// SQLite itself checks nothing that it reads. So each row has a digest over its table, its key and its values. The seal
// holds the number of jobs and of timelines and the exclusive or of their digests, so no row can go unnoticed; events are
// chained by `previous` up to the head. The number of changes is also in a file beside (store_witness.h), for a
// damaged end of the log takes the rows and the seal back together. Jobs, seal and heads are checked by Open, the rest
// when it is read. Layer times are a mere cache: a damaged row is as good as none.
//
// Thread-compatible: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/coordinator.h"
#include "services/coordinator/sqlite.h"
#include "services/coordinator/store_witness.h"

namespace penstock {

class JobStore {
 public:
  static constexpr int kVersion = 3;  // 1: without layer_times; 2: without digests
  // The layer times that were written last are kept, this many of them.
  static constexpr int kLayerTimesMax = 256;

  // Takes a line for each thing that was dropped.
  using OnDropped = std::function<void(const std::string&)>;

  // One thing to write. Exactly one part is set.
  struct Change {
    const SaveJob* job = nullptr;
    const PublishEvent* event = nullptr;
    struct Timeline {
      std::string job_id;
      v1::GetTimelineResponse timeline;
    };
    const Timeline* timeline = nullptr;
    const KeepLayerTimes* layer_times = nullptr;
  };

  // How SQLite keeps what is written, as it says itself.
  struct Settings {
    std::string journal_mode;  // "wal"; in memory "memory"
    int64_t synchronous = 0;   // of the last Write: 2 for records, 1 for mere events
  };

  // Opens or creates `path`; an empty one is kept in memory. A file of an earlier version is brought up to this one.
  // `on_dropped`: if set, what is damaged is dropped and told; else it is refused.
  // Errors: NotFound (no such directory), PermissionDenied, FailedPrecondition (another process has
  // it open, or the disk cannot keep a log), DataLoss (damaged, naming table and key, or not a job store),
  // Unimplemented (of a later version).
  static absl::StatusOr<JobStore> Open(const std::string& path,
                                       const OnDropped& on_dropped = nullptr);
  // Where the number of changes of the store at `path` is kept.
  static std::string WitnessPath(const std::string& path) { return path + "-witness"; }

  // Everything or nothing. Writing something again changes nothing. A timeline of no job is left out.
  // Errors: ResourceExhausted (disk full), Internal.
  absl::Status Write(absl::Span<const Change> changes);
  // Writes that nothing has changed, to find out whether it can be written. Errors: as Write.
  absl::Status Touch();

  // All jobs in the order of their submission. Errors: DataLoss.
  absl::StatusOr<std::vector<StoredJob>> Load();

  // Errors: NotFound, DataLoss.
  absl::StatusOr<v1::GetJobResponse> ReadRecord(const std::string& job_id);
  absl::StatusOr<v1::GetTimelineResponse> ReadTimeline(const std::string& job_id);
  // Errors: NotFound, DataLoss (the row is damaged: as good as none).
  absl::StatusOr<v1::DeviceProfile> ReadLayerTimes(const std::string& key);
  // The events after `after_sequence` in order, `count_max` at most. Errors: DataLoss (one is damaged or missing).
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const std::string& job_id,
                                                       int64_t after_sequence, int count_max);

  absl::StatusOr<Settings> ReadSettings();

 private:
  // What is known of the rows of a job without reading them.
  struct JobRow {
    int64_t number = 0;
    std::string idempotency_key;
    std::string digest;
  };
  struct Seal {
    int64_t changes = 0;  // that are on the disk when Write returns
    int64_t jobs = 0;
    int64_t timelines = 0;
    std::string jobs_digest;  // the exclusive or of those of the rows
    std::string timelines_digest;
  };
  struct Index {
    std::map<std::string, JobRow> jobs;             // by id
    std::map<std::string, std::string> timelines;   // digests by job id
    std::map<std::string, int64_t> last_sequences;  // by job id
    int64_t last_number = 0;
    Seal seal;
  };
  // What a transaction changes of the index once it is committed.
  struct Draft;

  explicit JobStore(SqliteDatabase database) : database_(std::move(database)) {}
  // ---- job_store_open.cc
  absl::Status OpenTables(std::optional<int64_t> witnessed, const OnDropped& on_dropped);
  absl::Status CreateTables();
  absl::Status Migrate(int64_t version);
  absl::Status MigrateJobs();
  absl::Status MigrateEvents();
  absl::Status MigrateLayerTimes();
  // Read and check what Open checks.
  absl::Status ReadIndex();
  absl::Status ReadJobs();
  absl::Status ReadTimelines();
  absl::Status ReadHeads();
  absl::StatusOr<Seal> ReadSeal();
  absl::Status CheckSeal();

  // ---- job_store_mend.cc
  // Drop damaged rows and chain and seal what is left.
  absl::Status Mend(const OnDropped& on_dropped);
  absl::Status MendJobs(const OnDropped& on_dropped);
  absl::Status MendTimelines(const OnDropped& on_dropped);
  absl::Status MendEvents(const OnDropped& on_dropped);
  absl::Status MendLayerTimes(const OnDropped& on_dropped);
  absl::Status MendSeal(const OnDropped& on_dropped);

  // ---- job_store.cc
  // Runs `act` in a transaction that is on the disk when this returns.
  absl::Status InTransaction(const std::function<absl::Status()>& act);
  absl::Status WriteAndSync(absl::Span<const Change> changes,
                            bool durable);  // else it may be lost with the machine
  absl::Status WriteAll(absl::Span<const Change> changes, Draft& draft);
  absl::Status WriteJob(const SaveJob& job, Draft& draft);
  absl::Status WriteEvent(const PublishEvent& event, Draft& draft);
  absl::Status WriteTimeline(const Change::Timeline& timeline, Draft& draft);
  absl::Status WriteLayerTimes(const KeepLayerTimes& keep);
  absl::Status WriteHead(const std::string& job_id, int64_t last_sequence);
  absl::Status WriteSeal(const Seal& seal);
  absl::Status WriteWitness();
  // A statement that writes, prepared once.
  absl::StatusOr<SqliteStatement*> Writer(const std::string& sql);

  SqliteDatabase database_;
  std::map<std::string, SqliteStatement> writers_;  // by their SQL
  Index index_;
  std::optional<StoreWitness> witness_;  // none: in memory
  bool witness_is_behind_ = false;
};

}  // namespace penstock
