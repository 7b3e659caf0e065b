// The phases of a job that trains, from its workers to its end.
//
//   FindingStart -> [Planning ->] Launching -> Running -> [Draining ->] [Saving ->] Gathering -> Ended
//                                     ^                                    |
//                                     +--- with a new split, more workers ---+--> Queued, where the job was saved
//
// Each of them can also end in Ended at once (job_phase.h). In a job that recovers, those from Launching to Saving end
// in Stopping instead when a worker fails, and so does FindingStart without stopping anybody:
//
//   Stopping -> WaitingForCrew (a Queued) -> FindingStart -> ...
//
// A job that trained when its coordinator was restarted begins with Adopting, and goes on with Running (adoption.h).
//
// Whatever the reason for which an attempt is followed by another, Reconfigure ends the one and leads to the other.
//
// Thread-compatible.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/job_phase.h"
#include "coordinator/training_job.h"

namespace penstock {

// How the job goes on after an attempt.
struct Reconfiguration {
  v1::AttemptCause cause = v1::ATTEMPT_CAUSE_UNSPECIFIED;
  std::string worker;   // to which the cause is laid; empty: to none
  std::string message;  // for people
  // It goes on at once from here, on the same workers and those that join them. Absent: it waits for workers, and looks
  // where to start.
  std::optional<FoundStart> from = std::nullopt;
  std::vector<WorkerOffer> joining = {};
};

// A phase of an attempt: handles what the workers report, which is the same in all of them.
class AttemptPhase : public JobPhase {
 public:
  AttemptPhase(TrainingJob& job, std::unique_ptr<Crew> crew)
      : JobPhase(job, std::move(crew)), job_(job) {}

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override;
  NextPhase OnEvent(int32_t worker_index, const v1::RunEvent& event, Now now) override;
  NextPhase End(v1::JobState state, Now now) override;
  NextPhase FailIfBlamed(Now now) override;
  std::optional<int64_t> DecidesAtNs() const override;
  bool DropJoining(const std::string& worker) override;
  std::vector<std::string> InUse() const override;
  void WriteRun(v1::GetJobResponse& record) const override;
  NextPhase Tick(Now now) override;
  std::optional<int64_t> NextDeadlineNs() const override;

 protected:
  TrainingAttempt& attempt() const { return job_.attempt(); }
  std::string NameOf(int32_t worker_index) const override;
  bool MayReplan() const {
    return job_.spec().feedback().replan() == "auto" && !job_.stopped_replanning();
  }
  // A worker has become slow, or is no longer.
  virtual NextPhase OnStraggler(Now) { return nullptr; }
  // All workers have reported their stages at the cut after `step`, which is not the last one.
  virtual NextPhase OnCut(int64_t /*step*/, Now) { return nullptr; }
  // A worker is done after `step`.
  virtual NextPhase OnDone(int32_t /*worker_index*/, int64_t /*step*/, Now now) {
    return GoOnIfAllDone(now);
  }
  virtual NextPhase GoOnIfAllDone(Now now);
  // Goes on once all are done and nothing is left to commit: another attempt, back to the queue, or the end.
  NextPhase GoOnSaved(Now now);
  // The attempt is over, and another one follows, unless it failed and the job is not to be tried again.
  NextPhase Reconfigure(Reconfiguration change, Now now);
  // The attempt has failed, and no worker is to blame.
  NextPhase FailAttempt(const std::string& error, v1::AttemptCause cause, Now now);
  NextPhase OnStalled(const std::string& error, Now now) override {
    return FailAttempt(error, v1::ATTEMPT_CAUSE_STALLED, now);
  }
  // Ends a cancelled job whose workers have not all drained.
  NextPhase EndUndrained(const std::string& why, Now now);
  // Removes what is staged for checkpoints that were given up.
  void DiscardGivenUp();
  void GiveUpOverdueCommits(Now now);
  // A worker is held although the phase holds nobody.
  NextPhase FailAsHeld(int32_t worker_index, Now now);
  // Returns the name of the verdict's worker, or an empty text.
  std::string WorkerOf(const Blame::Verdict& verdict) const;

  TrainingJob& job_;

 private:
  NextPhase OnGathered(PassesGathered& gathered, Now now);
  void OnStepDone(int32_t worker_index, const v1::StepDone& done, Now now);
  NextPhase OnReports(int32_t worker_index, int64_t step, const StageReports& stages, Now now);
  void OnLayersSaved(int32_t worker_index, const v1::LayersSaved& saved, Now now);
  void OnLayersKept(int32_t worker_index, const v1::LayersKept& kept, Now now);
  NextPhase OnRunDone(int32_t worker_index, const v1::RunDone& done, Now now);
  // A worker's run ended after `step` because validations no longer improve; all others end there, too.
  void StopEarly(int64_t step, Now now);
  // Returns whether all workers are done, and what was told against one of them no longer matters.
  bool IsOnlyAccused() const;
  // The run has drained and is saved, to go on with more workers.
  NextPhase GoOnWithMore(Now now);
};

// Waits for the workers of an attempt that an earlier process began, and goes on with it.
NextPhase Adopt(TrainingJob& job, std::unique_ptr<Crew> crew);
// Finds the checkpoint to start from, and plans what the job leaves open.
NextPhase FindStart(TrainingJob& job, std::unique_ptr<Crew> crew);
// Plans an attempt, prepares all workers and starts them. `has_new_split`: since an attempt before.
NextPhase Launch(TrainingJob& job, std::unique_ptr<Crew> crew, FoundStart start,
                 bool has_new_split);
// All workers have started.
NextPhase Train(TrainingJob& job, std::unique_ptr<Crew> crew);
// The job drains: because it was cancelled, goes back to the queue, or gets a new split or more workers, in which case its
// public state stays RUNNING.
NextPhase Drain(TrainingJob& job, std::unique_ptr<Crew> crew);
// A worker has failed: the others are stopped, and what is being committed is waited for. REQUIRES: TrainingJob::Recovers().
NextPhase StopAndRecover(TrainingJob& job, std::unique_ptr<Crew> crew);
// An attempt has failed. The job waits for `workers` workers, for as long as recovery.wait_seconds says, after a pause.
NextPhase WaitToRecover(TrainingJob& job, const std::string& reason, int64_t workers,
                        int64_t pause_ms, Now now);
// The job goes back to the queue without having trained on `workers` workers, or because one left in good order, or the
// coordinator was restarted. One that recovers from a failure goes on doing so. One that was under way waits for as many,
// and after recovery.wait_seconds takes fewer if they do.
NextPhase BackToQueue(TrainingJob& job, const std::string& reason, int64_t workers, int64_t rest_ms,
                      Now now);
// All workers are done and a checkpoint is being committed.
NextPhase AwaitCommits(TrainingJob& job, std::unique_ptr<Crew> crew);
// Fetches the timeline; then the job has ended.
NextPhase GatherAndEnd(TrainingJob& job, std::unique_ptr<Crew> crew);

}  // namespace penstock
