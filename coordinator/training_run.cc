// Handles what the workers of an attempt report, and has the phase in which they train.
#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/adoption.h"
#include "coordinator/attempt_record.h"
#include "coordinator/growth.h"
#include "coordinator/report_check.h"
#include "coordinator/training_phases.h"
#include "job/fewer_stages.h"

namespace penstock {

// ---------------------------------------------------------------------------------- AttemptPhase

NextPhase AttemptPhase::OnAnswer(EffectAnswer& answer, Now now) {
  auto* gathered = std::get_if<PassesGathered>(&answer);
  if (gathered == nullptr) return JobPhase::OnAnswer(answer, now);
  return gathered->epoch == crew_->epoch() ? OnGathered(*gathered, now) : nullptr;
}

NextPhase AttemptPhase::OnGathered(PassesGathered& gathered, Now now) {
  attempt().AskLater(now);
  attempt().block_delay.OnGathered(gathered.passes);
  gathered.stages.resize(crew_->size());
  for (int32_t i = 0; i < crew_->size(); ++i) {
    // What cannot be true counts for nothing.
    if (!CheckStages(gathered.stages[i], attempt(), i).ok()) gathered.stages[i].Clear();
  }
  const std::vector<StragglerWatch::News> news = job_.stragglers().OnReports(gathered.stages, now);
  for (const StragglerWatch::News& turn : news) {
    job_.Log(absl::StrCat(NameOf(turn.worker), " ", turn.text), now);
  }
  return news.empty() ? nullptr : OnStraggler(now);
}

NextPhase AttemptPhase::OnEvent(int32_t worker_index, const v1::RunEvent& event, Now now) {
  constexpr int64_t kEndOfRun = std::numeric_limits<int64_t>::max();
  if (event.has_layers_saved()) {
    crew_->AwaitDecision(worker_index, event.layers_saved().step());
  } else if (event.has_layers_kept()) {
    crew_->AwaitDecision(worker_index, event.layers_kept().layers().step());
  } else if (event.has_save_failed()) {
    crew_->AwaitDecision(worker_index, event.save_failed().step());
  } else if (event.has_run_done() || event.has_run_failed()) {
    crew_->AwaitDecision(worker_index, kEndOfRun);
  }
  switch (event.kind_case()) {
    case v1::RunEvent::kStepDone:
      OnStepDone(worker_index, event.step_done(), now);
      return nullptr;
    case v1::RunEvent::kValidationDone: {
      if (worker_index != attempt().validation_worker()) return nullptr;
      if (!job_.progress().OnValidation(event.validation_done())) return nullptr;
      v1::JobEvent published;
      *published.mutable_validation_done() = event.validation_done();
      job_.Publish(std::move(published), now);
      return nullptr;
    }
    case v1::RunEvent::kCutReached: {
      const v1::CutReached& cut = event.cut_reached();
      if (cut.has_order()) job_.progress().OnOrder(worker_index, cut.order());
      NextPhase next = OnReports(worker_index, cut.step(), cut.stages(), now);
      job_.Save();
      return next;
    }
    case v1::RunEvent::kLayersSaved:
      OnLayersSaved(worker_index, event.layers_saved(), now);
      return nullptr;
    case v1::RunEvent::kLayersKept:
      OnLayersKept(worker_index, event.layers_kept(), now);
      return nullptr;
    case v1::RunEvent::kSaveFailed: {
      const v1::SaveFailed& failed = event.save_failed();
      if (attempt().checkpoints.Failed(worker_index, failed.step())) {
        job_.NoteSaveError(failed.step(),
                           absl::StrCat(NameOf(worker_index), ": ", failed.message()), now);
      }
      DiscardGivenUp();
      return nullptr;
    }
    case v1::RunEvent::kRunDone:
      return OnRunDone(worker_index, event.run_done(), now);
    case v1::RunEvent::kRunFailed:
      if (event.run_failed().not_finite()) job_.result().set_not_finite(true);
      crew_->OnRunFailed(worker_index, event.run_failed(), now);
      return FailIfBlamed(now);
    case v1::RunEvent::kMeasurementBegun:
    case v1::RunEvent::kLinksMeasured:
    case v1::RunEvent::kCopiesMeasured:
    case v1::RunEvent::kLayersTimed:
    case v1::RunEvent::KIND_NOT_SET:
      return nullptr;  // of a profile, or of a newer version
  }
  return nullptr;
}

void AttemptPhase::OnStepDone(int32_t worker_index, const v1::StepDone& done, Now now) {
  const bool is_new = done.step() > job_.progress().told_step();
  if (worker_index != attempt().step_worker() || done.step() > job_.resolved().steps ||
      !job_.progress().OnStep(done, now.unix_ms)) {
    return;
  }
  job_.summary().set_step(job_.progress().told_step());
  attempt().remaining.OnStep(done.step(), done.monotonic_ns());
  if (const auto seconds = attempt().remaining.Seconds();
      seconds && job_.state() == v1::JOB_STATE_RUNNING) {
    job_.summary().set_estimated_remaining_seconds(*seconds);
  }
  job_.result().set_last_step_unix_ms(now.unix_ms);
  if (is_new) {
    v1::JobEvent event;
    *event.mutable_step_done() = done;
    job_.Publish(std::move(event), now);
  }
  attempt().block_delay.OnStep(done.step());
  const RunFeedback::News news = job_.feedback().OnStep(done);
  if (!news.text.empty()) job_.Log(news.text, now);
  if (news.turn == Drift::Turn::kLeaves && MayReplan()) attempt().drifts_since = done.step();
  if (news.turn == Drift::Turn::kReturns) attempt().drifts_since.reset();
  if (now.monotonic_ns < attempt().save_due_ns) return;
  attempt().save_due_ns = now.monotonic_ns + job_.limits().save_interval_ms * kNsPerMs;
  job_.Save();
}

void AttemptPhase::GiveUpOverdueCommits(Now now) {
  for (const int64_t step : job_.GiveUpOverdueCommits(now)) crew_->OnDecided(step);
}

void AttemptPhase::DiscardGivenUp() {
  if (const std::optional<int64_t> step = job_.DiscardGivenUp()) crew_->OnDecided(*step);
}

void AttemptPhase::WriteRun(v1::GetJobResponse& record) const {
  // The crew may be the next phase's already. What has been cut short goes on from its checkpoint.
  if (crew_ == nullptr || attempt().drain_step.has_value()) return;
  v1::RunUnderWay& run = *record.mutable_run();
  crew_->WriteTo(run);
  *run.mutable_start() = RunStartOf(attempt().start);
  if (!attempt().saved.checkpoint.empty()) *run.mutable_saved() = RunStartOf(attempt().saved);
  run.mutable_arithmetics()->Assign(attempt().arithmetics.begin(), attempt().arithmetics.end());
  run.set_save_error(attempt().save_error);
  run.set_save_error_step(attempt().save_error_step);
  job_.progress().WriteTo(run);
}

NextPhase AttemptPhase::FailAsHeld(int32_t worker_index, Now now) {
  return FailAttempt(absl::StrCat(NameOf(worker_index),
                                  " is held at a step, for a change that was begun before the "
                                  "coordinator was restarted and is not known any more"),
                     v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED, now);
}

NextPhase AttemptPhase::OnReports(int32_t worker_index, int64_t step, const StageReports& stages,
                                  Now now) {
  job_.progress().OnReports(stages);
  for (const std::string& news : job_.feedback().OnReports(step, stages)) job_.Log(news, now);
  std::vector<int64_t>& reported = attempt().reported_step;
  reported[worker_index] = step;
  const bool all = std::count(reported.begin(), reported.end(), step) == crew_->size();
  const std::vector<int64_t>& cuts = attempt().cuts;
  const auto cut = std::lower_bound(cuts.begin(), cuts.end(), step);
  if (all && cut != cuts.begin()) {
    // The snapshot of the cut before may still be copied, those before it are not.
    job_.snapshots().SettleBefore(*std::prev(cut));
    for (const int64_t settled : job_.snapshots().TakeSettled()) crew_->OnDecided(settled);
  }
  const bool ends = step >= job_.resolved().steps || attempt().stopped_step.has_value();
  return all && !ends ? OnCut(step, now) : nullptr;
}

void AttemptPhase::OnLayersSaved(int32_t worker_index, const v1::LayersSaved& saved, Now now) {
  const std::optional<CheckpointTracker::Complete> complete =
      attempt().checkpoints.Saved(worker_index, saved);
  if (!complete.has_value()) return DiscardGivenUp();
  CommitStaged commit{.job_id = job_.id(), .lease = crew_->lease()};
  commit.options = {.root = job_.spec().checkpoint().directory(),
                    .tag = attempt().staging_tag,
                    .layers = job_.resolved().model.size(),
                    .keep = job_.spec().checkpoint().keep(),
                    .keep_best = job_.spec().checkpoint().keep_best()};
  commit.manifest = attempt().ManifestOf(*complete);
  attempt().saving[complete->step] = StartOf(commit.manifest);
  commit.manifest.job_id = job_.id();
  commit.manifest.epoch = crew_->epoch();
  // The worker that validates told of it before it saved.
  commit.manifest.validation_loss = job_.progress().ValidationAt(complete->step);
  attempt().commit_due_ns[complete->step] =
      now.monotonic_ns + job_.limits().commit_timeout_ms * kNsPerMs;
  job_.Add(std::move(commit));
}

void AttemptPhase::OnLayersKept(int32_t worker_index, const v1::LayersKept& kept, Now now) {
  constexpr int64_t kSaveIntervalNs = 1000 * kNsPerMs;  // there may be a snapshot every step
  const bool is_complete = job_.OnKept(worker_index, kept);
  for (const int64_t step : job_.snapshots().TakeSettled()) crew_->OnDecided(step);
  const std::vector<int64_t>& cuts = attempt().cuts;
  const bool is_cut = std::binary_search(cuts.begin(), cuts.end(), kept.layers().step());
  if (!is_complete || (!is_cut && now.monotonic_ns < attempt().snapshot_save_due_ns)) return;
  attempt().snapshot_save_due_ns = now.monotonic_ns + kSaveIntervalNs;
  job_.Save();
}

void AttemptPhase::StopEarly(int64_t step, Now now) {
  attempt().stopped_step = step;
  const EarlyStop::Course course = job_.progress().CourseUpTo(step);
  job_.Log(absl::StrCat("ends after step ", step, ": ", job_.resolved().stop_after,
                        " validations in a row were no better than the best before them",
                        course.best.has_value() ? absl::StrCat(" (", *course.best, ")") : ""),
           now);
}

NextPhase AttemptPhase::OnRunDone(int32_t worker_index, const v1::RunDone& done, Now now) {
  if (done.stopped_early() && !attempt().stopped_step.has_value()) StopEarly(done.step(), now);
  const int64_t expected =
      attempt().stopped_step.value_or(attempt().drain_step.value_or(job_.resolved().steps));
  if (done.step() != expected) {
    crew_->blame().Own(worker_index,
                       absl::StrCat("ended after step ", done.step(), " instead of ", expected));
    return FailIfBlamed(now);
  }
  if (NextPhase next = OnReports(worker_index, done.step(), done.stages(), now)) return next;
  job_.progress().OnLayers(done.layers());
  crew_->parts()[worker_index].done = true;
  return OnDone(worker_index, done.step(), now);
}

NextPhase AttemptPhase::GoOnIfAllDone(Now now) {
  if (!crew_->AllDone()) return nullptr;
  attempt().done_ns = now.monotonic_ns;
  if (attempt().checkpoints.Committing()) return AwaitCommits(job_, std::move(crew_));
  return GoOnSaved(now);
}

NextPhase AttemptPhase::GoOnSaved(Now now) {
  const std::optional<NewSplit>& split = attempt().new_split;
  const absl::string_view change = attempt().drains_for();
  const std::string& reason = crew_->return_reason();
  if (!attempt().cut_short() || (change.empty() && reason.empty())) {
    attempt().growth.reset();  // the job ends
    return GatherAndEnd(job_, std::move(crew_));
  }
  for (int32_t i = 0; i < crew_->size() && !change.empty(); ++i) {
    if (!crew_->parts()[i].lost) continue;
    crew_->blame().Own(i, absl::StrCat("was lost while the job drained for ", change),
                       v1::ATTEMPT_CAUSE_WORKER_LOST);
    return FailIfBlamed(now);
  }
  // An attempt that has begun no step has nothing new to save.
  const FoundStart& saved = attempt().latest();
  if (saved.step != *attempt().drain_step) {
    const std::string& error = attempt().save_error;
    const std::string drained = absl::StrCat(
        "drained ",
        change.empty() ? absl::StrCat("because ", reason) : absl::StrCat("for ", change), ", but ",
        error.empty() ? "nothing was saved" : error);
    if (split.has_value()) job_.StopReplanning();
    if (job_.Recovers()) {
      return Reconfigure({.cause = v1::ATTEMPT_CAUSE_NOT_SAVED, .message = drained}, now);
    }
    job_.EndAttempt(v1::ATTEMPT_CAUSE_NOT_SAVED, "", drained, now);
    return Fail(drained, now);
  }
  if (split.has_value()) {
    if (const absl::Status taken = job_.TakeSplit(*split); !taken.ok()) {
      return Fail(absl::StrCat("cannot go on with a new split: ", taken.message()), now);
    }
    return Reconfigure({.cause = v1::ATTEMPT_CAUSE_NEW_SPLIT, .from = saved}, now);
  }
  if (attempt().growth.has_value()) return GoOnWithMore(now);
  return Reconfigure({.cause = v1::ATTEMPT_CAUSE_LEFT,
                      .message = absl::StrCat(
                          reason, "; the job ",
                          attempt().saved.checkpoint.empty() ? "has begun no step" : "is saved",
                          " and goes on after step ", saved.step)},
                     now);
}

NextPhase AttemptPhase::GoOnWithMore(Now now) {
  const Growth& growth = *attempt().growth;
  if (static_cast<int64_t>(growth.joining.size()) < job_.lacks()) {
    const std::string gone = absl::StrCat("worker ", growth.gone,
                                          " was to join and is gone, so the job goes on as it was");
    job_.Log(gone, now);
    job_.BlameForGrowth(growth.gone, now);
    return Reconfigure({.cause = v1::ATTEMPT_CAUSE_GREW,
                        .worker = growth.gone,
                        .message = gone,
                        .from = attempt().latest()},
                       now);
  }
  if (const absl::Status grown = job_.Grow(growth); !grown.ok()) {
    return Fail(absl::StrCat("cannot go on with more workers: ", grown.message()), now);
  }
  return Reconfigure(
      {.cause = v1::ATTEMPT_CAUSE_GREW,
       .message = absl::StrCat("goes on with ", job_.full_crew().workers_size(), " workers again"),
       .from = attempt().latest(),
       .joining = growth.joining},
      now);
}

bool AttemptPhase::DropJoining(const std::string& worker) {
  std::optional<Growth>& growth = attempt().growth;
  if (!growth.has_value()) return false;
  const size_t dropped = std::erase_if(
      growth->joining, [&](const WorkerOffer& joining) { return joining.name == worker; });
  if (dropped > 0) growth->gone = worker;
  return dropped > 0;
}

std::vector<std::string> AttemptPhase::InUse() const {
  std::vector<std::string> names = JobPhase::InUse();
  const std::optional<Growth>& growth = attempt().growth;
  if (!growth.has_value()) return names;
  for (const WorkerOffer& joining : growth->joining) names.push_back(joining.name);
  return names;
}

std::string AttemptPhase::NameOf(int32_t worker_index) const {
  std::vector<int32_t> stages;
  for (const v1::StageAssignment& stage : attempt().plan.stages()) {
    if (stage.worker_index() == worker_index) stages.push_back(stage.stage());
  }
  return absl::StrCat(JobPhase::NameOf(worker_index), stages.size() == 1 ? " (stage " : " (stages ",
                      absl::StrJoin(stages, ", "), ")");
}

std::string AttemptPhase::WorkerOf(const Blame::Verdict& verdict) const {
  return verdict.worker == Blame::kNobody ? "" : crew_->parts()[verdict.worker].worker.name;
}

NextPhase AttemptPhase::FailIfBlamed(Now now) {
  const Blame& blame = crew_->blame();
  if (IsOnlyAccused()) return nullptr;
  const bool would_repeat = blame.settled() && !MayEndOtherwise(blame.Best().cause);
  // What cannot be gone on with after a restart begins again from what is saved, as it did before there was recovery.
  const bool is_of_restart =
      attempt().adopting ||
      (blame.any() && blame.Best().cause == v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED);
  const bool begins_again = is_of_restart && job_.IsSaved() && job_.cancel_reason().empty();
  if (blame.any() && (job_.Recovers() || begins_again) && !would_repeat) {
    return StopAndRecover(job_, std::move(crew_));
  }
  const std::optional<Blame::Verdict> verdict = blame.Decide(now.monotonic_ns);
  if (!verdict.has_value()) return nullptr;
  job_.EndAttempt(verdict->cause, WorkerOf(*verdict), verdict->message, now);
  if (!job_.cancel_reason().empty()) return EndUndrained(TextOf(*verdict), now);
  return Fail(TextOf(*verdict), now);
}

std::optional<int64_t> AttemptPhase::DecidesAtNs() const {
  const std::optional<int64_t> at_ns = JobPhase::DecidesAtNs();
  return at_ns.has_value() && IsOnlyAccused() ? std::nullopt : at_ns;
}

bool AttemptPhase::IsOnlyAccused() const { return !crew_->blame().settled() && crew_->AllDone(); }

NextPhase AttemptPhase::EndUndrained(const std::string& why, Now now) {
  job_.summary().set_reason(absl::StrCat(job_.cancel_reason(),
                                         "; the job was stopped before it had drained, so ",
                                         WhatIsLostOf(job_.result()), ": ", why));
  return End(v1::JOB_STATE_CANCELLED, now);
}

NextPhase AttemptPhase::FailAttempt(const std::string& error, v1::AttemptCause cause, Now now) {
  crew_->blame().Own(Blame::kNobody, error, cause);
  return FailIfBlamed(now);
}

// A user wants to see what a failed job did last. Workers keep that until they prepare another run, and they get none
// before they have answered that they have stopped.
NextPhase AttemptPhase::End(v1::JobState state, Now /*now*/) {
  job_.Add(GatherTimeline{job_.id(), attempt().plan, job_.trace()});
  return EndNow(state);
}

NextPhase AttemptPhase::Tick(Now now) {
  GiveUpOverdueCommits(now);
  if (NextPhase next = JobPhase::Tick(now)) return next;
  std::optional<int64_t>& ask_at_ns = attempt().ask_at_ns;
  if (!Works() || !ask_at_ns.has_value() || now.monotonic_ns < *ask_at_ns) return nullptr;
  ask_at_ns.reset();
  job_.Add(
      GatherPasses{job_.id(), crew_->epoch(), attempt().plan, attempt().block_delay.LastNs(now)});
  return nullptr;
}

std::optional<int64_t> AttemptPhase::NextDeadlineNs() const {
  std::optional<int64_t> next = JobPhase::NextDeadlineNs();
  for (const auto& [step, due_ns] : attempt().commit_due_ns) {
    next = std::min(next.value_or(due_ns), due_ns);
  }
  const std::optional<int64_t> ask = Works() ? attempt().ask_at_ns : std::nullopt;
  return ask.has_value() ? std::min(next.value_or(*ask), *ask) : next;
}

// --------------------------------------------------------------------------------------- Running

namespace {

// With feedback.replan "auto", a run whose steps have left their prediction gets another split. It is looked for at the
// next cut that all workers have reported, and again a window later for as long as the steps are off: they may get worse.
// When a worker has become slow, or is no longer, it is looked for at once, by what the workers have just told.
class Running final : public AttemptPhase {
 public:
  Running(TrainingJob& job, std::unique_ptr<Crew> crew)
      : AttemptPhase(job, std::move(crew)), window_(job.spec().feedback().drift_steps()) {}

