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
  events_.clear();
  kept_from_ = 0;
  had_ = 0;
  had_bytes_ = 0;
  reported_ = 0;
  answered_ = asks_;
  ended_ = given_up_ = false;
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
  if (event.has_run_done() || event.has_run_failed()) ended_ = true;
  const int64_t unheard = kept_from_ + static_cast<int64_t>(events_.size()) - reported_;
  if (unheard < static_cast<int64_t>(kEventsWaitingMax)) {
    events_.push_back(std::move(event));
    return std::nullopt;
  }
  given_up_ = true;
  return GivenUp{job_id_, epoch_,
                 absl::UnavailableError(absl::StrCat("the coordinator has not taken ",
                                                     kEventsWaitingMax, " events of the run"))};
}

v1::ReportRunRequest EventOutbox::NextBatch() {
  batch_asks_ = asks_;
  v1::ReportRunRequest request;
  request.set_worker(worker_);
  request.set_incarnation(incarnation_);
  request.set_job_id(job_id_);
  request.set_epoch(epoch_);
  request.set_first_sequence(next_sequence());
  request.set_kept_from(kept_from_);
  int64_t bytes = 0;
  for (size_t i = had_; i < events_.size(); ++i) {
    bytes += static_cast<int64_t>(events_[i].ByteSizeLong());
    if (bytes > kBatchBytesMax && request.events_size() > 0) break;
    *request.add_events() = events_[i];
  }
  return request;
}

EventOutbox::AfterAnswer EventOutbox::OnAnswer(const v1::ReportRunRequest& request,
                                               const absl::StatusOr<v1::ReportRunResponse>& answer,
                                               absl::Duration wait) {
  const bool is_current = job_id_ == request.job_id() && epoch_ == request.epoch();
  if (!is_current) return {absl::ZeroDuration()};
  if (absl::IsAborted(answer.status())) {
    const bool was_told_all = ended_ && waiting() == 0;
    events_.clear();
    had_ = 0;
    had_bytes_ = 0;
    answered_ = asks_;
    given_up_ = true;
    if (was_told_all) return {absl::ZeroDuration()};
    return {absl::ZeroDuration(), GivenUp{job_id_, epoch_, answer.status()}};
  }
  if (answer.ok()) {
    answered_ = batch_asks_;
    // The coordinator counts from what it has: never more than was sent, but less than before if it was restarted.
    const int64_t sent_to = request.first_sequence() + request.events_size();
    const int64_t has = std::clamp(answer->next_sequence(), kept_from_, sent_to);
    SetHad(has);
    reported_ = std::max(reported_, has);
    DropStored(answer->has_stored_sequence() ? answer->stored_sequence() : has);
    if (has == sent_to) return {absl::ZeroDuration()};
  }
  return {std::clamp(2 * wait, kBackoffMin, kBackoffMax)};
}

void EventOutbox::SetHad(int64_t sequence) {
  const auto bytes = [this](size_t i) { return static_cast<int64_t>(events_[i].ByteSizeLong()); };
  for (; next_sequence() < sequence; ++had_) had_bytes_ += bytes(had_);
  for (; next_sequence() > sequence; --had_) had_bytes_ -= bytes(had_ - 1);
}

void EventOutbox::DropStored(int64_t stored_sequence) {
  while (had_ > 0 &&
         (kept_from_ < stored_sequence || had_ > kEventsKeptMax || had_bytes_ > kKeptBytesMax)) {
    had_bytes_ -= static_cast<int64_t>(events_.front().ByteSizeLong());
    events_.pop_front();
    --had_;
    ++kept_from_;
  }
}

}  // namespace penstock
