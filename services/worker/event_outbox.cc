#include "services/worker/event_outbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {

void EventOutbox::Begin(const std::string& job_id, int64_t epoch,
                        const std::optional<TraceContext>& trace) {
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

std::optional<EventOutbox::GivenUp> EventOutbox::Add(v1::RunEvent event) {
  if (event.has_step_done()) {
    last_step_ = event.step_done();
    tokens_ += event.step_done().tokens();
    samples_ += event.step_done().samples();
  }
  if (given_up_) return std::nullopt;
  if (waiting_.size() < kEventsWaitingMax) {
    waiting_.push_back(std::move(event));
    return std::nullopt;
  }
  given_up_ = true;
  return GivenUp{job_id_, epoch_,
                 absl::UnavailableError(absl::StrCat("the coordinator has not taken ",
                                                     kEventsWaitingMax, " events of the run"))};
}

v1::ReportRunRequest EventOutbox::NextBatch() const {
  v1::ReportRunRequest request;
  request.set_worker(worker_);
  request.set_incarnation(incarnation_);
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

EventOutbox::AfterAnswer EventOutbox::OnAnswer(const v1::ReportRunRequest& request,
                                               const absl::StatusOr<v1::ReportRunResponse>& answer,
                                               absl::Duration wait) {
  const bool is_current = job_id_ == request.job_id() && epoch_ == request.epoch();
  if (!is_current) return {absl::ZeroDuration()};
  if (absl::IsAborted(answer.status())) {
    waiting_.clear();
    given_up_ = true;
    return {absl::ZeroDuration(), GivenUp{job_id_, epoch_, answer.status()}};
  }
  if (answer.ok()) {
    // The coordinator counts from what it has; never more than was sent.
    const int64_t sent_to = first_sequence_ + request.events_size();
    const int64_t has = std::min(answer->next_sequence(), sent_to);
    for (; first_sequence_ < has; ++first_sequence_) waiting_.pop_front();
    if (has == sent_to) return {absl::ZeroDuration()};
  }
  return {std::clamp(2 * wait, kBackoffMin, kBackoffMax)};
}

}  // namespace penstock