  NextPhase Enter(Now now) override {
    job_.OnTraining(now);
    if (job_.lacks() > 0 && job_.IsSaved() && job_.Recovers() &&
        AnyStagesAreAlike(job_.resolved())) {
      grows_from_ms_ = GrowsFromMs(job_.result().attempts());
    }
    if (!job_.cancel_reason().empty() || !crew_->return_reason().empty()) return BeginDrain(now);
    return GoOnIfAllDone(now);
  }

  NextPhase OnHeard(int32_t worker_index, bool is_held, Now now) override {
    return is_held ? FailAsHeld(worker_index, now) : nullptr;
  }
  // A run of which a worker has failed ends anyway.
  NextPhase Cancel(Now now) override { return crew_->blame().any() ? nullptr : BeginDrain(now); }
  NextPhase Return(Now now) override { return Running::Cancel(now); }
  bool Fits(v1::JobState state) const override { return state == v1::JOB_STATE_RUNNING; }

  bool WantsMore(Now now) const override {
    return grows_from_ms_.has_value() && now.unix_ms >= *grows_from_ms_ &&
           now.monotonic_ns >= asks_from_ns_ && !crew_->blame().any() &&
           // A disk that takes nothing would cost all steps since the last checkpoint.
           attempt().not_saved.empty() && !attempt().checkpoints.Committing() &&
           attempt().remaining.StepSeconds().value_or(0) > 0 &&
           IsTimeToHold(attempt().CutsToGrow(), job_.progress().step());
  }

