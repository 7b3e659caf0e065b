// TrainingJob: a job that trains. State that outlives its attempts is in the job; that of one attempt is in a
// TrainingAttempt, which the next attempt replaces.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/block_delay_watch.h"
#include "coordinator/checkpoint_tracker.h"
#include "coordinator/growth.h"
#include "coordinator/job_run.h"
#include "coordinator/link_watch.h"
#include "coordinator/peer_snapshots.h"
#include "coordinator/recovery_policy.h"
#include "coordinator/remaining_time.h"
#include "coordinator/run_feedback.h"
#include "coordinator/run_progress.h"
#include "coordinator/straggler_watch.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/replan.h"

namespace penstock {

// More workers for a job that has fewer than it had.
struct Growth {
  std::vector<WorkerOffer> joining;
  std::string gone;  // one that was, and is lost or leaves
};

struct TrainingAttempt {
  // REQUIRES: `job` is `spec` resolved, `plan` is of both; both outlive the attempt.
  TrainingAttempt(const v1::JobSpec& spec, const ResolvedJob& job, v1::Plan plan, int64_t workers,
                  FoundStart start);

  // The workers that report steps and validations.
  int32_t step_worker() const { return plan.stages(topology.TellsSteps().value).worker_index(); }
  int32_t validation_worker() const {
    return plan.stages(topology.TellsEvaluations().value).worker_index();
  }
  // Returns whether it was drained before the job's last step.
  bool cut_short() const {
    return !stopped_step.has_value() && drain_step.value_or(job.steps) < job.steps;
  }
  // The workers are to be asked how they get on after a while.
  void AskLater(Now now) {
    ask_at_ns = now.monotonic_ns +
                (block_delay.Asks() ? BlockDelayWatch::kIntervalNs : StragglerWatch::kWindowNs);
  }
  // Returns the cuts of this attempt and those before it, up to `step`, that are not among the regular ones.
  std::vector<int64_t> ExtraCutsUpTo(int64_t step) const;
  // Says for which change the run drains, to go on at once; empty: for none.
  absl::string_view drains_for() const {
    return new_split.has_value() ? "a new split" : growth.has_value() ? "more workers" : "";
  }
  // REQUIRES: the time of a step is known.
  GrowthCuts CutsToGrow() const {
    return {.own = cuts, .steps = job.steps, .step_s = *remaining.StepSeconds()};
  }
  // All workers have written this checkpoint. Returns its manifest without the job's id and epoch.
  Manifest ManifestOf(const CheckpointTracker::Complete& complete) const;

  const v1::JobSpec& spec;
  const ResolvedJob& job;
  const v1::Plan plan;
  const int64_t stages;
  const Topology topology;
  const FoundStart start;
  const std::vector<int64_t> cuts;  // regular ones
  const double sample_flops;        // of the model's forward and backward of a sample
  std::vector<std::string> arithmetics =
      {};  // of its workers' devices (Crew::Arithmetics), once they have prepared
  CheckpointTracker checkpoints;
  // The job would go on from here: with each checkpoint that is not committed yet, by step, and with the last that is.
  std::map<int64_t, FoundStart> saving;
  FoundStart saved;
  // Returns what the job would go on from now: the last checkpoint of this attempt, or what the attempt began from.
  const FoundStart& latest() const { return saved.checkpoint.empty() ? start : saved; }
  std::map<int64_t, int64_t> commit_due_ns;  // of those being committed, by step
  std::string staging_tag;      // names its staging directories; empty: nobody is to prepare it yet
  std::string save_error;       // of the latest checkpoint, if it failed
  int64_t save_error_step = 0;  // of that checkpoint
  std::set<int64_t> not_saved;  // the latest steps that were not, until a later one is
  BlockDelayWatch block_delay;
  std::optional<int64_t> ask_at_ns;  // GatherPasses; absent while an answer is on its way
  RemainingTime remaining;
  // With feedback.replan "auto": from this step on a new split is looked for, at a cut that all workers have reported.
  std::optional<int64_t> drifts_since;
  std::vector<int64_t> reported_step;   // by worker
  std::optional<NewSplit> new_split;    // the run drains for it
  std::optional<Growth> growth;         // likewise
  std::optional<int64_t> drain_step;    // the cut of a drain, once it is known
  std::optional<int64_t> stopped_step;  // where validation.stop_after ended the job
  int64_t done_ns = 0;                  // when all workers were done
  bool adopting = false;    // its workers have trained under an earlier process, and are waited for
  int64_t save_due_ns = 0;  // for what has come since it was saved
  int64_t snapshot_save_due_ns = 0;  // for a snapshot
};

class TrainingJob final : public JobRun {
 public:
  TrainingJob(const v1::GetJobResponse& record, int64_t last_sequence, ResolvedJob job,
              const JobRunLimits& limits, EarlierJobs& earlier, CoordinatorEffects& effects);

