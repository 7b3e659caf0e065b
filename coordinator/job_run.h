// JobRun: one job from the queue to its end.
//
//   QUEUED -> PREPARING -> RUNNING -> SUCCEEDED
//      ^        |  ^        |  |  cancel: DRAINING -> CANCELLED (or SUCCEEDED at the last step)
//      |        |  +--------+  |  a new split
//      |        +--------------+-----> FAILED, CANCELLED: all workers are stopped
//      |        |              +-----> RECOVERING -> RUNNING: a worker fails, the others are stopped
//      +-- DRAINING <----------+  a worker, or the coordinator, leaves
//
// There are two kinds, one that trains (training_job.h) and one that measures the cluster (profile_job.cc). The run has
// what lasts as long as the job and hands each event to the phase that the job is in (job_phase.h), which says what
// comes next. The failure of any worker stops all others. The job goes on with another attempt
// (recovery_policy.h), or fails with the name of the worker that failed first (blame.h). The public state is final as soon
// as it is terminal; workers stay taken until each has confirmed to have stopped, is lost, or the stop times out. Messages
// of another epoch than the attempt's are refused.
//
// An epoch tells the attempts at a job apart. It is a counter, kept in the job's record before any worker hears of it
// (NextEpoch), so no clock matters and a restarted coordinator goes on above it. A job's ID ends with letters that are
// drawn (Coordinator::NextId), so one that lost its records does not give it again but by a rare chance. One whose records
// are an older copy has the job itself again, while workers may remember, or even run, later attempts at it. Three
// things keep these apart:
//   - the first epoch of a job is at least the time in milliseconds. That is above all epochs of a job that was begun
//     earlier, which count from an earlier time, by one for each attempt, while an attempt takes longer than a millisecond;
//   - where the clock went back, or an older copy counts on, so that this is not above, a worker that has seen a later
//     epoch refuses to prepare the attempt and names that epoch (base/seen_epoch.h). The attempt is then prepared again,
//     above it (Crew). Each worker may say so once, so this ends;
//   - should both coordinators give the same number, a worker tells the other request to prepare from a repetition of the
//     one it has, and refuses it in the same way. What is left is the same plan of an equal job on the same worker
//     processes, begun by two clocks that showed the same millisecond.
//
// Where several coordinators could lead, epochs begin with the number of the leader's term instead of the time
// (FirstEpochOf), so all that a later leader gives are above all that an earlier one gave, and no clock has a part in it.
//
// A job with a checkpoint directory goes back to the queue when one of its workers leaves in good order, or the
// coordinator: it drains, waits, and goes on from its checkpoint as its next attempt.
//
// A state machine without clock or I/O (effects.h); thread-compatible. Invariants (CheckInvariants):
//   1. a terminal state never changes, and exactly a job in one has an end time;
//   2. the phase fits the public state;
//   3. StartRun is asked for at most once of each worker in an attempt, and only after all were prepared;
//   4. a job that ended otherwise than by all workers' RunDone has asked all of them to stop;
//   5. steps only grow and never exceed the job's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/seen_epoch.h"
#include "base/trace_context.h"
#include "coordinator/effects.h"
#include "coordinator/job_planning.h"
#include "coordinator/job_state.h"
#include "coordinator/membership.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"

