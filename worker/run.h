// Run: one worker's part in one attempt at a job, from loading weights to the last cut. (A profile is a job too,
// whose run measures instead: profile_run.h.)
//
// A run walks the job's ranges between cuts. For each range it derives the schedule like everybody
// else, executes its own program through the executor, then does what the cut asks: validation
// (forward only), a checkpoint (snapshot now, files written while training goes on), or the end.
//
// Time, disk, network and devices come from outside (RunEnvironment), so the same code runs in
// tests with threads and a memory transport, and in a worker process over gRPC.
//
// Threads: Prepare and Execute on the executor's thread (the one that owns the back-end);
// everything else from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files.h"
#include "compute/backend.h"
#include "penstock/v1/cluster.pb.h"
#include "penstock/v1/device_times.pb.h"
#include "schedule/timeline.h"
#include "worker/data_fetcher.h"
#include "worker/limits.h"
#include "worker/snapshot_peers.h"
#include "worker/transport.h"

namespace penstock {

// A device whose time passes without it being there (worker/emulation.h).
struct EmulatedDevice {
  v1::DeviceTimes times;
  int cores = 1;  // of this machine
  std::function<void(absl::Duration)> sleep = absl::SleepFor;
};

struct RunEnvironment {
  Clock& clock;
  Files& files;
  Backend& backend;
  Transport& transport;
  std::string data_root;  // relative data paths are looked up here
  // Where the job's data are read; null: in `files`, which has the checkpoints.
  Files* data_files = nullptr;
  // Makes the run's way to its checkpoints where they are on no disk of this worker; null: they are in `files`. `may_go_on` is
  // asked now and then by a call that waits, on the thread of the call, and ends it by an error.
  std::function<std::unique_ptr<FileStore>(std::function<absl::Status()> may_go_on)>
      open_checkpoints;
  RunLimits limits;
  // Receives what happened, in order, one event at a time. Called from the executor's thread and the
  // checkpoint writer's; must not block for long.
  std::function<void(v1::RunEvent)> events;
  // Takes notices for the worker's log. Called on the executor's thread and on that of snapshots.
  std::function<void(const std::string&)> notice = [](const std::string&) {};
  // Asked now and then while preparing: an error ends Prepare with it.
  std::function<absl::Status()> may_go_on = [] { return absl::OkStatus(); };
  // Null: this worker keeps no snapshots in memory.
  SnapshotPeers* snapshots = nullptr;
  // Null: this worker fetches no files that were put to the cluster.
  DataFetcher* data_fetcher = nullptr;
  // None: passes take the time they take. Only for back-ends whose work is done when a call returns.
  std::optional<EmulatedDevice> emulated_device = std::nullopt;
  // Where a device that computes in the host's memory puts offloaded stashes (spill_file.h). Empty: jobs that need it are
  // refused.
  std::string offload_directory = "";
  // Instead of what the back-end has free before the run; 0: that. A run that needs more is refused.
  int64_t device_memory_bytes = 0;
  // Of the device, for the reports (product_rate.h); 0: not measured.
  double product_flops_per_second = 0;
};

// A worker is asked to train or to measure a profile.
using RunRequest = std::variant<v1::PrepareRunRequest, v1::PrepareProfileRequest>;
inline const v1::JobSpec& SpecOf(const RunRequest& request) {
  return std::visit([](const auto& typed) -> const v1::JobSpec& { return typed.spec(); }, request);
}

class Run {
 public:
  // Prepares training: builds the worker's stages, loads weights and data, derives and verifies the schedule and opens the
  // edges. Prepares a profile: checks what is to be measured. REQUIRES: what `environment` refers to outlives the run.
  //
  // Errors: InvalidArgument (job, plan or checkpoint do not fit), NotFound (data or checkpoint),
  // FailedPrecondition (schedule digest differs from the plan's), DataLoss (tampered data or
  // checkpoint), ResourceExhausted (no memory), or that of `may_go_on`.
  static absl::StatusOr<std::unique_ptr<Run>> Prepare(const RunRequest& request,
                                                      RunEnvironment environment);
  virtual ~Run() = default;

  // Trains to the end. Emits RunDone or RunFailed as its last event: a save that is in flight when the
  // run fails is given up and not reported. The status is that of the run: Aborted if it was stopped,
  // Unavailable naming a peer that went away, FailedPrecondition if the loss is not finite, or with
  // clipping a gradient (names step and stage). Without clipping gradients are not looked at; weights
  // that are not finite show in the next loss, and are never written to a checkpoint (SaveFailed).
  virtual absl::Status Execute() = 0;

  // See WorkerControl in cluster.proto. Hold: idempotent, returns the same step again.
  // Errors: FailedPrecondition (not executing, or CutAt without Hold or below the held step).
  virtual absl::StatusOr<int64_t> Hold() = 0;
  virtual absl::Status CutAt(int64_t step) = 0;
  // Makes Execute return soon with Aborted.
  virtual void Stop(const std::string& reason) = 0;

  virtual std::string schedule_digest() const = 0;
  virtual int64_t memory_bytes() const = 0;
  virtual int64_t actions_done() const = 0;
  // Its executor's sign of life (pulse.h); 0: it shows none now.
  virtual int64_t pulse() const { return 0; }
  // The same while an observer has to be patient; 0: it is steady, or shows none.
  virtual int64_t unsteady_pulse() const { return 0; }
  // Returns the reports of training so far.
  virtual std::vector<v1::StageReport> Reports() const = 0;
  // The most recent spans (RunLimits::timeline_spans_max at most) on this worker's monotonic clock.
  virtual Timeline RecentTimeline() const = 0;
};

}  // namespace penstock
