// The phases of a job whose training ends: it drains, commits, and its timeline is gathered.
#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/growth.h"
#include "coordinator/training_phases.h"

namespace penstock {
namespace {

// A drain that has begun for one reason does for a later one too.
class Ending : public AttemptPhase {
 public:
  using AttemptPhase::AttemptPhase;

  NextPhase Cancel(Now now) override {
    crew_->SetReturnReason("");
    return GoOnFor(job_.cancel_reason(), now);
  }
  NextPhase Return(Now now) override { return GoOnFor(crew_->return_reason(), now); }
  bool Fits(v1::JobState state) const override {
    return state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_DRAINING;
  }

 private:
  NextPhase GoOnFor(const std::string& reason, Now now) {
    // A job that goes back to the queue gets its layers and workers when it goes on.
    attempt().new_split.reset();
    attempt().growth.reset();
    job_.summary().set_reason(reason);
    job_.SetState(v1::JOB_STATE_DRAINING, now);
    return nullptr;
  }
};

// All workers hold and name the step they can stop at; all are asked to cut at the largest.
class Draining final : public Ending {
 public:
  using Ending::Ending;

  NextPhase Enter(Now now) override {
    limit_ms_ = job_.limits().drain_timeout_ms;
    // It is held some steps before the cut.
    if (attempt().growth.has_value()) limit_ms_ += LeadMs(attempt().CutsToGrow());
    deadline_ns_ = now.monotonic_ns + limit_ms_ * kNsPerMs;
    held_steps_.resize(crew_->size());
    job_.Save();  // without its run, before the workers hold it
    for (int32_t i = 0; i < crew_->size(); ++i) {
      if (crew_->parts()[i].done) {
        held_steps_[i] = job_.resolved().steps;
      } else {
        crew_->Ask(i, v1::HoldRunRequest());
      }
    }
    CutIfAllHeld(now);
    return GoOnIfAllDone(now);
  }

  NextPhase OnResponse(int32_t worker_index, const WorkerResponse& response, Now now) override {
    const int64_t steps = job_.resolved().steps;
    if (const auto* held = std::get_if<absl::StatusOr<v1::HoldRunResponse>>(&response);
        held != nullptr && !attempt().drain_step.has_value()) {
      if (held->ok() && (*held)->step() < attempt().start.step) {
        crew_->blame().Own(worker_index,
                           absl::StrCat("holds after step ", (*held)->step(), ", before step ",
                                        attempt().start.step, ", where it began"));
        return FailIfBlamed(now);
      }
      if (held->ok()) {
        held_steps_[worker_index] = std::min((*held)->step(), steps);
      } else if (absl::IsFailedPrecondition(held->status()) || absl::IsNotFound(held->status())) {
        held_steps_[worker_index] = steps;  // it ran to its end, and its RunDone is on the way
      } else {
        crew_->BlameCall(worker_index, "cannot be held", held->status(), now);
        return FailIfBlamed(now);
      }
      CutIfAllHeld(now);
    }
    // A worker that ran to its end meanwhile refuses the cut, rightly.
    if (const auto* cut = std::get_if<absl::StatusOr<v1::CutRunResponse>>(&response);
        cut != nullptr && !cut->ok() && !absl::IsFailedPrecondition(cut->status())) {
      crew_->BlameCall(worker_index, "cannot be told where to cut", cut->status(), now);
      return FailIfBlamed(now);
    }
    return nullptr;
  }

  NextPhase Tick(Now now) override {
    if (NextPhase failed = FailIfBlamed(now)) return failed;
    if (now.monotonic_ns < deadline_ns_) return Ending::Tick(now);
    const std::string late =
        absl::StrCat("the workers did not drain within ", limit_ms_ / 1000, " s");
    if (const absl::string_view change = attempt().drains_for(); !change.empty()) {
      return FailAttempt(absl::StrCat(late, " for ", change), v1::ATTEMPT_CAUSE_STALLED, now);
    }
    if (const std::string& reason = crew_->return_reason(); !reason.empty()) {
      return FailAttempt(absl::StrCat(reason, ", and ", late), v1::ATTEMPT_CAUSE_STALLED, now);
    }
    return EndUndrained(late, now);
  }

  std::optional<int64_t> NextDeadlineNs() const override {
    return std::min(Ending::NextDeadlineNs().value_or(deadline_ns_), deadline_ns_);
  }
  // A run that is held waits for a word that a later process would not know to say.
  void WriteRun(v1::GetJobResponse&) const override {}