namespace penstock {

class Crew;
class JobPhase;

// The epochs that a leader can give to a job's attempts before they would reach those of the next term.
inline constexpr int64_t kEpochsPerTerm = int64_t{1} << 20;

// Returns the first epoch of a leader's term. Terms are numbered upwards from 1.
inline int64_t FirstEpochOf(int64_t term) {
  return std::min(term, kEpochMax / kEpochsPerTerm - 1) * kEpochsPerTerm;
}

// The term of a leader whose first epoch this is; 0: there is none.
inline int64_t TermOf(int64_t first_epoch) { return first_epoch / kEpochsPerTerm; }

struct JobRunLimits {
  // A report that blames a neighbour waits this long for that neighbour's own.
  int64_t blame_grace_ms = 1000;
  // The limits of what an attempt waits for before it trains: for the directory of its checkpoints to be read, for its
  // workers to prepare, and for them to start. Reading and preparing may read large files. The job fails after the first of
  // them, the attempt after the others.
  int64_t find_timeout_ms = 600'000;
  int64_t prepare_timeout_ms = 900'000;
  int64_t start_timeout_ms = 60'000;
  // A checkpoint whose commit takes longer counts as not saved, unless it succeeds later. Training does not wait for it.
  int64_t commit_timeout_ms = 600'000;
  // A job ends without its timeline if that takes longer.
  int64_t gather_timeout_ms = 60'000;
  // The times of layers that are known are looked up for at most this long, and a search for a plan may take so much
  // longer than its budget. After the first the layers are measured, after the second the job does without the plan.
  int64_t plan_timeout_ms = 120'000;
  // A job whose planning could not reach a worker waits this long before it is begun again.
  int64_t rest_ms = 10'000;
  // The time from the first HoldRun to the last RunDone; then the job is stopped hard.
  int64_t drain_timeout_ms = 120'000;
  // A job is stuck when no worker has shown any progress for this long.
  int64_t stall_timeout_ms = 900'000;
  // The time between attempts to stop a worker, and the time after which it counts as stopped all the same.
  int64_t stop_retry_ms = 1000;
  int64_t stop_timeout_ms = 30'000;
  // A worker at a dead link, which the coordinator may not reach either though it hears its heartbeats, counts as gone after
  // this time.
  int64_t dead_link_stop_ms = 300;
  // After a restart of the coordinator, the workers of a run are waited for so long: they may be connecting to the address of
  // before (5 s) and try again after a pause.
  int64_t adopt_timeout_ms = 10'000;
  // What is worth keeping of a run that trains is saved at least this often.
  int64_t save_interval_ms = 30'000;
  // A job that takes all free workers and went back to the queue waits this long for as many as it had, for the one
  // that left is often about to come back.
  int64_t return_timeout_ms = 120'000;
  // A job that recovers holds back those behind it for as long as it waits for workers, but not longer than this.
  int64_t hold_back_ms = 300'000;
  // No epoch is below this: the first of the term in which this coordinator leads. 0: it is alone, and the first epoch of
  // a job is the time.
  int64_t epochs_from = 0;
  // Measures the coordinator's own work for metrics and decides nothing. Null: it is not measured.
  std::function<int64_t()> stopwatch_ns = nullptr;
};

// Turns `record`, of a job that trains, into that of a profile of its model: it has no method, no steps of training, no
// checkpoints, and no predictions.
void MakeProfileRecord(const v1::ProfileSpec& profile, v1::GetJobResponse& record);

class JobRun {
 public:
  // The limit of a text in records and events, which travel in lists. Texts are UTF-8, whatever they were made of.
  static constexpr size_t kTextBytesMax = 2000;

