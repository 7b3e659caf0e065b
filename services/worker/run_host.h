// RunHost: the worker's one executor thread, and the one run it may have at a time.
//
// A thread around RunDesk (run_desk.h), which says what happens to an attempt at a job: control calls ask for its next phase
// and wait until the executor thread has taken it. Each attempt has a back-end of its own, made as its job wants it, and gives
// all memory back when it ends (on a GPU that exports, when the peers have closed it).
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/rejected_messages.h"
#include "base/trace_context.h"
#include "compute/backend.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/timeline.h"
#include "services/worker/run_desk.h"
#include "worker/run.h"
#include "worker/transport.h"

namespace penstock {

// A worker's description of the device it computes on.
struct DeviceDescription {
  std::string name;
  int64_t memory_bytes = 0;
};

// The objects that a host gets from outside. All but `check` and `on_event` are called on the executor thread.
struct RunHostParts {
  // Describes the device that this worker computes on. Called once, first.
  std::function<absl::StatusOr<DeviceDescription>()> describe_device;
  // Says whether a request to prepare is meant for this worker, in this life of it. On the thread of the call, before
  // anything else; must not block. Errors: FailedPrecondition (another worker, or an earlier life), InvalidArgument.
  std::function<absl::Status(const RunRequest&)> check = [](const RunRequest&) {
    return absl::OkStatus();
  };
  // The back-end of the attempt.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(const RunRequest&)> make_backend;
  // The edges of the attempt.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(const RunRequest&)> join;
  // Run::Prepare with everything but these filled in.
  std::function<absl::StatusOr<std::unique_ptr<Run>>(const RunRequest&, Backend&, Transport&,
                                                     std::function<void(v1::RunEvent)> events,
                                                     std::function<absl::Status()> may_go_on)>
      prepare;
  // A prepared attempt is over; its counts can still be asked for, and go when this returns.
  std::function<void()> on_attempt_over = [] {};
  // After an attempt that failed: this process cannot compute on its device again, and later attempts are refused.
  std::function<void(const absl::Status&)> on_device_lost = [](const absl::Status&) {};
  // An attempt is about to be prepared: events from now on are its own. `trace`: of its job, if it has one.
  std::function<void(const std::string& job_id, int64_t epoch,
                     const std::optional<TraceContext>& trace)>
      on_attempt;
  // From the executor thread and the run's own threads; must not block for long. Also a RunFailed for
  // an attempt that was prepared and will not execute because of Close.
  std::function<void(v1::RunEvent)> on_event;
};

class RunHost {
 public:
  // Starts the executor thread.
  explicit RunHost(RunHostParts parts);
  // Stops what runs and waits for it.
  ~RunHost();
  RunHost(const RunHost&) = delete;
  RunHost& operator=(const RunHost&) = delete;

  // Waits until the device is described. Errors: describe_device's.
  absl::StatusOr<DeviceDescription> Device() ABSL_LOCKS_EXCLUDED(mutex_);

  // WorkerControl, see cluster.proto. Repeating a call changes nothing. A Prepare that is not refused stops an older
  // attempt first: the coordinator decides what this worker works on.
  // Errors also: those of `check`; Aborted (epoch), DeadlineExceeded (still at it: call again), FailedPrecondition.
  absl::StatusOr<v1::PrepareRunResponse> Prepare(
      const RunRequest& request, absl::Time deadline,
      const std::optional<TraceContext>& trace = std::nullopt) ABSL_LOCKS_EXCLUDED(mutex_);
  // Errors also: the reason, if it was stopped before it started.
  absl::Status Start(const std::string& job_id, int64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<int64_t> Hold(const std::string& job_id, int64_t epoch)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Cut(const std::string& job_id, int64_t epoch, int64_t step)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // OK when nothing of this epoch or an older one is left; also if there was nothing.
  absl::Status Stop(const std::string& job_id, int64_t epoch, const std::string& reason,
                    absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns that of the job's newest attempt here, also after its end.
  absl::StatusOr<Timeline> RecentTimeline(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);

  // Stops whatever there is, without waiting; later attempts are refused with `reason`.
  void Close(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until nothing is being prepared, prepared or running, and returns whether that happened.
  bool AwaitIdle(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Activity {
    std::string job_id;  // of the newest attempt; empty if there was none
    int64_t epoch = 0;
    bool active = false;     // being prepared, prepared or running
    bool preparing = false;  // being prepared: it has done no action yet
    bool held = false;       // it was asked to hold
    int64_t actions_done = 0;
    int64_t pulse = 0;                    // Run::pulse
    int64_t unsteady_pulse = 0;           // Run::unsteady_pulse
    std::vector<v1::StageReport> stages;  // of training so far
  };
  // With the stages' reports only if asked: they cost a little.
  Activity GetActivity(bool with_stages) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls of epochs that are over, and for another worker or an earlier life of this one.
  const RejectedMessages& rejected() const { return rejected_; }

 private:
  using Attempt = RunDesk::Attempt;

  // The next thing that the executor thread does; kNone: it ends.
  struct Task {
    RunDesk::Work work = RunDesk::Work::kNone;
    RunDesk::AttemptRef attempt;
  };

  void ExecutorMain();
  Task AwaitWork() ABSL_LOCKS_EXCLUDED(mutex_);
  void DoPrepare(Attempt& attempt) ABSL_LOCKS_EXCLUDED(mutex_);
  void DoExecute(Attempt& attempt) ABSL_LOCKS_EXCLUDED(mutex_);
  void DoDiscard(Attempt& attempt) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status StopOf(const Attempt& attempt) const ABSL_LOCKS_EXCLUDED(mutex_);
  // After a run's end: whether this process can compute on its device again. Errors: Unavailable.
  absl::Status CheckDevice(const absl::Status& outcome) const;
  // Takes the run away from the attempt, keeps its numbers, and destroys it and what it used.
  void DropRun(Attempt& attempt, const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: those of `check`.
  absl::Status CheckIsMeant(const RunRequest& request) const;
  // False if `deadline` came first.
  bool AwaitEnded(const RunDesk::AttemptRef& attempt, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RunHostParts parts_;
  mutable RejectedMessages rejected_;

  // Used by the executor thread; each refers to those above it.
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Run> run_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<DeviceDescription>> device_
      ABSL_GUARDED_BY(mutex_);  // once described
  bool quit_ ABSL_GUARDED_BY(mutex_) = false;
  // The fields of its attempts, but `request`, are guarded by mutex_ as well.
  RunDesk desk_ ABSL_GUARDED_BY(mutex_){rejected_};

  std::thread executor_;
};

}  // namespace penstock
