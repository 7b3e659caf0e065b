// Crew: the workers of an attempt at a job, and the checkpoint directory that they write to.
//
// It launches them (all are prepared, then all are started) and keeps what each has reported. Failures are only noted
// (blame.h): the phase that has the crew looks at them and ends the attempt.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/blame.h"
#include "coordinator/effects.h"
#include "coordinator/job_run.h"
#include "coordinator/link_watch.h"
#include "coordinator/pulse_watch.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"

namespace penstock {

class Crew {
 public:
  struct Part {
    WorkerOffer worker;
    bool prepared = false;
    std::string arithmetic = {};  // as it prepared (PrepareRunResponse)
    bool start_asked = false;
    bool started = false;
    bool done = false;
    bool stop_asked = false;
    bool stopped = false;
    bool lost = false;
    bool at_dead_link = false;  // between two workers, of which this is one
    bool given_up = false;      // GiveUpAtDeadLinks
    bool unreachable = false;   // it was asked to stop, and nobody was there
    int64_t next_sequence = 0;  // of the first event that it has not reported
    // Of the first event that the record lacks, as it was saved last, and as it is stored for sure.
    int64_t saved_sequence = 0;
    int64_t stored_sequence = 0;
    // What it has told of checkpoints that are not decided yet, and of its end, is in no record: the event's number, by step.
    std::map<int64_t, int64_t> undecided = {};
    bool heard = false;  // since the coordinator was restarted
    int64_t actions_done = -1;
    PulseWatch pulse = {};
    PulseWatch unsteady_pulse = {};
    HeartbeatLog heartbeats = {};
    bool stuck = false;  // its executor is, so it will not stop
  };

  // REQUIRES: `job` outlives the crew.
  Crew(JobRun& job, std::vector<WorkerOffer> workers);

  // ---- Looking.
  int64_t epoch() const { return epoch_; }
  int32_t size() const { return static_cast<int32_t>(parts_.size()); }
  const std::vector<Part>& parts() const { return parts_; }  // by worker index
  std::vector<Part>& parts() { return parts_; }
  std::vector<WorkerOffer> Workers() const;
  // Returns the names of those that have not stopped and are not lost.
  std::vector<std::string> InUse() const;
  // Returns the index of this incarnation of a worker.
  std::optional<int32_t> Find(const std::string& worker, uint64_t incarnation) const;
  // Returns the arithmetic of the workers' devices, each once, in order of workers; empty: it is not known of all. REQUIRES:
  // they have prepared.
  std::vector<std::string> Arithmetics() const;
  // Returns whether the workers have heard of the attempt, and whether they are being started.
  bool asked() const { return asked_; }
  bool starting() const { return starting_; }
  // Returns the indices of those that have not prepared, or, once they are being started, not started.
  std::vector<int32_t> Missing() const;
  bool AllDone() const;
  // Returns whether no worker is taken any more.
  bool AllGone() const;
  // Returns those that are still taken; with `reachable`, only those that may still stop.
  std::vector<WorkerOffer> StillTaken(bool reachable) const;
  // Returns whether the workers were taken over from an earlier process.
  bool adopted() const { return adopted_; }
  Blame& blame() { return blame_; }
  const Blame& blame() const { return blame_; }
  absl::Status CheckInvariants() const;

  // ---- Calls.
  // Puts the workers into another order. REQUIRES: !asked().
  void Reorder(std::vector<WorkerOffer> workers);
  // A worker has refused to prepare the attempt because it has seen a later epoch of the job, which this coordinator does
  // not know. Begins another attempt, above that epoch, on the same workers: all are to be prepared again. Returns
  // whether it did; otherwise the response is one for OnLaunch.
  bool OnSeenEpoch(int32_t worker_index, const WorkerResponse& response, Now now);
  // Begins another attempt, on `workers`, under a later epoch.
  void BeginAgain(std::vector<WorkerOffer> workers, Now now);
  // Sends the worker a call of this attempt.
  void Ask(int32_t worker_index, WorkerRequest request);
  // Takes a response to a preparation or a start; when the last worker is prepared, starts all. A schedule with
  // another digest than `schedule_digest` is the worker's fault; a profile has none. Returns whether all have started now.
  bool OnLaunch(int32_t worker_index, const WorkerResponse& response,
                const std::string& schedule_digest, Now now);
  // Asks all to stop that have not stopped, a lost one only once and only if it was not done.
  void Stop(const std::string& reason);
  // The workers at a dead link were asked to stop, and have had time to: those that have not answered are not waited for.
  void GiveUpAtDeadLinks();
  // Takes a response to Stop. Others are ignored.
  void OnStopped(int32_t worker_index, const WorkerResponse& response);
  // The crew is being stopped, and a worker answers that it cannot prepare, which may say more of why. Other responses are
  // ignored.
  void OnLatePreparation(int32_t worker_index, const WorkerResponse& response, Now now);

  // ---- Records.
  // Takes the workers over from an earlier process, in which they trained. REQUIRES: the crew was made with them.
  void Adopt(const v1::RunUnderWay& run);
  // Writes the workers, and which of their events the rest of the record has.
  void WriteTo(v1::RunUnderWay& run) const;
  // The worker's last event is in the record only once the checkpoint of `step` is decided.
  void AwaitDecision(int32_t worker_index, int64_t step);
  void OnDecided(int64_t step);
  // The record, with WriteTo, is saved, and what was saved is stored.
  void OnSaved();
  void OnStored();

  // ---- What goes wrong.
  // A worker was lost. It is to blame if it had anything left to do.
  void OnLost(const std::string& worker, uint64_t incarnation, const std::string& reason);
  void OnRunFailed(int32_t worker_index, const v1::RunFailed& failed, Now now);
  // A call failed: the worker may be to blame, or another that made it unreachable.
  void BlameCall(int32_t worker_index, absl::string_view what, const absl::Status& status, Now now);

  // ---- Leaving.
  // A worker has said that it will leave. Returns whether that is new.
  bool OnLeaving(const std::string& worker) { return leavers_.insert(worker).second; }
  // Says why the job is to go back to the queue; empty: it is not.
  const std::string& return_reason() const { return return_reason_; }
  void SetReturnReason(const std::string& reason) { return_reason_ = reason; }

  const DirectoryLease& lease() const { return lease_; }
  void SetLease(DirectoryLease lease) { lease_ = std::move(lease); }

 private:
  // The worker is to blame, or perhaps the job.
  void BlameOwn(int32_t worker_index, absl::StatusCode code, const std::string& message);

  JobRun& job_;
  int64_t epoch_;
  std::vector<Part> parts_;
  Blame blame_;
  bool asked_ = false;
  bool starting_ = false;
  bool adopted_ = false;
  int32_t later_epochs_ = 0;  // that workers told of since the attempt, as it is planned, was begun
  std::set<std::string> leavers_;
  std::string return_reason_;
  DirectoryLease lease_;
};

}  // namespace penstock
