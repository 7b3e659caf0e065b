// JobRun: one job from the queue to its end.
//
//   QUEUED -> PREPARING -> RUNNING -> SUCCEEDED
//      ^        |  ^        |  |  cancel: DRAINING -> CANCELLED (or SUCCEEDED at the last step)
//      |        |  +--------+  |  a new split
//      |        +--------------+-----> FAILED, CANCELLED: all workers are stopped
//      +-- DRAINING <----------+  a worker, or the coordinator, leaves
//
// PREPARING is up to four phases: find the checkpoint to start from, plan what the job leaves open
// (job_planning.h), prepare all workers, start all workers. A drain is two: all workers hold and name a step; all are told to cut at the largest.
// After the last worker's RunDone the run ends with its commits and its timeline. Failure of any
// worker stops all others; the job fails with the name of the worker that failed first (blame.h).
//
// A run that takes another time than predicted is told of (run_feedback.h). With feedback.replan "auto" it gets
// another split, if what was measured promises a shorter step (replan.h): it drains as above, is saved, and is prepared
// again, as the job's next attempt on the same workers, from that checkpoint (job_feedback.cc).
//
// A job that is saved when it drains can go back to the queue (job_recovery.cc): when one of its workers leaves in good
// order, or the coordinator, it drains as above and waits, and goes on from its checkpoint as its next attempt.
//
// A profile (job_profile.cc) is a job whose workers measure instead of training: it finds the layer times that are
// known instead of a checkpoint, has no steps to drain to when it is cancelled, and ends with what was measured.
//
// The public state is final as soon as it is terminal; workers stay taken until each has confirmed
// to have stopped, is lost, or the stop times out. What belongs to another epoch than the run's is
// refused.
//
// A state machine without clock or I/O (effects.h); thread-compatible. Invariants
// (CheckInvariants):
//   1. a terminal state never changes, and a job in one has an end time;
//   2. StartRun is asked for at most once of each worker in an attempt, and only after all were prepared;
//   3. a job that ended otherwise than by all workers' RunDone has asked all of them to stop;
//   4. steps only grow and never exceed the job's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/blame.h"
#include "coordinator/block_delay_watch.h"
#include "coordinator/checkpoint_tracker.h"
#include "coordinator/effects.h"
#include "coordinator/job_planning.h"
#include "coordinator/job_state.h"
#include "coordinator/profile_gatherer.h"
#include "coordinator/remaining_time.h"
#include "coordinator/run_feedback.h"
#include "coordinator/run_progress.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"
#include "planner/job/replan.h"

namespace penstock {

struct JobRunLimits {
  // How long a report that blames a neighbour waits for that neighbour's own.
  int64_t blame_grace_ms = 1000;
  // Before a job that could not reach a worker while it was planned is begun again.
  int64_t rest_ms = 10'000;
  // From the first HoldRun to the last RunDone; then the job is stopped hard.
  int64_t drain_timeout_ms = 120'000;
  // Without any sign of progress from any worker for so long, the job is stuck.
  int64_t stall_timeout_ms = 900'000;
  // Between attempts to stop a worker, and after how long it counts as stopped all the same.
  int64_t stop_retry_ms = 1000;
  int64_t stop_timeout_ms = 30'000;
  // A job that takes whatever is free and went back to the queue wants as many workers as before for so long, for the
  // one that left is often about to come back.
  int64_t return_timeout_ms = 120'000;
  // What the run measures its own work with, for metrics; decides nothing. Null: it does not.
  std::function<int64_t()> stopwatch_ns = nullptr;
};

// Makes `record`, of a job that trains, that of a profile of its model: it has no method, no steps of training, no
// checkpoints, and nothing that was predicted of it.
void MakeProfileRecord(const v1::ProfileSpec& profile, v1::GetJobResponse& record);

class JobRun {
 public:
  // Of the texts in its records and events, which travel in lists. They are UTF-8, whatever they were
  // made of.
  static constexpr size_t kTextBytesMax = 2000;

  // Takes over a QUEUED record. `last_sequence`: of the events published for it so far. REQUIRES:
  // `job` is the record's spec or its draft (job/open_job.h), resolved; `links` and `effects` outlive the run;
  // `effects` receives what is to be done.
  JobRun(v1::GetJobResponse record, int64_t last_sequence, ResolvedJob job, JobRunLimits limits,
         KnownLinks& links, CoordinatorEffects& effects);