 private:
  bool Works() const override { return true; }

  NextPhase OnDone(int32_t worker_index, int64_t step, Now now) override {
    held_steps_[worker_index] = step;
    CutIfAllHeld(now);
    return GoOnIfAllDone(now);
  }

  void CutIfAllHeld(Now now) {
    if (attempt().drain_step.has_value()) return;
    v1::CutRunRequest request;
    for (const std::optional<int64_t>& step : held_steps_) {
      if (!step.has_value()) return;
      request.set_step(std::max(request.step(), *step));
    }
    if (attempt().growth.has_value()) {
      request.set_step(CutToGrow(attempt().CutsToGrow(), request.step()));
    }
    attempt().drain_step = request.step();
    job_.Log(absl::StrCat("drains after step ", request.step()), now);
    for (int32_t i = 0; i < crew_->size(); ++i) {
      if (!crew_->parts()[i].done) crew_->Ask(i, request);
    }
  }

  std::vector<std::optional<int64_t>> held_steps_;  // by worker
  int64_t limit_ms_ = 0;
  int64_t deadline_ns_ = 0;
};

// All workers are done, and a checkpoint is being committed.
class Saving final : public Ending {
 public:
  using Ending::Ending;

  NextPhase Enter(Now) override {
    v1::JobSummary& summary = job_.summary();
    if (!summary.reason().empty()) return nullptr;  // it says why the job ends
    summary.set_reason(absl::StrCat("waits until its checkpoint is committed in ",
                                    job_.spec().checkpoint().directory()));
    return nullptr;
  }

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override {
    Ending::OnAnswer(answer, now);
    return GoOnIfSaved(now);
  }

  NextPhase Tick(Now now) override {
    if (NextPhase next = Ending::Tick(now)) return next;
    return GoOnIfSaved(now);
  }

 private:
  NextPhase GoOnIfSaved(Now now) {
    return attempt().checkpoints.Committing() ? nullptr : GoOnSaved(now);
  }
};

class Gathering final : public Ending {
 public:
  using Ending::Ending;

  NextPhase Enter(Now now) override {
    const std::string reason = job_.summary().reason();  // it stays
    Await(reason, job_.limits().gather_timeout_ms, now);
    job_.Add(GatherTimeline{job_.id(), attempt().plan, job_.trace()});
    return nullptr;
  }

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override {
    const auto* gathered = std::get_if<TimelineGathered>(&answer);
    if (gathered == nullptr) return Ending::OnAnswer(answer, now);
    attempt().block_delay.OnGathered(gathered->timeline);
    return Finish();
  }

  // The workers have reported everything, and the job ends anyway.
  NextPhase OnEvent(int32_t, const v1::RunEvent&, Now) override { return nullptr; }
  NextPhase Cancel(Now) override { return nullptr; }
  NextPhase Return(Now) override { return nullptr; }
  NextPhase End(v1::JobState state, Now) override { return EndNow(state); }

 private:
  NextPhase OnOverdue(int64_t, Now) override { return Finish(); }

  NextPhase Finish() {
    const std::string& save_error = attempt().save_error;
    v1::JobSummary& summary = job_.summary();
    v1::JobState state = v1::JOB_STATE_SUCCEEDED;
    if (attempt().cut_short()) {
      state = v1::JOB_STATE_CANCELLED;
      job_.progress().EndHere();
      summary.set_step(job_.progress().step());
      summary.set_reason(save_error.empty() ? job_.cancel_reason()
                                            : absl::StrCat(job_.cancel_reason(), "; ", save_error));
    } else if (!save_error.empty()) {
      state = v1::JOB_STATE_FAILED;
      summary.clear_reason();
      summary.set_error(absl::StrCat("training is complete, but ", save_error));
    } else {
      summary.clear_reason();
    }
    return std::make_unique<Ended>(job_, state, nullptr);
  }
};

}  // namespace

NextPhase Drain(TrainingJob& job, std::unique_ptr<Crew> crew) {
  return std::make_unique<Draining>(job, std::move(crew));
}

NextPhase AwaitCommits(TrainingJob& job, std::unique_ptr<Crew> crew) {
  return std::make_unique<Saving>(job, std::move(crew));
}

NextPhase GatherAndEnd(TrainingJob& job, std::unique_ptr<Crew> crew) {
  return std::make_unique<Gathering>(job, std::move(crew));
}

}  // namespace penstock