  // ---- JobRun.
  bool NamesWorkers() const override { return spec().pipeline().worker_names_size() > 0; }
  bool returned() const override { return returned_; }
  bool Avoids(const std::string& worker, Now now) const override {
    return avoided_.Has(worker, now.monotonic_ns);
  }
  std::vector<WorkerOffer> ChooseWorkers(std::vector<WorkerOffer> free, int64_t count,
                                         Now now) const override {
    return PlaceApart(std::move(free), count, PlacesThatTalk(count), dead_links_, now.monotonic_ns);
  }
  bool OnDeadLink(const std::string& a, const std::string& b, Now now) override {
    dead_links_.OnDead(a, b, now.monotonic_ns);
    return Recovers();
  }
  bool IsSaved() const override { return !spec().checkpoint().directory().empty(); }
  std::string AdviceToGoOn() const override;
  std::map<std::string, double> SlowRatios() const override { return stragglers_.SlowRatios(); }
  void OnCommitted(const CheckpointCommitted& committed, Now now) override;
  void OnCrewGone() override;

  std::string FirstSnapshot() const override { return snapshots_.FirstNeeded(); }

  // ---- For its phases.
  EarlierJobs& earlier() const { return earlier_; }
  // The last attempt. REQUIRES: BeginAttempt was OK.
  TrainingAttempt& attempt() { return *attempt_; }
  RunProgress& progress() { return progress_; }
  RunFeedback& feedback() { return feedback_; }
  StragglerWatch& stragglers() { return stragglers_; }
  v1::JobResult& result() { return *result_; }
  std::optional<v1::JobPlanning>& planning() { return planning_; }
  int64_t& lost_plannings() { return lost_plannings_; }
  int64_t replans() const { return replans_; }
  // Takes another spec. Errors: those of ResolveJob.
  absl::Status TakeSpec(v1::JobSpec spec);
  using JobRun::SetSpec;
  absl::Status TakeSplit(const NewSplit& split);
  // Plans an attempt on `workers`, and tells of the plan. Errors: those of MakePlan; the last attempt stays.
  absl::Status BeginAttempt(const std::vector<WorkerOffer>& workers, FoundStart start, Now now);
  // All workers have started. Counts and tells if the job goes on after it has waited for workers.
  void OnTraining(Now now);
  // Returns whether a failure of the attempt under way is followed by another attempt: it is not where the job is to end.
  bool Recovers() const;
  PeerSnapshots& snapshots() { return snapshots_; }
  // Returns `start`, or the latest snapshot that the job can go on from if that is later.
  FoundStart LaterOf(FoundStart start) const;
  // A worker keeps its layers in memory. Returns whether all do now.
  bool OnKept(int32_t worker_index, const v1::LayersKept& kept);
  // The attempt under way is over before the job, for this cause. `worker`: to which that is laid; empty: to none.
  void EndAttempt(v1::AttemptCause cause, const std::string& worker, const std::string& message,
                  Now now);
  // The attempt under way has failed, and is over once its workers have stopped.
  void NoteFailure(Now now);
  // An attempt has failed: if it was the first with a new split, and did no step, goes back to the split before, for good.
  // Returns whether it was.
  bool DropSplit(Now now);
  // The number of workers that the attempt under way lacks of the most that one had.
  int64_t lacks() const;
  const v1::FullCrew& full_crew() const { return full_crew_; }
  // Takes back what the job said when it had the most workers, for `growth`. Errors: those of ResolveJob.
  absl::Status Grow(const Growth& growth);
  // The attempt under way is to end for a growth, and its record says so.
  void NoteGrowing();
  // Nothing comes of a growth because of this worker, which is avoided from now on.
  void BlameForGrowth(const std::string& worker, Now now);
  // An attempt has failed, and `worker` is to blame: if it was the first after the job grew, and did no step, goes back to
  // the job and the number of workers before, which is returned, and avoids the worker if it has just joined.
  std::optional<int64_t> DropGrowth(const std::string& worker, Now now);
  bool stopped_replanning() const { return stopped_replanning_; }
  void StopReplanning() { stopped_replanning_ = true; }
  // A look for the job's start has failed, or has not. Returns those that have failed since one has not.
  FailedSearches OnSearchFailed(Now now);
  void OnSearchDone() { failed_searches_ = 0; }
  // The job waits for workers, to go on.
  void SetReturned();
  // A checkpoint could not be saved. The log tells the first of several in a row.
  void NoteSaveError(int64_t step, const std::string& error, Now now);
  // It was saved, perhaps later than others that were not. The log tells when the latest is saved again.
  void NoteSaved(int64_t step, Now now);
  // No longer waits for commits that have taken too long. Returns their steps.
  std::vector<int64_t> GiveUpOverdueCommits(Now now);
  // Removes what is staged for checkpoints that were given up, unless a worker may still write to it. Returns the latest of
  // their steps.
  std::optional<int64_t> DiscardGivenUp();