  // Takes over a record, of either kind, that is QUEUED, RECOVERING, or of a run under way (adoption.h). `last_sequence`:
  // of the events published for it so far. REQUIRES: `job` is the record's spec or its draft (job/open_job.h), resolved;
  // `limits`, `earlier` and `effects` outlive the run.
  static std::unique_ptr<JobRun> Make(const v1::GetJobResponse& record, int64_t last_sequence,
                                      ResolvedJob job, const JobRunLimits& limits,
                                      EarlierJobs& earlier, CoordinatorEffects& effects);
  virtual ~JobRun();
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  // ---- Looking.
  const std::string& id() const { return summary_.job_id(); }
  const v1::JobSummary& summary() const { return summary_; }
  v1::JobState state() const { return summary_.state(); }
  bool ended() const { return IsTerminal(state()); }
  const v1::JobSpec& spec() const { return spec_; }
  const ResolvedJob& resolved() const { return resolved_; }
  int64_t epoch() const { return epoch_; }  // the last that was given; 0: none
  // Returns the record with the result so far. Made here and nowhere else.
  v1::GetJobResponse Record() const;
  // Return the fewest workers that it needs, whether it takes all that are free, and how many of `free` it takes.
  // REQUIRES, of all three: queued().
  int64_t WorkersNeeded() const;
  bool TakesAllFree() const;
  int64_t WorkersOf(int64_t free) const;
  // Returns whether the job says which workers it runs on, and in which order.
  virtual bool NamesWorkers() const { return false; }
  bool queued() const;
  // Returns whether its checkpoint directory is its own although it waits: it goes on from there.
  virtual bool returned() const { return false; }
  // The times of layers that are known are looked up for at most this long, and a search for a plan may take so much
  // longer than its budget. After the first the layers are measured, after the second the job does without the plan.
  int64_t plan_timeout_ms = 120'000;
  // A job whose planning could not reach a worker is not begun again before this. REQUIRES: queued().
  int64_t rests_until_ns() const;
  // Returns whether it recovers, and those behind it wait whatever it waits for.
  bool HoldsBack(Now now) const;
  // Returns whether a call to a worker failed because nobody answered.
  bool unreachable() const { return unreachable_; }
  // Returns whether it can go back to the queue without losing a step.
  bool CanReturn() const;
  // Returns whether an attempt has failed and the next does not train yet.
  bool recovering() const { return state() == v1::JOB_STATE_RECOVERING; }
  // Returns whether it takes the worker only where others do not suffice.
  virtual bool Avoids(const std::string& /*worker*/, Now) const { return false; }
  // Returns the `count` workers that it takes, the first of `free` as far as possible, in an order in which none sends to
  // another over a link that is dead. REQUIRES: there are as many.
  virtual std::vector<WorkerOffer> ChooseWorkers(std::vector<WorkerOffer> free, int64_t count,
                                                 Now) const {
    free.resize(count);
    return free;
  }
  // Returns whether it trains with fewer workers than it had, and it is time to go on with as many.
  bool WantsMore(Now now) const;
  // Returns, by worker, how many times as long as before its passes take (straggler_watch.h).
  virtual std::map<std::string, double> SlowRatios() const { return {}; }
  // Returns the directory of the first snapshot in workers' memory that the job needs; empty: all.
  virtual std::string FirstSnapshot() const { return ""; }
  // Returns the run that its planning has under way, or null.
  JobRun* planning_run() const;
  // Returns whether it has ended and no worker is taken any more: the run can be dropped.
  bool Over() const;
  // Returns the names of the workers that are taken. One that its planning uses may be there twice.
  std::vector<std::string> InUse() const;
  // Returns checkpoint.directory in one spelling of "ck", "./ck", "ck/" and "a/../ck". Links are not followed: two names for
  // one directory are found out by its lock.
  const std::string& directory() const { return directory_; }
  // Returns how many phases it has begun: what it holds, and whether it waits, changes with them.
  int64_t phases_begun() const { return phases_begun_; }
  // Returns the worker's index in the plan, if this incarnation of it takes part in epoch `epoch`.
  std::optional<int32_t> IndexOf(const std::string& worker, uint64_t incarnation,
                                 int64_t epoch) const;
  // Returns the number of the worker's first event that it lacks. REQUIRES: `worker_index` comes from IndexOf.
  int64_t NextSequence(int32_t worker_index) const;
  // Returns the number of the worker's first event that the stored record lacks; nothing if no later process asks for any.
  // REQUIRES: as NextSequence.
  std::optional<int64_t> StoredSequence(int32_t worker_index) const;
  // Returns the time when Tick next has something to do.
  std::optional<int64_t> NextDeadlineNs() const;
  // Errors: Internal naming the invariant that does not hold.
  absl::Status CheckInvariants() const;

