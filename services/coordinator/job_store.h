// JobStore: what must survive the coordinator, in SQLite: job records, their events, their
// timelines, and the times of layers that profiles have measured.
//
//   jobs(number, job_id, idempotency_key, record, timeline)   number: order of submission
//   events(job_id, sequence, event)
//   layer_times(number, key, times, sha256)                   number: order of writing; sha256: of `times`
//
// Messages are kept as protobuf bytes, so old records stay readable as fields are added.
// user_version is the version of the tables. Writes go through a write-ahead log; a record is on
// the disk when Write returns, while a mere step event may be lost with the machine (not with the process).
//
// Thread-compatible: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/coordinator.h"
#include "services/coordinator/sqlite.h"

namespace penstock {

class JobStore {
 public:
  static constexpr int kVersion = 2;  // 1: without layer_times
  // The layer times that were written last are kept, this many of them.
  static constexpr int kLayerTimesMax = 256;

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

  // Opens or creates `path`; an empty one is kept in memory.
  // Errors: NotFound (no such directory), PermissionDenied, FailedPrecondition (another process has
  // it open), DataLoss (damaged, or not a job store), Unimplemented (of a later version).
  static absl::StatusOr<JobStore> Open(const std::string& path);

  // Everything or nothing. Writing something again changes nothing.
  // Errors: ResourceExhausted (disk full), Internal.
  absl::Status Write(absl::Span<const Change> changes);

  // All jobs in the order of their submission. Errors: DataLoss.
  absl::StatusOr<std::vector<StoredJob>> Load();

  // Errors: NotFound, DataLoss.
  absl::StatusOr<v1::GetJobResponse> ReadRecord(const std::string& job_id);
  absl::StatusOr<v1::GetTimelineResponse> ReadTimeline(const std::string& job_id);
  // Errors: NotFound, DataLoss (the row is damaged: as good as none).
  absl::StatusOr<v1::DeviceProfile> ReadLayerTimes(const std::string& key);
  // The events after `after_sequence` in order, `count_max` at most.
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const std::string& job_id,
                                                       int64_t after_sequence, int count_max);

 private:
  explicit JobStore(SqliteDatabase database) : database_(std::move(database)) {}
  absl::Status CreateTables();
  absl::Status WriteAll(absl::Span<const Change> changes);

  SqliteDatabase database_;
};

}  // namespace penstock
