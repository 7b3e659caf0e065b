// JobWatch: a job's events as they come, read by a thread of its own.
//
// A broken stream is taken up again after the last event that came, so nothing is missed and nothing
// comes twice, also over a restart of the coordinator.
//
// Thread-compatible.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/cli/coordinator_client.h"

namespace penstock {

class JobWatch {
 public:
  // The time that a coordinator may be away before the watch gives up. A coordinator that is there
  // and has nothing to say may be silent for ever.
  static constexpr absl::Duration kReconnectTimeout = absl::Seconds(30);
  // Events read ahead of the user; beyond it the stream waits.
  static constexpr size_t kEventsMax = 4096;

  // REQUIRES: `client` outlives the watch.
  JobWatch(CoordinatorClient& client, std::string job_id,
           absl::Duration reconnect_timeout = kReconnectTimeout);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // The next event, or nothing if none came within `timeout` or the stream has ended.
  std::optional<v1::JobEvent> Next(absl::Duration timeout);

  // Returns whether there will be no more events, all of them taken. `status` then says why: OK when
  // the job has ended, Unavailable when the coordinator stayed away.
  bool Done();
  absl::Status status();

  // "..., trying again for 30 s" when the coordinator has gone away and "... again" when it is back, each once, for
  // people; else empty.
  std::string News();

 private:
  void Read();
  absl::Status GivingUp(const absl::Status& status) const;
  // False when the watch is ending.
  bool Push(const v1::JobEvent& event);

  CoordinatorClient& client_;
  const std::string job_id_;
  const absl::Duration reconnect_timeout_;
  StreamCanceller canceller_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::JobEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool away_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_away_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar::Clock::time_point attempt_began_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // last, so that it starts with all of the above in place
};

// The job, also from a coordinator that is away for a moment: asks again for as long as a watch would, or until
// `stop` is true. Errors: those of GetJob; Cancelled if it is stopped while the coordinator is away.
absl::StatusOr<v1::GetJobResponse> AwaitJob(
    CoordinatorClient& client, const std::string& job_id, const std::function<bool()>& stop,
    absl::Duration reconnect_timeout = JobWatch::kReconnectTimeout);

}  // namespace penstock
