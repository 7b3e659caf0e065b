#include "services/worker/event_reporter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/fault_points.h"
#include "services/rpc/completion_poller.h"

namespace penstock {
EventReporter::EventReporter(Parts parts) : parts_(std::move(parts)) {
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
  job_id_ = job_id;
  epoch_ = epoch;
  trace_ = trace;
  first_sequence_ = 0;
  waiting_.clear();
  given_up_ = false;
  last_step_.Clear();
  tokens_ = 0;
  samples_ = 0;
}

void EventReporter::Add(v1::RunEvent event) {
  std::string job_id;
  int64_t epoch = 0;
  {
    MutexLock lock(mutex_);
    if (event.has_step_done()) {
      last_step_ = event.step_done();
      tokens_ += event.step_done().tokens();
      samples_ += event.step_done().samples();
    }
    if (given_up_) return;
    if (waiting_.size() < kEventsWaitingMax) {
      waiting_.push_back(std::move(event));
      changed_.NotifyAll();
      return;
    }
    given_up_ = true;
    job_id = job_id_;
    epoch = epoch_;
  }
  parts_.give_up(job_id, epoch,
                 absl::UnavailableError(absl::StrCat("the coordinator has not taken ",
                                                     kEventsWaitingMax, " events of the run")));
}

bool EventReporter::Flush(absl::Time deadline) {
  MutexLock lock(mutex_);
  const auto until = Monotonic(deadline);
  while (!waiting_.empty()) {
    if (!changed_.WaitUntil(mutex_, until)) return waiting_.empty();
  }
  return true;
}

v1::StepDone EventReporter::last_step() const {
  MutexLock lock(mutex_);
  return last_step_;
}

int64_t EventReporter::tokens() const {
  MutexLock lock(mutex_);
  return tokens_;
}

int64_t EventReporter::samples() const {
  MutexLock lock(mutex_);
  return samples_;
}

void EventReporter::Report() {
  absl::Duration backoff = absl::ZeroDuration();
  while (true) {
    v1::ReportRunRequest request;
    std::optional<TraceContext> trace;
    {
      MutexLock lock(mutex_);
      if (backoff > absl::ZeroDuration() && !stopping_) {
        // New events do not make a coordinator come back sooner: only the end cuts the wait short.
        const auto until = After(backoff);
        while (!stopping_ && changed_.WaitUntil(mutex_, until)) {
        }
      }
      while (waiting_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      request = NextBatch();
      trace = trace_;
    }
    PENSTOCK_FAULT_POINT(kReportBeforeSend);
    const absl::StatusOr<v1::ReportRunResponse> answer = parts_.send(request, trace);
    PENSTOCK_FAULT_POINT(kReportAfterAnswer);
    backoff = HandleAnswer(request, answer, backoff);
  }
}

v1::ReportRunRequest EventReporter::NextBatch() {
  v1::ReportRunRequest request;
  request.set_worker(parts_.worker);
  request.set_incarnation(parts_.incarnation);
  request.set_job_id(job_id_);
  request.set_epoch(epoch_);
  request.set_first_sequence(first_sequence_);
  int64_t bytes = 0;
  for (const v1::RunEvent& event : waiting_) {
    bytes += static_cast<int64_t>(event.ByteSizeLong());
    if (bytes > kBatchBytesMax && request.events_size() > 0) break;
    *request.add_events() = event;
  }
  return request;
}

absl::Duration EventReporter::HandleAnswer(const v1::ReportRunRequest& request,
                                           const absl::StatusOr<v1::ReportRunResponse>& answer,
                                           absl::Duration backoff) {
  const bool over = absl::IsAborted(answer.status());
  {
    MutexLock lock(mutex_);
    if (job_id_ != request.job_id() || epoch_ != request.epoch()) return absl::ZeroDuration();
    if (answer.ok()) {
      // The coordinator counts from what it has; never more than was sent.
      const int64_t sent_to = first_sequence_ + request.events_size();
      const int64_t has = std::min(answer->next_sequence(), sent_to);
      for (; first_sequence_ < has; ++first_sequence_) waiting_.pop_front();
      changed_.NotifyAll();
      if (has == sent_to) return absl::ZeroDuration();
    } else if (over) {
      waiting_.clear();
      given_up_ = true;
      changed_.NotifyAll();
    }
  }
  if (over) {
    parts_.give_up(request.job_id(), request.epoch(), answer.status());
    return absl::ZeroDuration();
  }
  return std::clamp(2 * backoff, kBackoffMin, kBackoffMax);
}

}  // namespace penstock
