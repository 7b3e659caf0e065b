// CoordinatorServer: a whole coordinator in one object, for penstock-coordinator and for the
// cluster that `penstock train` keeps in its own process.
//
//   handlers (lanes) ────── ask ──▶ EventLoop: Coordinator (pure), StateStore
//                                       │ effects
//         WorkerCaller, WorkerProber ◀──┼──▶ CheckpointKeeper, TimelineGatherer
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
#include "coordinator/coordinator.h"
#include "data/digest_store.h"
#include "services/coordinator/cluster_view.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/mandate.h"
#include "services/coordinator/state_store.h"
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
  // The files that users put, which outlive the server; null: it keeps none.
  DigestStore* data = nullptr;
  // What workers without a checkpoint disk read and write (checkpoint_parts.h), which outlives the server; null: nothing.
  Files* checkpoint_files = nullptr;
  // How locks in checkpoint directories are opened (directory_lock.h): with the confinement of the files, if they have one.
  LockFileOpener open_lock = OpenLockFile;
  // How long a job waits for a checkpoint directory that another process holds (checkpoint_keeper.h).
  absl::Duration held_patience = absl::ZeroDuration();
  // Takes what an operator may want to read, a line each; from any thread. Null: nowhere.
  std::function<void(const std::string&)> log;
  // Takes the spans of all jobs, on a thread of the server's; must not wait. Null: none are made.
  std::function<void(std::vector<TraceSpan>)> spans;
};

class CoordinatorServer final : public ClusterView {
 public:
  // The name that the health service has for the state file: SERVING while it can be written.
  static constexpr char kStatePart[] = "penstock.state";
  // The name that it has for the process: SERVING as long as it takes part in its cluster, whether or not it leads.
  static constexpr char kMemberPart[] = "penstock.member";

  // Opens the store, takes back its jobs, listens and serves.
  // REQUIRES: `clock` and `files` outlive the server; `files` lives as long as the process if a disk may hang.
  // Errors: FailedPrecondition (the address is taken, or another coordinator uses the state file),
  // DataLoss (the state file is damaged, and where), Unimplemented (it is of a later version), those of
  // opening a file.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      const CoordinatorServerOptions& options, Clock& clock, Files& files);
  // Does the same for a state that is open: one that several coordinators share. `mandate`: the right to act for the
  // cluster (event_loop.h); null if no other coordinator could lead. `state_file` and `drop_damaged` of `options` count for
  // nothing. Errors also: Aborted (another may lead by now).
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> StartOn(
      std::unique_ptr<StateStore> store, std::unique_ptr<Mandate> mandate,
      const CoordinatorServerOptions& options, Clock& clock, Files& files);
  // Shutdown().
  ~CoordinatorServer() override;
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

  absl::StatusOr<CoordinatorSnapshot> Snapshot() override;
  absl::StatusOr<std::shared_ptr<const ClusterLists>> Lists() override;
  absl::StatusOr<v1::GetJobResponse> Job(const std::string& job_id) override;
  absl::StatusOr<JobView> Look(const std::string& job_id) override;

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
