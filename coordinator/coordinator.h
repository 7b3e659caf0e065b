// Coordinator: membership and jobs together; what the services of the coordinator process speak to.
//
// Jobs wait in the order of their submission until enough workers are free. A job that the
// cluster's workers could serve if they were free holds back those behind it, so that small jobs
// cannot starve a large one; a job that needs more workers than there are lets others pass. A job
// that takes whatever is free waits while workers are about to become free or to join. A job that
// recovers comes first, and holds back the others also while it pauses or the cluster has too few
// workers for it. Free workers for which no job waits go to jobs that have lost some (growth.h).
// A worker works on one job at a time, and so does a checkpoint directory. A worker that does not
// stop a run is asked again and again and gets no work until it tells of another run, or of none,
// or is a new process.
//
// A state machine without clock or I/O (effects.h): each method may add effects, which the owner
// takes and performs in order. Thread-compatible. Invariants (CheckInvariants): those of Membership
// and of each JobRun, and no worker is taken by two runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/loss_counts.h"
#include "base/rejected_messages.h"
#include "coordinator/effects.h"
#include "coordinator/job_run.h"
#include "coordinator/membership.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

struct CoordinatorLimits {
  MembershipLimits membership;
  JobRunLimits run;
  size_t jobs_waiting_max = 256;
  // An answer to ListJobs leaves out the older jobs beyond this.
  int64_t list_bytes_max = 900 << 10;
  // The time between attempts to stop a run that no job knows (of an earlier coordinator, say).
  int64_t orphan_stop_ms = 2000;
  // A job that takes all free workers waits until none has joined for this long. After a restart of the coordinator
  // they come back one by one, some only after a gRPC reconnect and a heartbeat.
  int64_t settle_ms = 3000;
  // Draws 32 random bits for the id of a new job. Null: ids end with their number, and a coordinator that lost its
  // store gives the same ones again.
  std::function<uint32_t()> draw = nullptr;
};

// A job as it was kept before a restart.
struct StoredJob {
  v1::GetJobResponse record;
  std::string idempotency_key;
  int64_t last_sequence = 0;  // of its events
};

