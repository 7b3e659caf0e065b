#include "services/worker/registration_dialogue.h"

#include <algorithm>

namespace penstock {

RegistrationDialogue::Call RegistrationDialogue::Next() {
  if (!registered_ && leaving_ && returns_ == 0)
    may_leave_ = true;  // the coordinator does not know it
  if (may_leave_) return Call::kNone;
  return registered_ ? Call::kHeartbeat : Call::kRegister;
}

RegistrationDialogue::AfterAnswer RegistrationDialogue::OnRegistered(
    const absl::StatusOr<v1::RegisterWorkerResponse>& answer) {
  if (absl::IsInvalidArgument(answer.status()) || absl::IsFailedPrecondition(answer.status())) {
    may_leave_ = true;
    return {.wait = absl::ZeroDuration(), .refused = true};
  }
  std::optional<absl::Status> news = NewsOf(answer.status());
  if (!answer.ok()) return {NextBackoff(), std::move(news)};
  registered_ = true;
  ++registrations_;
  backoff_ = absl::ZeroDuration();
  // It is there, perhaps again: until the stream is open, it hears of this worker's death only seconds later.
  stream_pause_ = absl::ZeroDuration();
  AskedFor(answer->heartbeat_interval_ms());
  return {leaving_ ? absl::ZeroDuration() : interval_, std::move(news)};
}

RegistrationDialogue::AfterAnswer RegistrationDialogue::OnHeartbeat(
    const v1::HeartbeatRequest& request, const absl::StatusOr<v1::HeartbeatResponse>& answer) {
  if (request.leaving()) return OnLeavingAnswer(answer.status(), !request.job_id().empty());
  std::optional<absl::Status> news = NewsOf(answer.status());
  if (answer.ok()) {
    backoff_ = absl::ZeroDuration();
    if (const int64_t ms = answer->heartbeat_interval_ms(); ms != 0) AskedFor(ms);
    return {interval_, std::move(news)};
  }
  if (absl::IsNotFound(answer.status())) {
    registered_ = false;
    return {absl::ZeroDuration(), std::move(news)};
  }
  return {std::min(NextBackoff(), interval_), std::move(news)};
}

void RegistrationDialogue::AskedFor(int64_t milliseconds) {
  interval_ = std::clamp(absl::Milliseconds(milliseconds), kIntervalMin, kIntervalMax);
}

RegistrationDialogue::AfterAnswer RegistrationDialogue::OnLeavingAnswer(const absl::Status& answer,
                                                                        bool has_run) {
  unanswered_ = answer.ok() ? 0 : unanswered_ + 1;
  const bool is_unknown = absl::IsNotFound(answer);
  // The coordinator may be another process, which is to go on with the run: it must know the worker to let it go.
  if (is_unknown && has_run && returns_ < kLeavingReturnsMax) {
    ++returns_;
    registered_ = false;
    return {absl::ZeroDuration()};
  }
  const bool nobody_answers = !has_run && unanswered_ >= kLeavingAttemptsMax;
  if (is_unknown || nobody_answers) may_leave_ = true;
  return {may_leave_ ? absl::ZeroDuration() : kLeavingInterval};
}

bool RegistrationDialogue::OnStreamEnded(int64_t registrations, absl::Duration open_for,
                                         const absl::Status& ended) {
  stream_pause_ = open_for >= kAttachedMin
                      ? absl::ZeroDuration()
                      : std::clamp(2 * stream_pause_, kBackoffMin, kBackoffMax);
  // A coordinator that does not know the worker, or such streams, is asked again once the worker has registered again.
  const bool in_vain = absl::IsNotFound(ended) || absl::IsUnimplemented(ended);
  attach_after_ = in_vain ? registrations : 0;
  return !absl::IsDeadlineExceeded(ended) && !absl::IsUnimplemented(ended);
}

absl::Duration RegistrationDialogue::NextBackoff() {
  backoff_ = std::clamp(2 * backoff_, kBackoffMin, kBackoffMax);
  return backoff_;
}

std::optional<absl::Status> RegistrationDialogue::NewsOf(const absl::Status& status) {
  if (status.code() == noted_.code()) return std::nullopt;
  noted_ = status;
  return status;
}

}  // namespace penstock
