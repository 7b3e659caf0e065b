// CoordinatorServer: a whole coordinator in one object, for penstock-coordinator and for the
// cluster that `penstock train` keeps in its own process.
//
//   handlers (lanes) ────── ask ──▶ EventLoop: Coordinator (pure), StateStore
//                                       │ effects
//                       WorkerCaller ◀──┼──▶ CheckpointKeeper, TimelineGatherer
//                            │ answers come back as events; stored events wake JobTracer
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/rejected_messages.h"
#include "base/state_counts.h"
#include "coordinator/coordinator.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/timeline_gatherer.h"
#include "services/rpc/address.h"
#include "services/rpc/transport_security.h"
#include "services/tracing/span.h"

namespace penstock {

struct CoordinatorServerOptions {
  HostPort listen = {.host = "127.0.0.1", .port = 0};  // port 0: any free one
  // The SQLite file of the job records, created if it does not exist; empty: in memory.
  std::string state_file;
  // What is damaged in the state file is dropped and logged, instead of refused.
  bool drop_damaged = false;
  bool reflection = false;
  TransportSecurity security = TransportSecurity::Plaintext();
  // The health service also answers here, alone and in plain text. None: nowhere.
  std::optional<HostPort> health;
  CoordinatorLimits limits;
  // Submissions and cancellations are written down here (audit_log.h); empty: nowhere.
  std::string audit_file;
  // How that file is brought to the disk (audit_log.h).
  std::function<int(int file)> sync_audit = fsync;
  // How locks in checkpoint directories are opened (directory_lock.h): with the confinement of the files, if they have one.
  LockFileOpener open_lock = OpenLockFile;
  // Takes what an operator may want to read, a line each; from any thread. Null: nowhere.
  std::function<void(const std::string&)> log;
  // Takes the spans of all jobs, on a thread of the server's; must not wait. Null: none are made.
  std::function<void(std::vector<TraceSpan>)> spans;
};

// Numbers for metrics, at one moment.
struct CoordinatorSnapshot {
  v1::ListJobsResponse jobs;
  v1::ListWorkersResponse workers;
  // The results of jobs under way or ended less than FinishedJobs::kKeptFor ago, by job id; without curves.
  std::map<std::string, v1::JobResult> results;
  RejectionCounts rejected = {};  // messages
  StateCounts state = {};
};

// The jobs and workers of the cluster, at one moment.
struct ClusterLists {
  v1::ListJobsResponse jobs;
  v1::ListWorkersResponse workers;
};

// A job and what its workers do; of one that has ended, what they did last.
struct JobView {
  v1::GetJobResponse record;
  std::shared_ptr<const LiveRun> live;  // null: nothing is known, or not yet
};

class CoordinatorServer {
 public:
  // The name that the health service has for the state file: SERVING while it can be written.
  static constexpr char kStatePart[] = "penstock.state";

  // Opens the store, takes back its jobs, listens and serves.
  // REQUIRES: `clock` and `files` outlive the server; `files` lives as long as the process if a disk may hang.
  // Errors: FailedPrecondition (the address is taken, or another coordinator uses the state file),
  // DataLoss (the state file is damaged, and where), Unimplemented (it is of a later version), those of
  // opening a file.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      const CoordinatorServerOptions& options, Clock& clock, Files& files);
  // Shutdown().
  ~CoordinatorServer();
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  // Returns where it listens, with the port that was found.
  HostPort address() const;
  // Returns where the health service answers alone. REQUIRES: options.health.
  HostPort health_address() const;

  // Takes no new jobs and drains those under way: each is cut at its next step boundary, saved if
  // it has a checkpoint directory, and ended. Jobs that wait stay in the store. Returns when
  // nothing is under way any more and all of it is in the store. Errors: DeadlineExceeded after `timeout`; Drain may be called
  // again.
  absl::Status Drain(absl::Duration timeout);

  // Stops serving at once. Runs under way are left to their workers, which notice. Idempotent.
  void Shutdown();

  // Errors: Unavailable (shut down).
  absl::StatusOr<CoordinatorSnapshot> Snapshot();
  // Serves those who look again and again: the lists are made at most once in kListsKeptFor, however many look, and so
  // may be as old. Errors: as above.
  static constexpr absl::Duration kListsKeptFor = absl::Seconds(1);
  absl::StatusOr<std::shared_ptr<const ClusterLists>> Lists();
  // Returns a job with its result so far. Errors: NotFound, DataLoss, Unavailable (shut down).
  absl::StatusOr<v1::GetJobResponse> Job(const std::string& job_id);
  // Returns a job for somebody who looks on: live_runs.h says what that costs. Does not wait for workers.
  absl::StatusOr<JobView> Look(const std::string& job_id);

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