  // ---- Looking.
  const std::string& id() const { return record_.summary().job_id(); }
  const v1::JobSummary& summary() const { return record_.summary(); }
  const v1::JobSpec& spec() const { return record_.spec(); }
  const ResolvedJob& job() const { return job_; }
  int64_t epoch() const { return epoch_; }
  v1::JobState state() const { return record_.summary().state(); }
  // The record with the result so far.
  v1::GetJobResponse Record() const;
  bool is_profile() const { return record_.has_profile_spec(); }
  // The fewest workers it needs; whether it takes all that are free; how many of so many.
  int64_t WorkersNeeded() const;
  bool TakesAllFree() const;
  // Whether the job says which workers it runs on, and in which order.
  bool NamesWorkers() const { return !is_profile() && spec().pipeline().worker_names_size() > 0; }
  int64_t WorkersOf(int64_t free) const;
  bool queued() const { return state() == v1::JOB_STATE_QUEUED; }
  // Whether its checkpoint directory is its own although it waits: it goes on from there.
  bool returned() const { return returned_; }
  // Whether a call to a worker failed because nobody answered.
  bool unreachable() const { return unreachable_; }
  // Until when it had better not be begun again: a worker that did not answer may be about to be missed.
  int64_t rests_until_ns() const { return rests_until_ns_; }
  // Whether it can go back to the queue without losing a step.
  bool CanReturn() const { return IsSaved(record_) || phase_ == Phase::kPlanning; }
  // The run that its planning has under way, or null.
  JobRun* planning_run() { return planning_ == nullptr ? nullptr : planning_->run(); }
  // Ended, and no worker is taken any more: the run can be dropped.
  bool Over() const { return phase_ == Phase::kOver; }
  // Whether `worker` is taken by this run.
  bool Uses(const std::string& worker) const;
  // The worker's index in the plan, if this incarnation of it takes part in epoch `epoch`.
  std::optional<int32_t> IndexOf(const std::string& worker, uint64_t incarnation,
                                 int64_t epoch) const;
  // The number of the first event of a worker that it lacks. REQUIRES: as OnReport.
  int64_t NextSequence(int32_t worker_index) const { return parts_[worker_index].next_sequence; }
  // When Tick has something to do at the earliest.
  std::optional<int64_t> NextDeadlineNs() const;

  // ---- Events.
  // Says why the job waits. REQUIRES: queued().
  void Wait(const std::string& reason, Now now);
  // Gives it workers. REQUIRES: queued(), WorkersOf(...) == workers.size().
  void Begin(absl::Span<const WorkerOffer> workers, Now now);
  // Its epochs will be above this one.
  void BeginAfter(int64_t epoch) { epoch_ = std::max(epoch_, epoch); }
  void OnAnswer(EffectAnswer answer, Now now);
  // Called after every event of the run that its planning has under way.
  void GoOnPlanning(Now now);
  // Takes the events from number `first_sequence` on that it does not have yet. Returns the number
  // of the first one it lacks. REQUIRES: `worker_index` comes from IndexOf.
  int64_t OnReport(int32_t worker_index, int64_t first_sequence,
                   absl::Span<const v1::RunEvent* const> events, Now now);
  void OnHeartbeat(int32_t worker_index, int64_t actions_done, Now now);
  void OnWorkerLost(const std::string& worker, uint64_t incarnation, const std::string& reason,
                    Now now);
  // Ends the job as soon as it can be done without losing a step. Without effect once it is
  // terminal or draining.
  void Cancel(const std::string& reason, Now now);
  // The same without any regard for its steps. Without effect once it is terminal.
  void Stop(const std::string& reason, Now now);
  // Drains the job, as soon as it trains, and puts it back to the queue, from where it goes on. `reason` says who
  // leaves. Without effect if it waits, drains already, or has ended. REQUIRES: CanReturn().
  void Return(const std::string& reason, Now now);
  // A worker of it has said that it will leave. A job that cannot return runs on for as long as the worker waits.
  void OnWorkerLeaving(const std::string& worker, Now now);
  void Tick(Now now);

  // Errors: Internal naming the invariant that does not hold.
  absl::Status CheckInvariants() const;

