#include "coordinator/job_phase.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace penstock {

NextPhase JobPhase::OnAnswer(EffectAnswer& answer, Now now) {
  if (const auto* committed = std::get_if<CheckpointCommitted>(&answer)) {
    job_.OnCommitted(*committed, now);
  }
  return nullptr;
}

NextPhase JobPhase::OnWorkerLost(const std::string& worker, uint64_t incarnation,
                                 const std::string& reason, Now now) {
  if (crew_ == nullptr) return nullptr;
  crew_->OnLost(worker, incarnation, reason);
  return FailIfBlamed(now);
}

NextPhase JobPhase::Cancel(Now now) {
  job_.summary().set_reason(job_.cancel_reason());
  return End(v1::JOB_STATE_CANCELLED, now);
}

NextPhase JobPhase::EndNow(v1::JobState state) {
  if (crew_ != nullptr && !crew_->asked()) crew_.reset();  // it has not heard of the job
  return std::make_unique<Ended>(job_, state, std::move(crew_));
}

NextPhase JobPhase::Fail(const std::string& error, Now now) {
  job_.summary().set_error(CleanUtf8(error, JobRun::kTextBytesMax));
  job_.summary().clear_reason();
  return End(v1::JOB_STATE_FAILED, now);
}

NextPhase JobPhase::FailIfBlamed(Now now) {
  const std::optional<Blame::Verdict> verdict = crew_->blame().Decide(now.monotonic_ns);
  if (!verdict.has_value()) return nullptr;
  return Fail(absl::StrCat(NameOf(verdict->worker), ": ", verdict->message), now);
}

std::string JobPhase::NameOf(int32_t worker_index) const {
  return absl::StrCat("worker ", crew_->parts()[worker_index].worker.name);
}

int64_t JobPhase::StalledAtNs() const {
  return job_.progressed_ns() + job_.limits().stall_timeout_ms * kNsPerMs;
}

NextPhase JobPhase::Tick(Now now) {
  if (NextPhase failed = FailIfBlamed(now)) return failed;
  if (!Works() || now.monotonic_ns < StalledAtNs()) return nullptr;
  return Fail(
      absl::StrCat("no worker made any progress for ", job_.limits().stall_timeout_ms / 1000, " s"),
      now);
}

std::optional<int64_t> JobPhase::NextDeadlineNs() const {
  const std::optional<int64_t> next = crew_->blame().DecideAtNs();
  return Works() ? std::min(next.value_or(StalledAtNs()), StalledAtNs()) : next;
}

// ----------------------------------------------------------------------------------------- Queued

NextPhase Queued::Enter(Now now) {
  job_.summary().set_reason(reason_);
  job_.SetState(v1::JOB_STATE_QUEUED, now);
  return nullptr;
}

NextPhase Queued::Tick(Now now) {
  if (now.monotonic_ns < until_ns_) return nullptr;
  until_ns_ = 0;
  workers_before_.reset();
  return nullptr;
}

// ------------------------------------------------------------------------------------------ Ended

NextPhase Ended::Enter(Now now) {
  deadline_ns_ = now.monotonic_ns + job_.limits().stop_timeout_ms * kNsPerMs;
  AskToStop(now);
  job_.SetState(state_, now);
  if (crew_ != nullptr && crew_->AllGone()) LetCrewGo();
  return nullptr;
}

void Ended::AskToStop(Now now) {
  retry_ns_ = now.monotonic_ns + job_.limits().stop_retry_ms * kNsPerMs;
  const std::string& error = job_.summary().error();
  if (crew_ != nullptr) crew_->Stop(error.empty() ? job_.cancel_reason() : error);
}

NextPhase Ended::OnResponse(int32_t worker_index, const WorkerResponse& response, Now) {
  const auto* stopped = std::get_if<absl::StatusOr<v1::StopRunResponse>>(&response);
  if (stopped != nullptr && stopped->ok()) crew_->parts()[worker_index].stopped = true;
  if (crew_->AllGone()) LetCrewGo();
  return nullptr;
}

NextPhase Ended::OnWorkerLost(const std::string& worker, uint64_t incarnation,
                              const std::string& reason, Now) {
  if (crew_ == nullptr) return nullptr;
  crew_->OnLost(worker, incarnation, reason);
  if (crew_->AllGone()) LetCrewGo();
  return nullptr;
}

NextPhase Ended::Tick(Now now) {
  if (crew_ == nullptr) return nullptr;
  if (now.monotonic_ns >= deadline_ns_) {
    LetCrewGo();
  } else if (now.monotonic_ns >= retry_ns_) {
    AskToStop(now);
  }
  return nullptr;
}

void Ended::LetCrewGo() {
  crew_.reset();
  job_.OnCrewGone();
}

}  // namespace penstock
