// How a job goes on after an attempt: at once, or after it has stopped and waited for workers.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/growth.h"
#include "coordinator/recovery_policy.h"
#include "coordinator/training_phases.h"
#include "job/fewer_stages.h"

namespace penstock {

NextPhase AttemptPhase::Reconfigure(Reconfiguration change, Now now) {
  int64_t workers = crew_->size();
  if (IsFailure(change.cause)) {
    bool is_undone = job_.DropSplit(now);
    if (const std::optional<int64_t> before = job_.DropGrowth(change.worker, now)) {
      workers = *before;
      is_undone = true;
    }
    // What would come again with a new split, or with those that joined, need not come without.
    if (is_undone && !MayEndOtherwise(change.cause)) change.cause = v1::ATTEMPT_CAUSE_RUN_FAILED;
  }
  job_.EndAttempt(change.cause, change.worker, change.message, now);
  if (change.from.has_value()) {
    std::vector<WorkerOffer> crew = crew_->Workers();
    if (!change.joining.empty()) {
      crew.insert(crew.end(), change.joining.begin(), change.joining.end());
      const auto& places = job_.full_crew().workers();
      crew = InPlaces(std::vector<std::string>(places.begin(), places.end()), std::move(crew));
    }
    crew_->BeginAgain(std::move(crew), now);
    job_.summary().clear_reason();  // it has waited for the commit
    job_.SetState(v1::JOB_STATE_PREPARING, now);
    return Launch(job_, std::move(crew_), *std::move(change.from),
                  /*has_new_split=*/change.cause == v1::ATTEMPT_CAUSE_NEW_SPLIT);
  }
  if (!IsFailure(change.cause)) {
    job_.SetReturned();
    return BackToQueue(job_, change.message, workers, /*rest_ms=*/0, now);
  }
  const AfterFailureDecision decision =
      AfterFailure(job_.spec().recovery(), CountFailures(job_.result().attempts()));
  if (!decision.why_not.empty()) {
    return Fail(absl::StrCat(change.message, "; ", decision.why_not), now);
  }
  const FoundStart from = job_.LaterOf(attempt().latest());
  const int64_t redone = job_.progress().step() - from.step;
  job_.Log(absl::StrCat(
               change.message, "; the job recovers and goes on after step ", from.step,
               redone > 0 ? absl::StrCat(", ", redone, redone == 1 ? " step is" : " steps are",
                                         " done again")
                          : "",
               decision.pause_ms > 0 ? absl::StrCat(", in ", decision.pause_ms / 1000, " s") : ""),
           now);
  job_.OnCrewGone();
  return WaitToRecover(job_, change.message, workers, decision.pause_ms, now);
}

namespace {

// The workers that are left are asked to stop, and keep their processes. One that cannot be reached is not waited for: it
// gets no work from anybody until it has stopped, or is a new process.
class Stopping final : public AttemptPhase {
 public:
  using AttemptPhase::AttemptPhase;

  NextPhase Enter(Now now) override {
    deadline_ns_ = now.monotonic_ns + job_.limits().stop_timeout_ms * kNsPerMs;
    dead_link_ns_ = now.monotonic_ns + job_.limits().dead_link_stop_ms * kNsPerMs;
    job_.summary().set_reason(TextOf(crew_->blame().Best()));
    job_.NoteFailure(now);
    attempt().growth.reset();
    job_.SetState(v1::JOB_STATE_RECOVERING, now);
    AskToStop(now);
    return GoOnIfStopped(now);
  }

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override {
    AttemptPhase::OnAnswer(answer, now);
    return GoOnIfStopped(now);
  }

  NextPhase OnResponse(int32_t worker_index, const WorkerResponse& response, Now now) override {
    crew_->OnStopped(worker_index, response);
    crew_->OnLatePreparation(worker_index, response, now);
    return GoOnIfStopped(now);
  }

  NextPhase OnEvent(int32_t worker_index, const v1::RunEvent& event, Now now) override {
    // Or a neighbour was.
    const bool was_stopped =
        event.has_run_failed() && event.run_failed().code() == v1::STATUS_CODE_ABORTED;
    // The attempt has failed, whatever a worker has come to.
    if (event.has_run_done() || was_stopped) return nullptr;
    AttemptPhase::OnEvent(worker_index, event, now);
    return GoOnIfStopped(now);
  }

  NextPhase OnWorkerLost(const std::string& worker, uint64_t incarnation, const std::string& reason,
                         Now now) override {
    crew_->OnLost(worker, incarnation, reason);
    return GoOnIfStopped(now);
  }

