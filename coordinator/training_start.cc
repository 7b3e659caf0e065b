// The phases of a job that trains until all its workers have started.
#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "checkpoint/layout.h"
#include "checkpoint/start.h"
#include "coordinator/growth.h"
#include "coordinator/job_planning.h"
#include "coordinator/recovery_policy.h"
#include "coordinator/start_query.h"
#include "coordinator/training_phases.h"
#include "job/defaults.h"
#include "job/open_job.h"
#include "model/layer_order.h"
#include "planner/job/searched_order.h"

namespace penstock {
namespace {

// Plans what the job leaves open (job_planning.h). A job that is to end or to go back to the queue stays until nothing
// of its planning runs any more.
class Planning final : public JobPhase {
 public:
  Planning(TrainingJob& job, std::unique_ptr<Crew> crew, FoundStart start)
      : JobPhase(job, std::move(crew)),
        job_(job),
        start_(std::move(start)),
        planning_(job.id(), job.spec(), job.resolved(), crew_->Workers(), job.epoch(), job.limits(),
                  job.earlier()) {}

  NextPhase Enter(Now now) override {
    planning_.Begin(now);
    return GoOn(now);
  }

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override {
    if (const auto* found = std::get_if<LayerTimesFound>(&answer)) {
      planning_.OnLayerTimesFound(found->known, now);
    } else if (const auto* judged = std::get_if<CandidatesJudged>(&answer)) {
      planning_.OnCandidates(judged->plan, now);
    }
    return GoOn(now);
  }

  NextPhase OnWorkerLost(const std::string& worker, uint64_t incarnation, const std::string& reason,
                         Now now) override {
    planning_.OnWorkerLost({.name = worker, .incarnation = incarnation}, reason, now);
    return GoOn(now);
  }

  NextPhase Return(Now now) override {
    planning_.Stop(crew_->return_reason(), now);
    return GoOn(now);
  }

  NextPhase End(v1::JobState state, Now now) override {
    crew_.reset();  // it has not heard of the job
    planning_.Stop(job_.cancel_reason(), now);
    job_.SetState(state, now);
    return GoOn(now);
  }

  NextPhase Tick(Now now) override {
    planning_.Tick(now);
    return GoOn(now);
  }

  NextPhase GoOn(Now now) override {
    planning_.GoOn(now);
    if (planning_.epoch() > job_.epoch()) {
      // Its runs' IDs come again when the job is planned again, perhaps by a later process.
      job_.BeginAfter(planning_.epoch());
      job_.Save();
    }
    for (NotStopped& left : planning_.TakeNotStopped()) job_.AddNotStopped(std::move(left));
    for (v1::JobEvent& event : planning_.TakeEvents()) job_.Publish(std::move(event), now);
    for (CoordinatorEffect& effect : planning_.TakeEffects()) {
      if (auto* const call = std::get_if<CallWorker>(&effect)) call->trace = job_.trace();
      job_.Add(std::move(effect));
    }
    if (job_.ended()) return nullptr;
    const JobRun* const run = planning_.run();
    job_.summary().set_reason(run == nullptr ? "the coordinator looks for its plan"
                                             : run->summary().reason());
    if (planning_.Stopped()) {
      return BackToQueue(job_, crew_->return_reason(), crew_->size(), /*rest_ms=*/0, now);
    }
    if (!planning_.outcome().has_value()) return nullptr;
    return TakeOutcome(*planning_.outcome(), now);
  }

  bool Fits(v1::JobState state) const override {
    return JobPhase::Fits(state) || IsTerminal(state);
  }
  bool CanReturn() const override { return true; }
  bool over() const override { return job_.ended() && planning_.Stopped(); }
  std::vector<std::string> InUse() const override {
    std::vector<std::string> names = JobPhase::InUse();
    for (std::string& name : planning_.InUse()) names.push_back(std::move(name));
    return names;
  }
  JobRun* run() override { return planning_.run(); }
  std::optional<int64_t> NextDeadlineNs() const override { return planning_.NextDeadlineNs(); }