  NextPhase OnSpare(const std::vector<WorkerOffer>& free, Now now) override {
    std::vector<WorkerOffer> usable;
    std::copy_if(free.begin(), free.end(), std::back_inserter(usable),
                 [&](const WorkerOffer& worker) { return !job_.Avoids(worker.name, now); });
    const auto& places = job_.full_crew().workers();
    Growth growth{.joining = ChooseToJoin(std::vector<std::string>(places.begin(), places.end()),
                                          std::move(usable), job_.lacks())};
    if (static_cast<int64_t>(growth.joining.size()) < job_.lacks()) {
      asks_from_ns_ = now.monotonic_ns + kGrowthRules.ask_ms * kNsPerMs;
      return nullptr;
    }
    job_.Log(absl::StrCat("goes on with ", places.size(), " workers again instead of ",
                          crew_->size(), ", from its next cut"),
             now);
    attempt().growth = std::move(growth);
    job_.NoteGrowing();
    return Drain(job_, std::move(crew_));
  }

 private:
  // A new split is kept for this many windows, whatever is measured.
  static constexpr int64_t kWindowsOfASplit = 4;

  bool Works() const override { return true; }

  NextPhase BeginDrain(Now now) {
    const std::string& cancelled = job_.cancel_reason();
    job_.summary().set_reason(cancelled.empty() ? crew_->return_reason() : cancelled);
    job_.SetState(v1::JOB_STATE_DRAINING, now);
    return Drain(job_, std::move(crew_));
  }