 private:
  enum class Phase {
    kQueued,
    kFinding,   // where to start from, or which layer times are known
    kPlanning,  // what the job leaves open
    kPreparing,
    kStarting,
    kRunning,
    kHolding,     // a drain: workers name the step they can stop at
    kCutting,     // a drain: workers run to the cut
    kCommitting,  // all workers are done, a checkpoint is not
    kGathering,   // the timeline
    kStopping,    // terminal, workers are being stopped
    kOver,
  };
  struct Part {
    WorkerOffer worker;
    bool prepared = false;
    bool start_asked = false;
    bool started = false;
    std::optional<int64_t> held_step;
    bool done = false;
    bool stop_asked = false;
    bool gone = false;  // stopped or lost
    int64_t next_sequence = 0;
    int64_t actions_done = -1;
    int64_t reported_step = -1;  // of its last reports
  };

  // ---- Answers: each by its type.
  void On(const CallAnswer& answer, Now now);
  // The run keeps the lease for as long as it exists.
  void On(StartFound found, Now now);
  void On(const CheckpointCommitted& committed, Now now);
  void On(const TimelineGathered& gathered, Now now);
  void On(const PassesGathered& gathered, Now now);
  void On(const LayerTimesFound& found, Now now);
  void On(const CandidatesJudged& judged, Now now);
  void OnResponse(int32_t worker_index, const absl::StatusOr<v1::PrepareRunResponse>& prepared,
                  Now now);
  void OnResponse(int32_t worker_index, const absl::StatusOr<v1::StartRunResponse>& started,
                  Now now);
  void OnResponse(int32_t worker_index, const absl::StatusOr<v1::HoldRunResponse>& held, Now now);
  void OnResponse(int32_t worker_index, const absl::StatusOr<v1::CutRunResponse>& cut, Now now);
  void OnResponse(int32_t worker_index, const absl::StatusOr<v1::StopRunResponse>& stopped,
                  Now now);

  // ---- Starting (job_start.cc).
  bool NeedsPlanning() const;
  // The method and the split that the checkpoint was trained with, where the job leaves them open and the workers can
  // have them.
  void KeepSavedSplit(Now now);
  // The workers at the places of the pipeline that they had in the job's last plan.
  void KeepPlaces();
  void BeginPlanning(Now now);
  void EndPlanning(Now now);
  void GoOnPlanned(Now now);
  // Back to the queue before anything was trained.
  void WaitAgain(const std::string& reason, Now now);
  absl::Status MakePlanAndRecordIt(Now now);
  void PrepareAll();
  void EnterRunning(Now now);

  // ---- Running (job_events.cc).
  void OnEvent(int32_t worker_index, const v1::RunEvent& event, Now now);
  void OnStepDone(int32_t worker_index, const v1::StepDone& done, Now now);
  void OnValidationDone(int32_t worker_index, const v1::ValidationDone& done, Now now);
  void OnLayersSaved(int32_t worker_index, const v1::LayersSaved& saved);
  void CountUpdates(int64_t step, Manifest& manifest) const;
  // Of each stage of the model.
  std::vector<int32_t> LayersOfStages() const;
  void OnSaveFailed(int32_t worker_index, const v1::SaveFailed& failed, Now now);
  void OnRunDone(int32_t worker_index, const v1::RunDone& done, Now now);
  void OnRunFailed(int32_t worker_index, const v1::RunFailed& failed, Now now);
  void NoteSaveError(int64_t step, const std::string& error, Now now);
  // A call failed: the worker may be to blame, or whoever made it unreachable.
  void BlameCall(int32_t worker_index, const std::string& what, const absl::Status& status,
                 Now now);
  void DecideBlame(Now now);

  // ---- Profiles (job_profile.cc).
  void BeginProfile(Now now);
  void PlanProfile();
  void OnProfileEvent(int32_t worker_index, const v1::RunEvent& event, Now now);
  void OnMeasured(int32_t worker_index, const absl::Status& taken, Now now);
  void OnLayersTimed(int32_t worker_index, const v1::LayersTimed& timed, Now now);

  // ---- Prediction and measurement (job_feedback.cc).
  void OnStepMeasured(const v1::StepDone& done, Now now);
  void OnReports(int32_t worker_index, int64_t step,
                 const google::protobuf::RepeatedPtrField<v1::StageReport>& stages, Now now);
  // At a cut after which all workers have reported.
  using Reports = google::protobuf::RepeatedPtrField<v1::StageReport>;
  void LookForSplit(const Reports& reports, Now now);
  // The drain for the new split is done, and what it saved is committed or lost.
  void GoOnWithNewSplit(Now now);