 private:
  NextPhase TakeOutcome(JobPlanning::Outcome outcome, Now now) {
    constexpr int64_t kPlanningsMax = 3;
    if (!outcome.lost.empty()) {
      const int64_t plannings = ++job_.lost_plannings();
      if (plannings >= kPlanningsMax) {
        return Fail(
            absl::StrCat("cannot be planned, after ", plannings, " attempts: ", outcome.lost,
                         "; restart what hangs or is gone, and submit the job again"),
            now);
      }
      return BackToQueue(job_, outcome.lost, crew_->size(), job_.limits().rest_ms, now);
    }
    absl::Status status = outcome.failed;
    std::vector<WorkerOffer> workers = crew_->Workers();
    if (status.ok() && outcome.chosen.has_value()) {
      workers = std::move(outcome.chosen->workers);
      job_.planning() = std::move(outcome.chosen->record);
      status = job_.TakeSpec(std::move(outcome.chosen->spec));
    } else if (status.ok()) {
      job_.Log(absl::StrCat("its layers are split by estimated cost, for they could not be planned "
                            "by measurement: ",
                            outcome.estimate_why),
               now);
    }
    if (!status.ok()) return Fail(absl::StrCat("cannot be planned: ", status.message()), now);
    job_.lost_plannings() = 0;
    crew_->BeginAgain(std::move(workers), now);  // later than the runs of the planning
    return Launch(job_, std::move(crew_), std::move(start_), /*has_new_split=*/false);
  }

  TrainingJob& job_;
  FoundStart start_;
  JobPlanning planning_;
};

// Finds the checkpoint to start from.
class FindingStart final : public JobPhase {
 public:
  FindingStart(TrainingJob& job, std::unique_ptr<Crew> crew)
      : JobPhase(job, std::move(crew)), job_(job) {}

  NextPhase Enter(Now now) override {
    const v1::CheckpointSpec& checkpoint = job_.spec().checkpoint();
    if (checkpoint.directory().empty() && checkpoint.resume().empty()) {
      return GoOnFromLatest(FoundStart{}, now);
    }
    const int64_t limit_ms = job_.limits().find_timeout_ms;
    Await(absl::StrCat("looks in ", Places(" and "), " for where to start"), limit_ms, now);
    job_.Add(FindCheckpoint{job_.id(), StartQueryOf(job_.spec(), job_.resolved()), limit_ms});
    return nullptr;
  }

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override {
    auto* const found = std::get_if<StartFound>(&answer);
    if (found == nullptr || found->adopted) return nullptr;
    if (!found->start.ok()) return OnNotFound(found->start.status(), now);
    job_.OnSearchDone();
    StopAwaiting();
    if (crew_->blame().any()) {
      return BackToQueue(job_, TextOf(crew_->blame().Best()), crew_->size(), /*rest_ms=*/0, now);
    }
    crew_->SetLease(std::move(found->lease));
    return GoOnFromLatest(*std::move(found->start), now);
  }

 private:
  // Goes on from what was found on disk, or from a later snapshot in the workers' memory.
  NextPhase GoOnFromLatest(FoundStart found, Now now) {
    FoundStart start = job_.LaterOf(std::move(found));
    const bool begins_again = start.checkpoint.empty() && start.snapshot.empty();
    const bool goes_on = job_.recovering() || job_.returned();
    if (begins_again && goes_on && !job_.IsSaved() && !job_.Recovers()) {
      return Fail(
          absl::StrCat(job_.summary().reason(),
                       "; no worker has its last snapshot any more; set checkpoint.directory to "
                       "keep checkpoints on disk, or recovery.mode: auto to start over"),
          now);
    }
    return GoOnFrom(std::move(start), now);
  }