  bool IsTooSoon(int64_t step) const {
    return job_.replans() > 0 && step < attempt().start.step + kWindowsOfASplit * window_;
  }

  NextPhase OnCut(int64_t step, Now now) override {
    if (!MayReplan() || crew_->blame().any()) return nullptr;
    StageReports before = std::exchange(reports_of_cut_, job_.progress().Reports());
    const std::optional<int64_t>& since = attempt().drifts_since;
    if (!since.has_value() || step < *since || IsTooSoon(step)) return nullptr;
    return LookForSplit(TimesSince(before, reports_of_cut_), now);
  }

  NextPhase OnStraggler(Now now) override {
    if (!MayReplan() || crew_->blame().any()) return nullptr;
    const int64_t step = job_.progress().step();
    attempt().drifts_since = step;
    return IsTooSoon(step) ? nullptr : LookForSplit(job_.stragglers().Recent(), now);
  }

  NextPhase LookForSplit(const StageReports& reports, Now now) {
    const int64_t done = job_.progress().step();
    const int64_t left = job_.resolved().steps - done;
    if (left <= window_) {
      attempt().drifts_since.reset();
      job_.Log(absl::StrCat("no new split for the last ", left, " steps"), now);
      return nullptr;
    }
    attempt().drifts_since = done + window_;
    std::vector<int64_t> memory_bytes;
    for (const WorkerOffer& worker : crew_->Workers()) memory_bytes.push_back(worker.memory_bytes);
    absl::StatusOr<NewSplit> split =
        PlanAnew(job_.spec(), job_.resolved(), attempt().plan, reports, memory_bytes);
    if (!split.ok()) {
      const std::string refusal = absl::StrCat("no new split: ", split.status().message());
      if (std::exchange(refusal_, refusal) != refusal) job_.Log(refusal, now);
      return nullptr;
    }
    job_.Log(
        absl::StrFormat("goes on with its layers split %s, from a checkpoint: a step of %.4g s "
                        "instead of %.4g s is predicted from the measured times",
                        absl::StrJoin(split->stage_layers, "-"), split->prediction.step_seconds(),
                        split->step_s_before),
        now);
    attempt().new_split = *std::move(split);
    return Drain(job_, std::move(crew_));
  }

  const int64_t window_;         // steps
  StageReports reports_of_cut_;  // of all stages at the last cut
  std::string refusal_;          // why the last look found no split
  // Since 1970; absent: the job does not lack workers, or does not grow.
  std::optional<int64_t> grows_from_ms_;
  int64_t asks_from_ns_ = 0;  // for workers
};

}  // namespace

NextPhase Train(TrainingJob& job, std::unique_ptr<Crew> crew) {
  return std::make_unique<Running>(job, std::move(crew));
}

}  // namespace penstock