 private:
  int64_t FewestWorkers() const override;
  bool WantsAllFree() const override { return !spec().pipeline().has_stages(); }
  int64_t WorkersAmong(int64_t free) const override { return WorkersFor(spec(), resolved(), free); }
  std::unique_ptr<JobPhase> FirstPhase(std::unique_ptr<Crew> crew) override;
  std::unique_ptr<JobPhase> AfterRestart(Now now) override;
  // Returns which places of an attempt on `workers` workers send to each other: those of neighbouring stages, as in the last
  // attempt. If that had another number of workers, or workers combine what they have with all others, returns all pairs.
  std::set<PlacePair> PlacesThatTalk(int64_t workers) const;
  std::string WhyNotSaved() const override {
    return "with checkpoint.directory the job would be saved and go on";
  }
  void WriteTo(v1::GetJobResponse& record) const override;
  // Takes over the attempt in the record of an earlier process. REQUIRES: CanBeAdopted.
  void TakeOver(const v1::GetJobResponse& record);
  absl::Status CheckEvent(int32_t worker_index, const v1::RunEvent& event) const override;
  bool MayTake(const v1::RunEvent& event) const override;
  void OnGone(const std::string& worker, uint64_t incarnation) override;
  void OnOtherProcess(const std::string& worker, uint64_t incarnation) override;
  void OnAllReturned(const IsWorkerHere& is_here) override { snapshots_.KeepHolders(is_here); }
  // There is a snapshot that it may go on from.
  bool GoesOnFromSnapshot() const;
  // It has not come to its first, so it begins again without losing more than it does between two.
  bool AwaitsFirstSnapshot() const;
  bool IsKept() const override { return !of_planning(); }
  void OnRecordSaved() override { snapshots_.OnSaved(); }
  void OnRecordStored() override { snapshots_.OnStored(); }
  absl::Status CheckSteps() const override;
  std::optional<double> StepSeconds() const override {
    return attempt_.has_value() ? attempt_->remaining.StepSeconds() : std::nullopt;
  }

  EarlierJobs& earlier_;
  std::optional<v1::JobPlanning> planning_;
  std::optional<v1::JobResult> result_;  // what is not derived from the rest
  std::optional<TrainingAttempt> attempt_;
  PeerSnapshots snapshots_;
  std::unique_ptr<Crew> adopted_;  // of that attempt, until OnRestart
  RunProgress progress_{0, 0};
  RunFeedback feedback_;
  StragglerWatch stragglers_;
  AvoidedWorkers avoided_;
  DeadLinks dead_links_;
  bool returned_;    // it waits, or is about to train, after it went back to the queue
  int64_t replans_;  // also those in an earlier process
  std::optional<v1::JobSpec>
      before_split_;  // as it was before the last new split, until an attempt with that has failed
  bool stopped_replanning_ = false;
  v1::FullCrew full_crew_;
  // The last growth, until an attempt has failed.
  struct Grown {
    v1::JobSpec before;
    int64_t workers_before = 0;
    std::vector<WorkerOffer> joined;
    bool trains = false;
  };
  std::optional<Grown> grown_;
  int64_t failed_searches_ = 0;   // since the last that has not failed
  int64_t search_failed_ns_ = 0;  // the first of these
  double wall_before_s_;          // of training in an earlier process
  int64_t lost_plannings_ = 0;    // during which a worker was lost
};

}  // namespace penstock