  NextPhase OnNotFound(const absl::Status& failure, Now now) {
    const std::string error = absl::StrCat("cannot start: ", failure.message());
    const bool goes_on = job_.recovering() || job_.returned();
    if (!goes_on || !job_.Recovers()) return Fail(error, now);
    const AfterFailureDecision decision =
        AfterFailedSearch(job_.spec().recovery(), failure, job_.OnSearchFailed(now));
    if (!decision.why_not.empty()) return Fail(absl::StrCat(error, "; ", decision.why_not), now);
    return BackToQueue(job_, error, crew_->size(), decision.pause_ms, now);
  }

  // A job that recovers goes on with other workers, once it is known where: until then the directory is not its own to
  // be looked through again.
  NextPhase FailIfBlamed(Now now) override {
    return job_.Recovers() ? nullptr : JobPhase::FailIfBlamed(now);
  }
  std::optional<int64_t> DecidesAtNs() const override {
    return job_.Recovers() ? std::nullopt : JobPhase::DecidesAtNs();
  }

  NextPhase OnOverdue(int64_t seconds, Now now) override {
    return Fail(
        absl::StrCat(
            "cannot start: nothing was heard from the disk of ", Places(" or of "), " for ",
            seconds,
            " s, where the job looks for where to start; see whether it hangs, and submit the "
            "job again"),
        now);
  }

  // Returns the directories that the job's start is sought in.
  std::string Places(absl::string_view link) const {
    const v1::CheckpointSpec& checkpoint = job_.spec().checkpoint();
    if (checkpoint.directory().empty()) return checkpoint.resume();
    if (!NamesCheckpoint(checkpoint.resume())) return checkpoint.directory();
    return absl::StrCat(checkpoint.directory(), link, checkpoint.resume());
  }

  NextPhase GoOnFrom(FoundStart start, Now now) {
    for (const std::string& note : start.notes) job_.Log(note, now);
    if (!start.checkpoint.empty() || !start.snapshot.empty()) {
      job_.Log(absl::StrCat("continues after step ", start.step, " from ",
                            start.snapshot.empty() ? start.checkpoint
                                                   : "the snapshot in its workers' memory"),
               now);
      KeepSavedSplit(start, now);
    }
    if (NeedsPlanning()) {
      return std::make_unique<Planning>(job_, std::move(crew_), std::move(start));
    }
    KeepPlaces(now);
    return Launch(job_, std::move(crew_), std::move(start), /*has_new_split=*/false);
  }

  bool NeedsPlanning() const {
    const v1::JobSpec& spec = job_.spec();
    if (!SplitIsOpen(spec, job_.resolved())) return false;
    if (MethodIsOpen(spec)) return true;
    if (OrderIsOpen(spec) || !spec.pipeline().has_stages()) return crew_->size() > 1;
    const int32_t stages = spec.pipeline().stages();
    return stages > 1 && stages < job_.resolved().model.size();  // else there is one split
  }

  // Takes the method, the split, the order of the layers and that of a step that the checkpoint was trained with, where
  // the job leaves them open and the workers can have them.
  void KeepSavedSplit(const FoundStart& start, Now now) {
    if (start.stage_layers.empty() || !SplitIsOpen(job_.spec(), job_.resolved())) return;
    v1::JobSpec kept = job_.spec();
    v1::PipelineSpec& pipeline = *kept.mutable_pipeline();
    if (MethodIsOpen(kept)) SetMethod(start.method, /*keeps_optimizer=*/false, kept);
    if (pipeline.method() != start.method) return;
    const auto stages = static_cast<int32_t>(start.stage_layers.size());
    if (pipeline.has_stages() && pipeline.stages() != stages) return;
    const bool says_order = !pipeline.layer_order().empty();
    if (says_order && LayerOrderOf(job_.resolved().model) != start.layer_order) return;
    pipeline.mutable_layer_order()->Assign(start.layer_order.begin(), start.layer_order.end());
    pipeline.set_stages(stages);
    const bool takes_order = OrderIsOpen(kept);
    if (takes_order) pipeline.set_schedule(start.schedule);
    pipeline.mutable_stage_layers()->Assign(start.stage_layers.begin(), start.stage_layers.end());
    FillDefaults(kept);
    absl::StatusOr<ResolvedJob> job = ResolveJob(kept);
    if (!job.ok() || job->WorkersOf(stages) != crew_->size()) return;
    if (takes_order && !HasPlacementOf(job_.resolved(), *job, stages)) return;
    job_.Log(absl::StrCat("keeps the layers that the checkpoint was trained with, ",
                          absl::StrJoin(start.stage_layers, "-")),
             now);
    job_.SetSpec(std::move(kept), *std::move(job));
  }