  // ---- Events. REQUIRES, of those with the index of a worker: it comes from IndexOf.
  // It waits, and these workers are free: one that has waited for long enough may end, or take fewer of them than before.
  // REQUIRES: queued().
  void OnFree(const std::vector<WorkerOffer>& free, Now now);
  // It WantsMore, and these workers are free, for which no job waits.
  void OnSpare(const std::vector<WorkerOffer>& free, Now now);
  // Says why the job waits. REQUIRES: queued().
  void Wait(const std::string& reason, Now now);
  // It was taken over from an earlier process.
  void OnRestart(Now now);
  // It is a run of another job's planning.
  void SetOfPlanning() { of_planning_ = true; }
  // Its epochs will be above this one, which is kept with its next record.
  void BeginAfter(int64_t epoch) { epoch_ = std::max(epoch_, epoch); }
  // Gives it workers. REQUIRES: queued(), WorkersOf(...) == workers.size().
  void Begin(absl::Span<const WorkerOffer> workers, Now now);
  void OnAnswer(EffectAnswer answer, Now now);
  // Checks the events from number `first_sequence` on that it does not have yet, before it takes any of them.
  // Errors: InvalidArgument.
  absl::Status CheckReport(int32_t worker_index, int64_t first_sequence,
                           absl::Span<const v1::RunEvent* const> events) const;
  // The worker has reported what CheckReport has refused, so it cannot be trusted: it is to blame for the job's failure.
  void OnRefusedReport(int32_t worker_index, const absl::Status& refused, Now now);
  // Takes the events from number `first_sequence` on that it does not have yet, up to the first one that has to wait
  // (MayTake). Returns the number of the first one it lacks: the worker keeps that one and those after it, and reports them
  // again. REQUIRES: CheckReport was OK.
  int64_t OnReport(int32_t worker_index, int64_t first_sequence,
                   absl::Span<const v1::RunEvent* const> events, Now now);
  // The link between two workers of the attempt is dead. Returns whether the attempt is to end for that: one that no other
  // follows may still go on when the link is back in time.
  virtual bool OnDeadLink(const std::string& /*a*/, const std::string& /*b*/, Now) { return false; }
  // Returns for how long the worker has been stuck if it is, which is news.
  std::optional<int64_t> OnHeartbeat(int32_t worker_index, const v1::HeartbeatRequest& heartbeat,
                                     Now now);
  void OnWorkerLost(const std::string& worker, uint64_t incarnation, const std::string& reason,
                    Now now);
  // A worker, perhaps of the crew and perhaps another process of that name, has made itself known.
  void OnRegistered(const std::string& worker, uint64_t incarnation, Now now);
  // The coordinator was restarted a while ago: workers that are not here now do not come back as the processes they were.
  virtual void OnAllReturned(const IsWorkerHere& /*is_here*/) {}
  // The worker, which is known to be there, reports events, and still has those from number `kept_from` on. An attempt that was
  // taken over from an earlier process has failed if that had others, which this one lacks. Returns whether the job has begun
  // another phase: then the index may not hold any more.
  bool OnReporting(int32_t worker_index, int64_t kept_from, Now now);
  // All that was saved is stored.
  void OnStored();
  // One of its workers has said that it will leave. A job that cannot return runs on for as long as the worker waits.
  void OnWorkerLeaving(const std::string& worker, Now now);
  // Ends the job as soon as it can be done without losing a step. Without effect once it is terminal or cancelled.
  void Cancel(const std::string& reason, Now now);
  // Ends the job at once. Without effect once it is terminal.
  void Stop(const std::string& reason, Now now);
  // Drains the job, as soon as it trains, and puts it back to the queue. `reason` says who leaves. Without effect if it
  // waits, drains already, or has ended. REQUIRES: CanReturn().
  void Return(const std::string& reason, Now now);
  void Tick(Now now);
  // Called after every event of the run that its planning has under way.
  void GoOnPlanning(Now now);
  // Returns the workers that do not stop, in this run or one of its planning, since the last call.
  std::vector<NotStopped> TakeNotStopped() { return std::exchange(not_stopped_, {}); }

  // ---- For its phases.
  const JobRunLimits& limits() const { return limits_; }
  const TraceContext& trace() const { return trace_; }
  const std::string& cancel_reason() const { return cancel_reason_; }
  int64_t progressed_ns() const { return progressed_ns_; }
  // Returns whether its last cut is saved, so that it can go on from there.
  virtual bool IsSaved() const { return false; }
  // Returns what a failed job's error ends with: how to go on, if there is a way.
  virtual std::string AdviceToGoOn() const { return ""; }
  v1::JobSummary& summary() { return summary_; }
  void SetUnreachable() { unreachable_ = true; }
  // Returns whether it is a run of another job's planning, and no user's job.
  bool of_planning() const { return of_planning_; }
  // Returns the epoch of another attempt, and saves the job with it: what is added after this call may tell workers.
  int64_t NextEpoch(Now now);
  void AddNotStopped(NotStopped worker) { not_stopped_.push_back(std::move(worker)); }
  // The crew is not waited for any longer: some of it may not have confirmed that it stopped.
  void AddNotStopped(const Crew& crew);
  void Add(CoordinatorEffect effect) { effects_.push_back(std::move(effect)); }
  // Enters the public state, tells of it and saves the job.
  void SetState(v1::JobState state, Now now);
  // Enters QUEUED, or stays RECOVERING.
  void SetWaiting(Now now);
  // Enters RUNNING: all workers have started.
  void SetRunning(Now now);
  // The end of a job is its last event: what comes after it is dropped.
  void Publish(v1::JobEvent event, Now now);
  void Log(const std::string& text, Now now);
  void Save();
  // A checkpoint was committed, or could not be, also if the job has ended meanwhile.
  virtual void OnCommitted(const CheckpointCommitted&, Now) {}
  // The job has ended, and no worker of its last attempt works any more, or is waited for.
  virtual void OnCrewGone() {}

