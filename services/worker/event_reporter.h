// EventReporter: brings what happens in a run to the coordinator, in order, each event once.
//
// Events are numbered from 0 in each run, sent in batches, and kept until the coordinator says that it
// has them; a coordinator that is away is asked again and again. When more events wait than
// kEventsWaitingMax, or the coordinator calls the run over, the run is given up.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/trace_context.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class EventReporter {
 public:
  static constexpr size_t kEventsWaitingMax = 1 << 16;
  // Bound on one call; far below the limit of a control message.
  static constexpr int64_t kBatchBytesMax = 256 << 10;
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
  static constexpr absl::Duration kBackoffMax = absl::Seconds(1);

  struct Parts {
    std::string worker;
    uint64_t incarnation = 0;
    // One call to the coordinator, with a deadline of its own. `trace`: of the run's job, if it has one.
    std::function<absl::StatusOr<v1::ReportRunResponse>(const v1::ReportRunRequest&,
                                                        const std::optional<TraceContext>& trace)>
        send;
    // The run cannot go on. From the reporter's thread, or the one that adds an event.
    std::function<void(const std::string& job_id, int64_t epoch, const absl::Status& reason)>
        give_up;
  };

  explicit EventReporter(Parts parts);
  // Events that wait are lost.
  ~EventReporter();
  EventReporter(const EventReporter&) = delete;
  EventReporter& operator=(const EventReporter&) = delete;

  // Events from now on belong to this run. Waiting events of another attempt are dropped.
  void Begin(const std::string& job_id, int64_t epoch,
             const std::optional<TraceContext>& trace = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(v1::RunEvent event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until all events are acknowledged or dropped. False if `deadline` came first.
  bool Flush(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Figures for metrics: the last step, and all tokens and samples so far, of the run.
  v1::StepDone last_step() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t tokens() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t samples() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Report() ABSL_LOCKS_EXCLUDED(mutex_);
  v1::ReportRunRequest NextBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns how long to wait before the next call.
  absl::Duration HandleAnswer(const v1::ReportRunRequest& request,
                              const absl::StatusOr<v1::ReportRunResponse>& answer,
                              absl::Duration backoff) ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::string job_id_ ABSL_GUARDED_BY(mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<TraceContext> trace_ ABSL_GUARDED_BY(mutex_);
  int64_t first_sequence_ ABSL_GUARDED_BY(mutex_) = 0;  // of waiting_.front()
  std::deque<v1::RunEvent> waiting_ ABSL_GUARDED_BY(mutex_);
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;  // later events of the run are dropped
  v1::StepDone last_step_ ABSL_GUARDED_BY(mutex_);
  int64_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t samples_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace penstock