  // Puts the workers where they were in the job's last plan, unless a link between two of them is dead.
  void KeepPlaces(Now now) {
    if (!job_.planning().has_value() || job_.planning()->candidates().empty()) return;
    if (job_.NamesWorkers()) return;
    const auto& names = job_.planning()->candidates(0).workers();
    const std::vector<std::string> places(names.begin(), names.end());
    crew_->Reorder(job_.ChooseWorkers(InPlaces(places, crew_->Workers()), crew_->size(), now));
  }

  TrainingJob& job_;
};

class Launching final : public AttemptPhase {
 public:
  Launching(TrainingJob& job, std::unique_ptr<Crew> crew, FoundStart start, bool has_new_split)
      : AttemptPhase(job, std::move(crew)),
        start_(std::move(start)),
        has_new_split_(has_new_split) {}

  NextPhase Enter(Now now) override {
    if (const absl::Status ordered = OrderByEstimate(now); !ordered.ok()) {
      return Fail(absl::StrCat("cannot be planned: ", ordered.message()), now);
    }
    if (job_.spec().feedback().replan() == "auto" && !job_.spec().has_prediction()) {
      job_.Log(
          "feedback.replan is auto, but the job has no prediction to hold its steps against; "
          "`penstock plan -o` writes one",
          now);
    }
    if (const absl::Status planned = job_.BeginAttempt(crew_->Workers(), start_, now);
        !planned.ok()) {
      return Fail(absl::StrCat("cannot be planned", has_new_split_ ? " with a new split" : "", ": ",
                               planned.message()),
                  now);
    }
    Prepare(now);
    return nullptr;
  }

  NextPhase OnResponse(int32_t worker_index, const WorkerResponse& response, Now now) override {
    if (crew_->OnSeenEpoch(worker_index, response, now)) {
      Prepare(now);
      return nullptr;
    }
    DropUnreadable(response);
    const bool launched =
        crew_->OnLaunch(worker_index, response, attempt().plan.schedule_digest(), now);
    if (NextPhase failed = FailIfBlamed(now)) return failed;
    if (crew_->starting() && attempt().arithmetics.empty()) NoteArithmetics(now);
    if (launched) return Train(job_, std::move(crew_));
    AwaitLaunch(now);
    return nullptr;
  }

  // Once workers are being started, the job drains as soon as all have.
  NextPhase Cancel(Now now) override { return crew_->starting() ? nullptr : JobPhase::Cancel(now); }

  NextPhase End(v1::JobState state, Now) override { return EndNow(state); }

 private:
  // Another attempt does not begin from a snapshot that a worker could not read.
  void DropUnreadable(const WorkerResponse& response) {
    const auto* const prepared = std::get_if<absl::StatusOr<v1::PrepareRunResponse>>(&response);
    if (prepared == nullptr || !absl::IsFailedPrecondition(prepared->status())) return;
    // Other failures have this code, too; those of a snapshot name it.
    if (!start_.snapshot.empty() &&
        absl::StrContains(prepared->status().message(), start_.snapshot)) {
      job_.snapshots().Drop(start_.snapshot);
    }
  }

