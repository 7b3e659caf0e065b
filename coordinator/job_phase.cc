#include "coordinator/job_phase.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/utf8.h"

namespace penstock {

NextPhase JobPhase::OnAnswer(EffectAnswer& answer, Now now) {
  if (const auto* committed = std::get_if<CheckpointCommitted>(&answer)) {
    if (crew_ != nullptr) crew_->OnDecided(committed->step);
    job_.OnCommitted(*committed, now);
  } else if (const auto* news = std::get_if<PrepareWithheld>(&answer)) {
    OnWithheld(*news, now);
  }
  return nullptr;
}

NextPhase JobPhase::OnWorkerLost(const std::string& worker, uint64_t incarnation,
                                 const std::string& reason, Now now) {
  if (crew_ == nullptr) return nullptr;
  crew_->OnLost(worker, incarnation, reason);
  return FailIfBlamed(now);
}

NextPhase JobPhase::OnRegistered(const std::string& worker, uint64_t incarnation, Now now) {
  if (crew_ == nullptr) return nullptr;
  for (const Crew::Part& part : crew_->parts()) {
    const WorkerOffer& offer = part.worker;
    if (offer.name != worker || offer.incarnation == incarnation || part.lost) continue;
    return OnWorkerLost(worker, offer.incarnation, "it was restarted", now);
  }
  return nullptr;
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
  const std::string advice = job_.AdviceToGoOn();
  // Advice with a path as long as paths can be leaves room for an error all the same.
  const size_t room = JobRun::kTextBytesMax - std::min(advice.size(), JobRun::kTextBytesMax / 2);
  job_.summary().set_error(absl::StrCat(CleanUtf8(error, room), advice));
  job_.summary().clear_reason();
  return End(v1::JOB_STATE_FAILED, now);
}

NextPhase JobPhase::FailIfBlamed(Now now) {
  const std::optional<Blame::Verdict> verdict = crew_->blame().Decide(now.monotonic_ns);
  return verdict.has_value() ? Fail(TextOf(*verdict), now) : nullptr;
}

std::string JobPhase::TextOf(const Blame::Verdict& verdict) const {
  if (verdict.worker == Blame::kNobody) return verdict.message;
  return absl::StrCat(NameOf(verdict.worker), ": ", verdict.message);
}

std::string JobPhase::NameOf(int32_t worker_index) const {
  return absl::StrCat("worker ", crew_->parts()[worker_index].worker.name);
}

int64_t JobPhase::StalledAtNs() const {
  return job_.progressed_ns() + job_.limits().stall_timeout_ms * kNsPerMs;
}

NextPhase JobPhase::Tick(Now now) {
  if (NextPhase failed = FailIfBlamed(now)) return failed;
  if (due_ns_.has_value() && now.monotonic_ns >= *due_ns_) {
    due_ns_.reset();
    return OnOverdue(limit_ms_ / 1000, now);
  }
  if (!Works() || now.monotonic_ns < StalledAtNs()) return nullptr;
  return OnStalled(
      absl::StrCat("no worker made any progress for ", job_.limits().stall_timeout_ms / 1000, " s"),
      now);
}

std::optional<int64_t> JobPhase::NextDeadlineNs() const {
  std::optional<int64_t> next = DecidesAtNs();
  if (due_ns_.has_value()) next = std::min(next.value_or(*due_ns_), *due_ns_);
  return Works() ? std::min(next.value_or(StalledAtNs()), StalledAtNs()) : next;
}

void JobPhase::Await(const std::string& reason, int64_t limit_ms, Now now) {
  job_.summary().set_reason(reason);
  limit_ms_ = limit_ms;
  due_ns_ = now.monotonic_ns + limit_ms * kNsPerMs;
}

void JobPhase::StopAwaiting() {
  job_.summary().clear_reason();
  due_ns_.reset();
}

void JobPhase::AwaitLaunch(Now now) {
  const std::string names = NamesOfMissing();
  const std::string reason =
      absl::StrCat("waits for ", names, crew_->starting() ? " to start" : " to prepare");
  const int64_t limit_ms =
      crew_->starting() ? job_.limits().start_timeout_ms : job_.limits().prepare_timeout_ms;
  if (due_ns_.has_value() && awaits_start_ == crew_->starting()) {
    job_.summary().set_reason(reason);  // one more has answered, and the limit is for all
    return;
  }
  awaits_launch_ = true;
  awaits_start_ = crew_->starting();
  Await(reason, limit_ms, now);
}

void JobPhase::OnComesFurther(Now now) {
  if (!awaits_launch_ || awaits_start_ || !due_ns_.has_value()) return;
  due_ns_ = now.monotonic_ns + limit_ms_ * kNsPerMs;
}

void JobPhase::OnWithheld(const PrepareWithheld& news, Now now) {
  if (!awaits_launch_ || crew_->starting() || crew_->epoch() != news.epoch) return;
  if (!news.withheld) return AwaitLaunch(now);
  // No worker has heard of the attempt, so none is late. The loop tries to write every second.
  job_.summary().set_reason("waits until the coordinator can write its state");
  due_ns_.reset();
}

std::string JobPhase::WhatIsLate(int64_t seconds, bool ends) const {
  // A job that waits for a run of its planning goes back to the queue by itself.
  const bool advise = ends && !job_.of_planning();
  return absl::StrCat("did not ", crew_->starting() ? "start" : "prepare", " within ", seconds,
                      " s", advise ? "; restart what hangs, and submit the job again" : "");
}

NextPhase JobPhase::FailAsLate(int64_t seconds, Now now) {
  job_.SetUnreachable();
  return Fail(absl::StrCat(NamesOfMissing(), " ", WhatIsLate(seconds, /*ends=*/true)), now);
}

std::string JobPhase::NamesOfMissing() const {
  std::vector<std::string> names;
  for (const int32_t worker : crew_->Missing()) names.push_back(NameOf(worker));
  return AFewOf(std::move(names));
}

std::string JobPhase::AFewOf(std::vector<std::string> names) {
  constexpr size_t kNamesMax = 4;
  const size_t others = names.size() - std::min(names.size(), kNamesMax);
  names.resize(names.size() - others);
  return absl::StrCat(absl::StrJoin(names, ", "),
                      others > 0 ? absl::StrCat(" and ", others, " more") : "");
}

// ----------------------------------------------------------------------------------------- Queued

NextPhase Queued::Enter(Now now) {
  job_.summary().set_reason(terms_.reason);
  job_.SetWaiting(now);
  return nullptr;
}

NextPhase Queued::Tick(Now now) {
  if (now.monotonic_ns >= terms_.rests_until_ns) terms_.rests_until_ns = 0;
  if (!HoldsBack(now)) terms_.holds_back_until_ns = 0;
  if (terms_.workers_until_ns > 0 && now.monotonic_ns >= terms_.workers_until_ns) {
    terms_.workers_until_ns = 0;
    OnWaited();
  }
  return nullptr;
}

std::optional<int64_t> Queued::NextDeadlineNs() const {
  std::optional<int64_t> next;
  for (const int64_t until_ns :
       {terms_.rests_until_ns, terms_.workers_until_ns, terms_.holds_back_until_ns}) {
    if (until_ns > 0) next = std::min(next.value_or(until_ns), until_ns);
  }
  return next;
}

// ------------------------------------------------------------------------------------------ Ended

NextPhase Ended::Enter(Now now) {
  deadline_ns_ = now.monotonic_ns + job_.limits().stop_timeout_ms * kNsPerMs;
  AskToStop(now);
  job_.SetState(state_, now);
  if (crew_ == nullptr || crew_->AllGone()) LetCrewGo();
  return nullptr;
}

void Ended::AskToStop(Now now) {
  retry_ns_ = now.monotonic_ns + job_.limits().stop_retry_ms * kNsPerMs;
  const std::string& error = job_.summary().error();
  if (crew_ != nullptr) crew_->Stop(error.empty() ? job_.cancel_reason() : error);
}

NextPhase Ended::OnResponse(int32_t worker_index, const WorkerResponse& response, Now) {
  crew_->OnStopped(worker_index, response);
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
    job_.AddNotStopped(*crew_);
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