  NextPhase Tick(Now now) override {
    GiveUpOverdueCommits(now);
    if (now.monotonic_ns >= retry_ns_) AskToStop(now);
    if (dead_link_ns_.has_value() && now.monotonic_ns >= *dead_link_ns_) {
      dead_link_ns_.reset();
      crew_->GiveUpAtDeadLinks();
    }
    return GoOnIfStopped(now);
  }

  bool Fits(v1::JobState state) const override { return state == v1::JOB_STATE_RECOVERING; }
  // The workers that have stopped, and those that join, are for this job.
  bool HoldsBack(Now now) const override { return now.monotonic_ns < deadline_ns_; }

 private:
  NextPhase FailIfBlamed(Now) override { return nullptr; }
  std::optional<int64_t> DecidesAtNs() const override {
    return std::min(retry_ns_, dead_link_ns_.value_or(retry_ns_));
  }

  void AskToStop(Now now) {
    retry_ns_ = now.monotonic_ns + job_.limits().stop_retry_ms * kNsPerMs;
    crew_->Stop(job_.summary().reason());
  }

  NextPhase GoOnIfStopped(Now now) {
    const bool patient = now.monotonic_ns < deadline_ns_;
    if (patient && !crew_->StillTaken(/*reachable=*/true).empty()) return nullptr;
    if (attempt().checkpoints.Committing() || !KnowsWho(now)) return nullptr;
    job_.AddNotStopped(*crew_);
    const Blame::Verdict verdict = crew_->blame().Best();
    return Reconfigure(
        {.cause = verdict.cause, .worker = WorkerOf(verdict), .message = TextOf(verdict)}, now);
  }

  // A worker that failed by itself says why, which decides whether another attempt makes sense. One that is gone says no
  // more.
  bool KnowsWho(Now now) const {
    const Blame& blame = crew_->blame();
    const int32_t worker = blame.Best().worker;
    if (blame.Decide(now.monotonic_ns).has_value() || worker == Blame::kNobody) return true;
    const Crew::Part& part = crew_->parts()[worker];
    return part.lost || part.unreachable;
  }

  int64_t retry_ns_ = 0;
  int64_t deadline_ns_ = 0;
  std::optional<int64_t> dead_link_ns_;
};

int64_t WaitNs(const v1::JobSpec& spec) { return 1000 * kNsPerMs * spec.recovery().wait_seconds(); }

// A job that is to go on waits for as many workers as it had. If there are fewer for recovery.wait_seconds, it takes them,
// or ends if it recovers from a failure.
class WaitingForCrew final : public Queued {
 public:
  enum class After : uint8_t { kFailure, kGoodOrder };

  WaitingForCrew(TrainingJob& job, After after, WaitTerms terms)
      : Queued(job, std::move(terms)), job_(job), after_(after) {}

  NextPhase Enter(Now now) override {
    if (after_ == After::kGoodOrder) return Queued::Enter(now);
    job_.summary().set_reason(terms().reason);
    if (job_.recovering()) {
      job_.Save();  // all has been told
    } else {
      job_.SetState(v1::JOB_STATE_RECOVERING, now);
    }
    return nullptr;
  }

  NextPhase OnFree(const std::vector<WorkerOffer>& free, Now now) override {
    if (!job_.Recovers() && !job_.recovering()) return nullptr;
    const v1::RecoverySpec& rules = job_.spec().recovery();
    since_ns_ = since_ns_.value_or(now.monotonic_ns);
    CrewQuestion question{.needed = job_.WorkersNeeded(),
                          .free = CountUsable(free),
                          .waited_ms = (now.monotonic_ns - *since_ns_) / kNsPerMs};
    // It costs some time to know what else would do.
    if (ChooseCrew(rules, question) != CrewChoice::kNone) return nullptr;
    if (too_few_ == question.free) return nullptr;
    const absl::StatusOr<v1::JobSpec> fewer = WithFewer(question.free);
    question.fewer_do = fewer.ok();
    if (ChooseCrew(rules, question) != CrewChoice::kFewer) {
      too_few_ = question.free;
      if (after_ == After::kGoodOrder) return nullptr;
      return Fail(
          absl::StrCat(terms().reason, "; the job has waited ", question.waited_ms / 1000,
                       " s for ", question.needed, " workers, and ",
                       question.free == 0 ? "none" : absl::StrCat(question.free),
                       question.free == 1 ? " is" : " are", " free (recovery.wait_seconds is ",
                       rules.wait_seconds(), "): ", fewer.status().message()),
          now);
    }
    if (const absl::Status taken = job_.TakeSpec(*fewer); !taken.ok()) {
      return Fail(absl::StrCat("cannot go on with fewer workers: ", taken.message()), now);
    }
    Queued::OnWaited();
    job_.Log(absl::StrCat("goes on with ", job_.WorkersOf(question.free), " workers instead of ",
                          question.needed, ", for there were no more within ",
                          question.waited_ms / 1000, " s"),
             now);
    return nullptr;
  }