  // All have prepared. Says what stands in the way of the same bits in another run.
  void NoteArithmetics(Now now) {
    std::vector<std::string>& now_there = attempt().arithmetics;
    now_there = crew_->Arithmetics();
    if (now_there.size() > 1) {
      job_.Log(absl::StrCat("computes on devices of ", now_there.size(),
                            " kinds, so that the last bits of the weights depend on which device "
                            "has which layers: ",
                            absl::StrJoin(now_there, "; ")),
               now);
    }
    const std::vector<std::string>& before = start_.arithmetics;
    if (before.empty() || now_there.empty() ||
        std::is_permutation(before.begin(), before.end(), now_there.begin(), now_there.end())) {
      return;
    }
    job_.Log(
        absl::StrCat(
            "computes on ", absl::StrJoin(now_there, "; "), ", and its checkpoint comes from ",
            absl::StrJoin(before, "; "),
            ": the last bits of the weights differ from those of a run that stayed where it was"),
        now);
  }

  void Prepare(Now now) {
    attempt().staging_tag = StagingTag(job_.id(), crew_->epoch());
    job_.snapshots().BeginAttempt(crew_->Workers(), crew_->epoch());
    for (int32_t i = 0; i < crew_->size(); ++i) {
      v1::PrepareRunRequest request;
      *request.mutable_spec() = job_.spec();
      *request.mutable_plan() = attempt().plan;
      request.set_worker_index(i);
      request.set_first_step(start_.step);
      request.set_checkpoint(start_.checkpoint);
      const PeerSnapshots::Snapshot* const snapshot = job_.snapshots().Find(start_.snapshot);
      if (snapshot != nullptr) *request.mutable_snapshot() = snapshot->where;
      request.mutable_extra_cuts()->Assign(start_.extra_cuts.begin(), start_.extra_cuts.end());
      request.set_staging_tag(attempt().staging_tag);
      const EarlyStop::Course course = job_.progress().CourseUpTo(start_.step);
      if (course.best.has_value()) request.set_best_validation_loss(*course.best);
      request.set_validations_since_best(course.since_best);
      crew_->Ask(i, std::move(request));
    }
    AwaitLaunch(now);
  }

  // Finds the order of a step where it is still open, because the workers were not measured.
  absl::Status OrderByEstimate(Now now) {
    if (!OrderIsOpen(job_.spec())) return absl::OkStatus();
    v1::JobSpec ordered = job_.spec();
    PENSTOCK_RETURN_IF_ERROR(FillEstimatedOrder(job_.resolved().StagesOn(crew_->size()), ordered));
    PENSTOCK_RETURN_IF_ERROR(job_.TakeSpec(std::move(ordered)));
    job_.Log("its order is searched for estimated times", now);
    return absl::OkStatus();
  }

  NextPhase OnOverdue(int64_t seconds, Now now) override {
    job_.SetUnreachable();
    const std::vector<int32_t> late = crew_->Missing();
    const std::string what = WhatIsLate(seconds, /*ends=*/!job_.Recovers());
    if (late.size() == 1) {
      crew_->blame().Own(late.front(), what, v1::ATTEMPT_CAUSE_UNREACHABLE);
      return FailIfBlamed(now);
    }
    return FailAttempt(absl::StrCat(NamesOfMissing(), " ", what), v1::ATTEMPT_CAUSE_UNREACHABLE,
                       now);
  }

  // All may be done before the last answer to StartRun comes.
  NextPhase GoOnIfAllDone(Now) override {
    return crew_->AllDone() ? Train(job_, std::move(crew_)) : nullptr;
  }

  NextPhase Fail(const std::string& error, Now now) override {
    const bool advises = has_new_split_ && !crew_->starting();
    return JobPhase::Fail(absl::StrCat(error, advises ? "; it was to go on with a new split, which "
                                                        "feedback.replan: never leaves out"
                                                      : ""),
                          now);
  }

  const FoundStart start_;
  const bool has_new_split_;
};

}  // namespace

NextPhase FindStart(TrainingJob& job, std::unique_ptr<Crew> crew) {
  return std::make_unique<FindingStart>(job, std::move(crew));
}

NextPhase Launch(TrainingJob& job, std::unique_ptr<Crew> crew, FoundStart start,
                 bool has_new_split) {
  return std::make_unique<Launching>(job, std::move(crew), std::move(start), has_new_split);
}

}  // namespace penstock
