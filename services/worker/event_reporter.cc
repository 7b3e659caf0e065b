#include "services/worker/event_reporter.h"

#include <utility>

#include "base/deadline.h"
#include "base/fault_points.h"
#include "services/rpc/completion_poller.h"

namespace penstock {
EventReporter::EventReporter(Parts parts)
    : parts_(std::move(parts)), outbox_(parts_.worker, parts_.incarnation) {
  thread_ = std::thread([this] {
    NameThread("reporter");
    Report();
  });
}

EventReporter::~EventReporter() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void EventReporter::Begin(const std::string& job_id, int64_t epoch,
                          const std::optional<TraceContext>& trace) {
  MutexLock lock(mutex_);
  outbox_.Begin(job_id, epoch, trace);
}

void EventReporter::Add(v1::RunEvent event) {
  std::optional<EventOutbox::GivenUp> given_up;
  {
    MutexLock lock(mutex_);
    given_up = outbox_.Add(std::move(event));
    changed_.NotifyAll();
  }
  GiveUp(given_up);
}

void EventReporter::AskAgain() {
  MutexLock lock(mutex_);
  outbox_.AskAgain();
  asks_again_ = true;
  changed_.NotifyAll();
}

bool EventReporter::Flush(absl::Time deadline) {
  MutexLock lock(mutex_);
  const auto until = Monotonic(deadline);
  while (!outbox_.empty()) {
    if (!changed_.WaitUntil(mutex_, until)) return outbox_.empty();
  }
  return true;
}

v1::StepDone EventReporter::last_step() const {
  MutexLock lock(mutex_);
  return outbox_.last_step();
}

int64_t EventReporter::tokens() const {
  MutexLock lock(mutex_);
  return outbox_.tokens();
}

int64_t EventReporter::samples() const {
  MutexLock lock(mutex_);
  return outbox_.samples();
}

void EventReporter::Report() {
  absl::Duration wait = absl::ZeroDuration();
  while (true) {
    v1::ReportRunRequest request;
    std::optional<TraceContext> trace;
    {
      MutexLock lock(mutex_);
      if (wait > absl::ZeroDuration() && !stopping_) {
        // New events do not make a coordinator come back sooner. Its return ends the wait.
        const auto until = After(wait);
        while (!stopping_ && !asks_again_ && changed_.WaitUntil(mutex_, until)) {
        }
      }
      if (std::exchange(asks_again_, false)) wait = absl::ZeroDuration();
      while (outbox_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      request = outbox_.NextBatch();
      trace = outbox_.trace();
    }
    PENSTOCK_FAULT_POINT(kReportBeforeSend);
    const absl::StatusOr<v1::ReportRunResponse> answer = parts_.send(request, trace);
    PENSTOCK_FAULT_POINT(kReportAfterAnswer);
    EventOutbox::AfterAnswer after;
    {
      MutexLock lock(mutex_);
      after = outbox_.OnAnswer(request, answer, wait);
      changed_.NotifyAll();
    }
    GiveUp(after.given_up);
    wait = after.wait;
  }
}

void EventReporter::GiveUp(const std::optional<EventOutbox::GivenUp>& given_up) {
  if (given_up.has_value()) parts_.give_up(given_up->job_id, given_up->epoch, given_up->reason);
}

}  // namespace penstock