  // ---- Draining and ending (job_end.cc).
  void StartDrain(Now now);
  void HoldAll(Now now);
  void CutIfAllHeld(Now now);
  void EndIfAllDone(Now now);
  void Finish(Now now);
  void Fail(const std::string& error, Now now);
  // Ends the job without its workers' consent and stops them.
  void EndStopped(v1::JobState state, Now now);
  void StopRemaining(Now now);
  void CheckAllGone();

  // ---- Going back to the queue (job_recovery.cc).
  // The drain is done, and what it saved is committed or lost.
  void GoBackToQueue(Now now);
  // What is left of the attempt before another one.
  void ForgetAttempt();
  // Begins training again after GoBackToQueue, here or by an earlier process.
  void NoteRecovery(Now now);

  // ---- Helpers (job_run.cc).
  bool Active() const;  // workers are taken and the state is not terminal
  bool Training() const { return phase_ >= Phase::kRunning && phase_ <= Phase::kCutting; }
  bool Draining() const { return state() == v1::JOB_STATE_DRAINING; }
  int32_t last_worker() const { return static_cast<int32_t>(parts_.size()) - 1; }
  // The workers that report steps and validations. REQUIRES: there is a plan.
  int32_t step_worker() const {
    return record_.plan().stages(progress_.reporting_stage()).worker_index();
  }
  int32_t validation_worker() const {
    return record_.plan().stages(validation_stage_.value).worker_index();
  }
  // "worker w2 (stage 2)", "... (stages 1, 2)"; of a profile "worker w2".
  std::string NameOf(int32_t worker_index) const;
  std::vector<int64_t> ExtraCutsUpTo(int64_t step) const;
  void SetState(v1::JobState state, Now now);
  void Publish(v1::JobEvent event, Now now);
  void Log(const std::string& text, Now now);
  void Save();
  void Call(int32_t worker_index, WorkerRequest request);

  v1::GetJobResponse record_;
  StageId validation_stage_;  // of the plan: the one whose worker reports validations
  ResolvedJob job_;           // of the record's spec
  const JobRunLimits limits_;
  CoordinatorEffects& effects_;
  int64_t last_sequence_;
  Phase phase_ = Phase::kQueued;

  int64_t epoch_ = 0;
  std::vector<Part> parts_;  // by worker index
  FoundStart start_;
  DirectoryLease lease_;
  Blame blame_;
  CheckpointTracker checkpoints_{0};
  RunProgress progress_{0, 0};
  RunFeedback feedback_;
  BlockDelayWatch block_delay_;
  RemainingTime remaining_{0, {}};
  // Where the job would go on from the checkpoints that are not committed yet, by step; and from the last that is.
  std::map<int64_t, FoundStart> saving_;
  FoundStart saved_;
  std::optional<int64_t>
      drifts_since_;                   // steps are off, and from this one on a split is looked for
  Reports reports_of_cut_;             // of all stages at the last cut, where splits are looked for
  std::string no_split_;               // why the last look found none
  std::optional<NewSplit> new_split_;  // the run drains for it
  int64_t replans_ = 0;
  bool began_ = false;                      // an attempt of this object has had a plan
  std::string return_reason_;               // it drains, or will, to go back to the queue
  std::set<std::string> leavers_;           // workers that were told of
  bool returned_ = false;                   // it waits, or is about to train, after it went back
  std::optional<int64_t> workers_before_;   // that it had then, as long as it wants as many
  int64_t return_deadline_ns_ = 0;          // until when that is
  std::optional<ProfileGatherer> profile_;  // of a profile that has workers
  KnownLinks& links_;
  std::unique_ptr<JobPlanning> planning_;  // while it plans, or what is left of that still stops
  int64_t plannings_ = 0;                  // that lost a worker
  bool unreachable_ = false;
  int64_t rests_until_ns_ = 0;
  std::string cancel_reason_;
  std::optional<int64_t> drain_step_;  // the cut of a drain, once it is known
  std::string save_error_;             // of the latest checkpoint, if it failed
  int64_t started_ns_ = 0;
  int64_t ended_ns_ = 0;  // of the training, before commits and the timeline
  int64_t progressed_ns_ = 0;
  std::optional<int64_t> drain_deadline_ns_;
  std::optional<int64_t> stop_retry_ns_;
  std::optional<int64_t> stop_deadline_ns_;
};

}  // namespace penstock