  NextPhase Tick(Now now) override {
    if (since_ns_.has_value() && now.monotonic_ns >= DueNs()) has_waited_ = true;
    return Queued::Tick(now);
  }

  std::optional<int64_t> NextDeadlineNs() const override {
    std::optional<int64_t> next = Queued::NextDeadlineNs();
    // After that it goes on, or not, whenever it comes to be its turn, which may be later.
    if (!since_ns_.has_value() || has_waited_) return next;
    return std::min(next.value_or(DueNs()), DueNs());
  }

 private:
  int64_t DueNs() const { return *since_ns_ + WaitNs(job_.spec()); }

  // After a failure, only OnFree knows whether fewer would do.
  void OnWaited() override {
    if (after_ == After::kGoodOrder) Queued::OnWaited();
  }

  int64_t CountUsable(const std::vector<WorkerOffer>& free) const {
    if (!job_.NamesWorkers()) return static_cast<int64_t>(free.size());
    const auto& names = job_.spec().pipeline().worker_names();
    return std::count_if(free.begin(), free.end(), [&](const WorkerOffer& worker) {
      return std::find(names.begin(), names.end(), worker.name) != names.end();
    });
  }

  // Returns the job as it would go on with the free workers.
  absl::StatusOr<v1::JobSpec> WithFewer(int64_t free) const {
    const v1::JobSpec& spec = job_.spec();
    const ResolvedJob& job = job_.resolved();
    const int64_t stages_min = spec.recovery().stages_min();
    if (job_.NamesWorkers()) {
      return absl::FailedPreconditionError("the job names its workers (pipeline.worker_names)");
    }
    if (spec.pipeline().has_stages()) return WithFewerStages(spec, job, free, stages_min);
    const int64_t workers = WorkersFor(spec, job, free);
    if (AnyStagesAreAlike(job) && workers > 0 && job.StagesOn(workers) >= stages_min) return spec;
    return absl::FailedPreconditionError(
        AnyStagesAreAlike(job) ? absl::StrCat("it goes on with ", stages_min, " stages at least")
                               : absl::StrCat("with ", job.method->name,
                                              " another number of stages is another training"));
  }

  TrainingJob& job_;
  After after_;
  // Since when it could be begun, if there were enough workers: its pause is over, and no other job comes first.
  std::optional<int64_t> since_ns_;
  bool has_waited_ = false;         // for as long as it may
  std::optional<int64_t> too_few_;  // with which it cannot go on, although it has waited
};

}  // namespace

NextPhase StopAndRecover(TrainingJob& job, std::unique_ptr<Crew> crew) {
  return std::make_unique<Stopping>(job, std::move(crew));
}

NextPhase WaitToRecover(TrainingJob& job, const std::string& reason, int64_t workers,
                        int64_t pause_ms, Now now) {
  job.SetReturned();
  const int64_t hold_ns = std::min(WaitNs(job.spec()), job.limits().hold_back_ms * kNsPerMs);
  const int64_t rests_until_ns = now.monotonic_ns + pause_ms * kNsPerMs;
  return std::make_unique<WaitingForCrew>(
      job, WaitingForCrew::After::kFailure,
      WaitTerms{.reason = reason,
                .rests_until_ns = pause_ms > 0 ? rests_until_ns : 0,
                .workers_before = workers,
                .holds_back_until_ns = rests_until_ns + hold_ns});
}

NextPhase BackToQueue(TrainingJob& job, const std::string& reason, int64_t workers, int64_t rest_ms,
                      Now now) {
  if (job.recovering()) return WaitToRecover(job, reason, workers, rest_ms, now);
  WaitTerms terms{.reason = reason,
                  .rests_until_ns = rest_ms > 0 ? now.monotonic_ns + rest_ms * kNsPerMs : 0};
  if (!job.returned()) return std::make_unique<Queued>(job, std::move(terms));
  terms.workers_before = workers;
  terms.workers_until_ns = now.monotonic_ns + job.limits().return_timeout_ms * kNsPerMs;
  return std::make_unique<WaitingForCrew>(job, WaitingForCrew::After::kGoodOrder, std::move(terms));
}

}  // namespace penstock
