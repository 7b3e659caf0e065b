// JobStore: a StateStore in an SQLite file, for one coordinator.
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
#include "services/coordinator/state_store.h"
#include "services/coordinator/store_witness.h"

namespace penstock {

class JobStore final : public StateStore {
 public:
  static constexpr int kVersion = 3;  // 1: without layer_times; 2: without digests

  // Takes a line for each thing that was dropped.
  using OnDropped = std::function<void(const std::string&)>;

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

  std::string name() const override { return "state file"; }
  std::string remedy() const override { return "make room on that disk, or mend it"; }

  // Everything or nothing.
  absl::Status Write(absl::Span<const Change> changes) override;
  absl::Status Touch() override;
  absl::StatusOr<std::vector<StoredJob>> Load() override;
  absl::StatusOr<v1::GetJobResponse> ReadRecord(const std::string& job_id) override;
  absl::StatusOr<v1::GetTimelineResponse> ReadTimeline(const std::string& job_id) override;
  absl::StatusOr<v1::DeviceProfile> ReadLayerTimes(const std::string& key) override;
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const std::string& job_id,
                                                       int64_t after_sequence,
                                                       int count_max) override;

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
  // A statement that is prepared once, and starts over whenever it is done.
  absl::StatusOr<SqliteStatement*> Kept(const std::string& sql);

  SqliteDatabase database_;
  std::map<std::string, SqliteStatement> kept_;  // by their SQL
  Index index_;
  std::optional<StoreWitness> witness_;  // none: in memory
  bool witness_is_behind_ = false;
};

}  // namespace penstock
