// StateStore: what must survive a coordinator: job records, their events, their timelines, and the times of layers that
// profiles have measured. EventLoop writes and reads it; JobStore (a file of this machine) and EtcdStore (a cluster of
// etcd, for several coordinators) implement it, and tests/services/coordinator/state_store_suite.h is what both promise.
//
// Thread-compatible: one thread at a time. Calls may wait, for a disk or for another machine, for a bounded time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/coordinator.h"

namespace penstock {

class StateStore {
 public:
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

  virtual ~StateStore() = default;

  // What it is, for people: "state file".
  virtual std::string name() const = 0;
  // What an operator does who cannot write it: "make room on that disk, or mend it".
  virtual std::string remedy() const = 0;

  // Writes all of it, or fails. After a failure any part may be there, and the same is written again later, with more:
  // what is there already changes nothing. An event never comes after the record of its job that was written with it.
  // A record without a key keeps the key that it had. A timeline of no job is left out.
  // When this returns, records are there for good; a mere event may be lost with the machine (not with the process).
  // Errors: ResourceExhausted (full), Unavailable (nobody answers), Aborted (this coordinator leads no longer and will not
  // write any more), Internal.
  virtual absl::Status Write(absl::Span<const Change> changes) = 0;
  // Finds out whether it can be written; changes nothing that is read. Errors: as Write.
  virtual absl::Status Touch() = 0;

  // Returns all jobs in the order of their submission. Errors: DataLoss; as Write.
  virtual absl::StatusOr<std::vector<StoredJob>> Load() = 0;

  // Errors: NotFound, DataLoss, Unavailable.
  virtual absl::StatusOr<v1::GetJobResponse> ReadRecord(const std::string& job_id) = 0;
  virtual absl::StatusOr<v1::GetTimelineResponse> ReadTimeline(const std::string& job_id) = 0;
  // Errors: NotFound, DataLoss (damaged: as good as none), Unavailable.
  virtual absl::StatusOr<v1::DeviceProfile> ReadLayerTimes(const std::string& key) = 0;
  // Returns the events after `after_sequence` in order, `count_max` at most.
  // Errors: DataLoss (one is damaged or missing), Unavailable.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const std::string& job_id,
                                                               int64_t after_sequence,
                                                               int count_max) = 0;
};

}  // namespace penstock
