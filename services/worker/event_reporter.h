// EventReporter: brings what happens in a run to the coordinator, in order, each event once.
//
// A thread around EventOutbox (event_outbox.h), which says what is sent, and when a run is given up: a coordinator that is
// away is asked again and again.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
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
#include "services/worker/event_outbox.h"

namespace penstock {

class EventReporter {
 public:
  static constexpr size_t kEventsWaitingMax = EventOutbox::kEventsWaitingMax;

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
  // The worker has made itself known to a coordinator that did not know it, and may lack what the one before had.
  void AskAgain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until all events are acknowledged or dropped. False if `deadline` came first.
  bool Flush(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Figures for metrics: the last step, and all tokens and samples so far, of the run.
  v1::StepDone last_step() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t tokens() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t samples() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Report() ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops the run, if there is one to be given up.
  void GiveUp(const std::optional<EventOutbox::GivenUp>& given_up) ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;

  mutable Mutex mutex_;
  CondVar changed_;
  EventOutbox outbox_ ABSL_GUARDED_BY(mutex_);
  bool asks_again_ ABSL_GUARDED_BY(mutex_) = false;  // without the rest of a wait
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace penstock
