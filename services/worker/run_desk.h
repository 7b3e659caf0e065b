// RunDesk: which run a worker has, which epochs it has seen, and what it therefore answers to the coordinator's calls.
//
// An attempt at a job goes through
//
//   preparing -> prepared -> starting -> running -> ended
//
// Control calls ask for the next phase; the executor takes it (NextWork). An attempt that is stopped, or could not be
// prepared, is ended as well. Only the newest attempt is kept; what it counted can be read until another takes its place.
//
// Epochs are fenced: of each job, whatever is older than the newest epoch seen, or was stopped, is refused with Aborted and
// a note of that epoch (base/seen_epoch.h). An attempt is also refused that has the number of another one, which a coordinator
// that lost its records may have given. What is refused has changed nothing: an attempt that runs goes on.
//
// A state machine without clock or threads; thread-compatible. Calls that have to wait for the executor come in two halves,
// and their caller waits in between (run_host.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/rejected_messages.h"
#include "base/trace_context.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/timeline.h"
#include "worker/run.h"

namespace penstock {

class RunDesk {
 public:
  enum class Phase { kPreparing, kPrepared, kStarting, kRunning, kEnded };

  // Its fields are read by the owner and changed by the desk.
  struct Attempt {
    RunRequest request;                 // constant
    std::string job_id;                 // constant
    int64_t epoch = 0;                  // constant
    std::optional<TraceContext> trace;  // constant; of the job
    Phase phase = Phase::kPreparing;
    absl::Status stop;                // asked to stop, with the reason
    bool prepared = false;            // it was, at some time
    v1::PrepareRunResponse response;  // then
    bool started = false;             // Start was granted, at some time
    bool held = false;                // it was asked to hold
    absl::Status outcome;             // of an ended one
    Run* run = nullptr;               // while the executor has it
    // Kept when the run is gone.
    Timeline timeline;
    std::vector<v1::StageReport> stages;
    int64_t actions_done = 0;
  };
  using AttemptRef = std::shared_ptr<Attempt>;

  // `rejected` counts calls of epochs that are over. REQUIRES: it outlives the desk.
  explicit RunDesk(RejectedMessages& rejected) : rejected_(rejected) {}

  // ---- Control calls (WorkerControl in cluster.proto). Repeating one changes nothing.
  // The first half of a Prepare. Returns the older attempt, which is asked to stop and has to end first; null: there is none.
  // Errors: Aborted (epoch), the reason given to Close.
  absl::StatusOr<AttemptRef> MakeRoom(const RunRequest& request);
  // The second. Returns the attempt to wait for until it is not kPreparing. Errors: those of MakeRoom; Aborted (the worker
  // was given another run meanwhile, or knows another attempt of that epoch).
  absl::StatusOr<AttemptRef> TakeUp(const RunRequest& request,
                                    const std::optional<TraceContext>& trace);
  // The answer to that Prepare. REQUIRES: not kPreparing. Errors: why it could not be prepared.
  static absl::StatusOr<v1::PrepareRunResponse> AnswerOf(const Attempt& attempt);
  // Errors: Aborted (epoch), FailedPrecondition (not prepared), or the reason, if it was stopped before it started.
  absl::Status Start(const std::string& job_id, int64_t epoch);
  // Return the run that a HoldRun or CutRun means. Errors: Aborted (epoch), FailedPrecondition (not executing).
  absl::StatusOr<Run*> FindToHold(const std::string& job_id, int64_t epoch);
  absl::StatusOr<Run*> FindRunning(const std::string& job_id, int64_t epoch) const;
  // Returns the attempt of this epoch or an older one that has to end before this is done; null: there is none.
  AttemptRef Stop(const std::string& job_id, int64_t epoch, const std::string& reason);
  // Returns that of the job's newest attempt here, also after its end. Errors: FailedPrecondition.
  absl::StatusOr<Timeline> RecentTimeline(const std::string& job_id) const;
  // Stops whatever there is; later attempts are refused with `reason`.
  void Close(const std::string& reason);

  // ---- The executor.
  enum class Work { kPrepare, kExecute, kDiscard, kNone };
  // Returns what the executor does next with the newest attempt. kExecute: it runs from now on. kDiscard: it was stopped.
  Work NextWork();
  // The attempt is ready: it can be started.
  void SetPrepared(Attempt& attempt, Run& run);
  // The executor is about to end the attempt's run, if there is one: its numbers are kept.
  void TakeRunAway(Attempt& attempt, const Run* run);
  void End(Attempt& attempt, const absl::Status& outcome);

  // ---- Looking.
  const AttemptRef& attempt() const { return attempt_; }  // the newest, or null
  // Returns whether one is being prepared, prepared or running.
  bool IsActive() const { return attempt_ != nullptr && attempt_->phase != Phase::kEnded; }
  bool closed() const { return !closed_.ok(); }

 private:
  struct JobEpochs {
    std::string job_id;
    int64_t first = 0;  // that is not refused
    int64_t seen = 0;   // the largest
  };

  bool Has(const std::string& job_id, int64_t epoch) const {
    return attempt_ != nullptr && attempt_->job_id == job_id && attempt_->epoch == epoch;
  }
  absl::Status CheckEpoch(const std::string& job_id, int64_t epoch) const;
  // Says that the attempt is not the one of this number that the worker knows.
  absl::Status OtherOfItsEpoch(const std::string& job_id, int64_t epoch) const;
  // Refuses, from now on, what is older than `first`. `seen`: the epoch that this is for.
  void Fence(const std::string& job_id, int64_t first, int64_t seen);
  static void AskToStop(Attempt& attempt, const std::string& reason);

  RejectedMessages& rejected_;
  absl::Status closed_;            // why no attempt is taken any more
  AttemptRef attempt_;             // shared with calls that wait for it
  std::vector<JobEpochs> epochs_;  // the least recently used job first
};

}  // namespace penstock