// A submission leads to this.
struct Submission {
  std::string job_id;
  // The new job's record, to be kept; nothing if an earlier submission had the same key.
  std::optional<SaveJob> record;
};

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorLimits& limits);

  // Takes back the jobs of an earlier process, in the order of their submission. Those that were to end early have
  // ended so. Those that trained are gone on with (adoption.h). Those that waited wait again, and so do those that were under way, recovered, or drained to go back to the
  // queue, and have a checkpoint directory, to go on from there, or that are to recover without one; the others have
  // failed. REQUIRES: called once, before anything else.
  void Restore(std::vector<StoredJob> jobs, Now now);

  // Checks the ID of a job that a caller names, because it goes into answers, logs and queries.
  static absl::Status CheckJobId(const std::string& job_id);

  // ---- Workers (see the services in cluster.proto for the errors).
  absl::StatusOr<v1::RegisterWorkerResponse> RegisterWorker(
      const v1::RegisterWorkerRequest& request, Now now);
  absl::Status Heartbeat(const v1::HeartbeatRequest& request, Now now);
  // The answer to a heartbeat that was OK: when the next one is due, and which of the worker's snapshots are still needed.
  v1::HeartbeatResponse AnswerTo(const v1::HeartbeatRequest& request) const;
  // A worker's stream begins, and has ended (membership.h). Attach returns its number.
  absl::StatusOr<int64_t> Attach(const v1::AttachRequest& request, Now now);
  void Detach(const std::string& worker, int64_t stream, Now now);
  // The answer to ProbeWorker: Membership::OnProbed says which errors count.
  void OnProbed(const ProbeWorker& probe, const absl::Status& answer, Now now);
  absl::StatusOr<v1::ReportRunResponse> ReportRun(const v1::ReportRunRequest& request, Now now);
  v1::ListWorkersResponse ListWorkers(Now now) const;

  // ---- Jobs.
  // A submission has two halves, so that a job is taken only once it is kept. First: looks whether the
  // job can be taken, and changes nothing.
  // Errors: InvalidArgument naming the field, ResourceExhausted (too many jobs wait), Unavailable
  // (draining).
  absl::StatusOr<Submission> CheckSubmission(const v1::SubmitJobRequest& request, Now now) const;
  // Does the same for a job that measures.
  absl::StatusOr<Submission> CheckProfile(const v1::SubmitProfileRequest& request, Now now) const;
  // Second, when the record is in the store: takes the job. REQUIRES: `submitted` is from a CheckSubmission after which
  // nothing else was called.
  void AddJob(const SaveJob& submitted, Now now);
  // A cancellation has two halves, too. First: returns the record of a job that is to end, to be kept; nothing if the job
  // has ended or was cancelled before. Changes nothing. Errors: NotFound.
  absl::StatusOr<std::optional<SaveJob>> CheckCancel(const std::string& job_id) const;
  // Second, when that is in the store: ends the job. Errors: NotFound.
  absl::StatusOr<v1::CancelJobResponse> CancelJob(const std::string& job_id, Now now);
  v1::ListJobsResponse ListJobs() const;
  // Returns the run of a job that has not ended or whose workers still stop, or null.
  const JobRun* FindRun(const std::string& job_id) const;
  // Errors: NotFound.
  absl::StatusOr<v1::JobSummary> FindSummary(const std::string& job_id) const;

  // Takes the answer to an effect of the job. It is ignored if the job is over.
  void OnAnswer(const std::string& job_id, EffectAnswer answer, Now now);
  // Adds a line to the job's log. Returns false, and nothing changes, if the job has ended.
  bool Log(const std::string& job_id, const std::string& text, Now now);
  // All effects that were taken so far and that keep something are stored, for a later process to Restore.
  void OnStored();

  // ---- Time.
  void Tick(Now now);
  // Returns the time when Tick next has something to do.
  std::optional<int64_t> NextDeadlineNs() const;

  // Takes no new jobs, starts none, and drains those under way. Those with a checkpoint directory go back to the queue,
  // the others end. Jobs that wait stay in the store.
  void Drain(Now now);
  // Returns whether nothing is under way any more.
  bool Drained() const;

  // Returns the effects since the last call.
  CoordinatorEffects TakeEffects();

  const Membership& membership() const { return membership_; }
  const LearnedSteps& learned_steps() const { return earlier_.steps; }
  // Returns the heartbeats and reports of runs that are over, and the events that came twice.
  const RejectedMessages& rejected() const { return rejected_; }
  const LossCounts& losses() const { return losses_; }
  // Errors: Internal naming the invariant that does not hold.
  absl::Status CheckInvariants() const;

 private:
  void Probe(const std::string& worker, int64_t stream);
  // `profile`: null if the job trains.
  absl::StatusOr<Submission> CheckNewJob(const v1::JobSpec& spec, const std::string& key,
                                         const v1::ProfileSpec* profile, Now now) const;
  // Returns NAME-NUMBER-LETTERS, for example gpt-12-kzvpt. The number counts per name from 1, beyond those of all jobs
  // that this process knows; the letters are drawn, so that jobs of a store that was lost or put back had others.
  std::string NextId(const std::string& name) const;
  // Adds a job, whose ID no other gets any more.
  void TakeId(const std::string& job_id);
  // Returns the job's run, or one of its planning.
  JobRun* Find(const std::string& job_id);
  // Adds a run; the record's job id is its key. REQUIRES: `job` is the record's spec, resolved.
  void AddRun(const v1::GetJobResponse& record, int64_t last_sequence, ResolvedJob job);
  // Returns whether a job that an earlier process has left waits now; changes its record to that end.
  static bool WaitsAgain(v1::GetJobResponse& record, Now now);
  // Ends a job that an earlier process has left: it was cancelled, or cannot go on.
  void EndAfterRestart(StoredJob job, Now now);
  void OnDeparture(const Departure& departure, Now now);
  // A worker leaves. Errors: NotFound (it has no run any more: it may go, and is known no longer).
  absl::Status LetGo(const std::string& worker, Now now);
  // After every event: forgets runs that are over and gives free workers to jobs that wait.
  void Settle(Now now);
  // Returns whether there were any.
  bool ForgetOver();
  // Returns whether a job waits for workers that are free, or will be.
  bool StartWaiting(Now now);
  // Offers the free workers to jobs that have lost some, or none if `are_wanted` by jobs that wait.
  void OfferSpare(bool are_wanted, Now now);
  // The job waits before all but those that recovered before it. REQUIRES: it does not wait yet.
  void WaitFirst(const std::string& job_id);
  // What jobs that wait are begun with. It is made once for all of them, for there may be a thousand workers.
  struct Supply {
    std::vector<WorkerOffer> free;
    size_t usable = 0;     // workers that can be given work, free or not
    std::string unusable;  // why others cannot: of one, and the number of the rest
    int64_t stopping = 0;  // of the usable ones: they have not left a job that has ended
    // The jobs under way that write checkpoints, by directory.
    std::map<std::string, std::vector<const JobRun*>> writers;
  };
  Supply MakeSupply() const;
  // Returns a job that stops its workers to recover on them and will wait before all that do not recover; empty: none.
  std::string FirstToRecover(Now now) const;
  // Starts the job, or says why it waits. Takes its workers out of the supply. Returns whether it
  // holds back those behind it, also if it does not recover.
  bool StartOrWait(JobRun& run, Supply& supply, Now now);
  // Starts the job on these workers and takes them out of the supply.
  static void BeginOn(JobRun& run, const std::vector<WorkerOffer>& chosen, Supply& supply, Now now);
  // Does the same for a job that names its workers.
  bool StartOnNamed(JobRun& run, Supply& supply, Now now);
  // Says why a job that takes all free workers should wait; empty if it need not.
  std::string WhyNotAllFree(const Supply& supply, Now now);
  // Returns the runs that take workers, by worker.
  std::unordered_map<std::string, JobRun*> Users() const;
  // A worker tells of a run that no job has: it is asked to stop.
  void OnOrphan(const v1::HeartbeatRequest& request, Now now);
  // A worker tells of no such run.
  void ForgetOrphan(const std::string& worker, Now now);
  // Returns why an alive worker gets no work, or an empty string.
  std::string WhyUnusable(const Member& member) const;

  const CoordinatorLimits limits_;
  Membership membership_;
  CoordinatorEffects effects_;
  EarlierJobs earlier_;
  std::vector<std::string> order_;                       // all job ids by submission
  std::map<std::string, int64_t> last_numbers_;          // of IDs, by the jobs' name
  std::vector<std::string> waiting_;                     // those that are queued
  std::map<std::string, std::unique_ptr<JobRun>> runs_;  // not over
  std::map<std::string, v1::JobSummary> ended_;          // over
  std::map<std::string, std::string> job_of_key_;        // by idempotency key
  struct Orphan {
    uint64_t incarnation = 0;
    std::string job_id;
    int64_t epoch = 0;
    int64_t since_ns = 0;
    std::optional<int64_t> asked_ns;  // to stop
    bool stuck = false;               // it was asked for too long
  };
  std::map<std::string, Orphan> orphans_;  // by worker: the run that it has and no job
  // When workers that were there before a restart have come back, or do not.
  std::optional<int64_t> all_returned_ns_;
  // The deadlines of jobs that have not changed since they were last asked for: every turn asks for all, and few have changed.
  mutable std::unordered_map<const JobRun*, std::optional<int64_t>> deadlines_;
  std::optional<int64_t> settled_ns_;  // when a job that waits for more workers waits no longer
  RejectedMessages rejected_;
  LossCounts losses_;
  bool draining_ = false;
};

}  // namespace penstock
