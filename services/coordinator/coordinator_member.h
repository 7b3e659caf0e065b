// CoordinatorMember: one of several coordinators that share their state in etcd. While it leads, a CoordinatorServer
// answers at its address, made for this term alone; else a server that refuses every call and names the leader.
//
//   Election (etcd) ── term ──▶ CoordinatorMember ──▶ EtcdStore::Open, CoordinatorServer   (leads)
//                                                 ──▶ follower_service.h                   (does not)
//
// A term that ends takes everything of it along: the loop, its state machines, calls to workers. So nothing is done on what
// was known before. A leader that cannot read the state gives the leadership up, and tries again later.
//
// Thread safety: all methods may be called from any thread. The servers are made and ended on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/coordinator/cluster_view.h"
#include "services/coordinator/coordinator_server.h"
#include "services/coordinator/election.h"
#include "services/etcd/etcd_calls.h"
#include "services/rpc/server.h"

namespace penstock {

struct CoordinatorMemberOptions {
  // Those of the server of each term. `listen` needs a port; `state_file` and `drop_damaged` count for nothing.
  CoordinatorServerOptions server;
  std::string prefix;     // of the cluster in etcd
  std::string advertise;  // HOST:PORT where users and workers reach this coordinator
  LeadershipLimits leadership;
};

class CoordinatorMember final : public ClusterView {
 public:
  // Listens and takes part. REQUIRES: `etcd`, `clock` and `files` outlive it.
  // Errors: FailedPrecondition (the address is taken). etcd need not answer yet.
  static absl::StatusOr<std::unique_ptr<CoordinatorMember>> Start(CoordinatorMemberOptions options,
                                                                  EtcdCalls& etcd, Clock& clock,
                                                                  Files& files);
  // Shutdown().
  ~CoordinatorMember() override;
  CoordinatorMember(const CoordinatorMember&) = delete;
  CoordinatorMember& operator=(const CoordinatorMember&) = delete;

  // Returns whether it leads and serves.
  bool leads() ABSL_LOCKS_EXCLUDED(mutex_);

  // As CoordinatorServer has it; of one that does not lead there is nothing to drain.
  absl::Status Drain(absl::Duration timeout);
  // Stops serving at once, and gives the leadership up. Idempotent.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of one that does not lead: Unavailable with the leader's address.
  absl::StatusOr<CoordinatorSnapshot> Snapshot() override;
  absl::StatusOr<std::shared_ptr<const ClusterLists>> Lists() override;
  absl::StatusOr<v1::GetJobResponse> Job(const std::string& job_id) override;
  absl::StatusOr<JobView> Look(const std::string& job_id) override;

 private:
  // How often it looks whether its term is over.
  static constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
  // Between attempts to listen, after the port was not free at once.
  static constexpr absl::Duration kListenInterval = absl::Milliseconds(200);

  // How long a job waits for a checkpoint directory that the leader before still holds: longer than a file server keeps
  // the locks of a machine that is gone, which is some 90 s with NFS 4.
  static constexpr absl::Duration kHeldPatience = absl::Minutes(2);

  CoordinatorMember(CoordinatorMemberOptions options, EtcdCalls& etcd, Clock& clock, Files& files);

  void Run();
  absl::Status Follow();
  absl::Status Lead(int64_t term);
  // Ends the server, when nobody uses it any more.
  void EndServing() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Refusal();
  bool stopping() ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls `ask` with the server of this term, or refuses. The server lives until `ask` returns.
  template <typename R>
  absl::StatusOr<R> Ask(const std::function<absl::StatusOr<R>(CoordinatorServer&)>& ask)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Log(const std::string& line) const;

  const CoordinatorMemberOptions options_;
  EtcdCalls& etcd_;
  Clock& clock_;
  Files& files_;
  std::unique_ptr<RpcServer> follower_;  // the thread's; before it, the creator's

  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<CoordinatorServer> leader_ ABSL_GUARDED_BY(mutex_);  // null: it does not lead
  int users_ ABSL_GUARDED_BY(mutex_) = 0;                              // calls that use it
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;                        // no more calls may use it
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::unique_ptr<Election> election_;
  std::thread thread_;
};

}  // namespace penstock