 protected:
  JobRun(const v1::GetJobResponse& record, int64_t last_sequence, ResolvedJob job,
         const JobRunLimits& limits, CoordinatorEffects& effects);
  // REQUIRES: `resolved` is `spec`, resolved.
  void SetSpec(v1::JobSpec spec, ResolvedJob resolved);
  int64_t started_ns() const { return started_ns_; }
  int64_t ended_ns() const { return ended_ns_; }

 private:
  // Its kind says how many workers it takes (as above), with which phase it begins and why it cannot go back to the
  // queue, adds to the record, and has invariants of its own.
  virtual int64_t FewestWorkers() const = 0;
  virtual bool WantsAllFree() const = 0;
  virtual int64_t WorkersAmong(int64_t free) const = 0;
  virtual std::unique_ptr<JobPhase> FirstPhase(std::unique_ptr<Crew> crew) = 0;
  // Returns how it waits that was taken over from an earlier process; null: as one that was just submitted.
  virtual std::unique_ptr<JobPhase> AfterRestart(Now now);
  virtual std::string WhyNotSaved() const = 0;
  virtual void WriteTo(v1::GetJobResponse& record) const = 0;
  virtual absl::Status CheckEvent(int32_t /*worker_index*/, const v1::RunEvent&) const {
    return absl::OkStatus();
  }
  // Returns whether workers keep what the store lacks, for a later process to ask for.
  virtual bool IsKept() const { return false; }
  // Returns whether there is room for what an event of the attempt tells; if not, there is once other workers report.
  virtual bool MayTake(const v1::RunEvent&) const { return true; }
  // A worker's process is gone, or another process has its name, which is `incarnation`. The worker may be in no crew.
  virtual void OnGone(const std::string& /*worker*/, uint64_t /*incarnation*/) {}
  virtual void OnOtherProcess(const std::string& /*worker*/, uint64_t /*incarnation*/) {}
  // The record, as WriteTo wrote it, is saved, and what was saved is stored.
  virtual void OnRecordSaved() {}
  virtual void OnRecordStored() {}
  virtual absl::Status CheckSteps() const { return absl::OkStatus(); }
  // Returns the median of the last steps of the attempt, if it is known.
  virtual std::optional<double> StepSeconds() const { return std::nullopt; }

  // Looks for a dead link among those that a worker calls silent. Returns whether the attempt has failed for it.
  bool FailsForLink(int32_t worker_index, const v1::HeartbeatRequest& heartbeat, Now now);
  void Become(std::unique_ptr<JobPhase> next, Now now);

  v1::JobSummary summary_;
  v1::JobSpec spec_;
  ResolvedJob resolved_;
  const std::string directory_;
  const std::string traceparent_;
  const TraceContext trace_;
  const JobRunLimits& limits_;
  CoordinatorEffects& effects_;
  int64_t last_sequence_;
  int64_t epoch_;
  std::string cancel_reason_;
  bool unreachable_ = false;
  bool of_planning_ = false;
  std::vector<NotStopped> not_stopped_;
  int64_t started_ns_ = 0;  // when it ran for the first time in this process
  int64_t progressed_ns_ = 0;
  int64_t ended_ns_ = 0;
  std::unique_ptr<JobPhase> phase_;  // never null
  int64_t phases_begun_ = 0;
};

}  // namespace penstock
