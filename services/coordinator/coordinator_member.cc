#include "services/coordinator/coordinator_member.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/leader_note.h"
#include "base/status.h"
#include "services/coordinator/etcd_store.h"
#include "services/coordinator/follower_service.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<CoordinatorMember>> CoordinatorMember::Start(
    CoordinatorMemberOptions options, EtcdCalls& etcd, Clock& clock, Files& files) {
  PENSTOCK_RETURN_IF_ERROR(CheckCanListen(options.server.listen));
  std::unique_ptr<CoordinatorMember> member(
      new CoordinatorMember(std::move(options), etcd, clock, files));
  CoordinatorMember& started = *member;
  started.election_ =
      std::make_unique<Election>(ElectionParts{.etcd = etcd,
                                               .clock = clock,
                                               .prefix = started.options_.prefix,
                                               .address = started.options_.advertise,
                                               .limits = started.options_.leadership,
                                               .log = started.options_.server.log});
  PENSTOCK_RETURN_IF_ERROR(started.Follow());  // its refusals ask the election
  started.thread_ = std::thread([&started] { started.Run(); });
  return member;
}

CoordinatorMember::CoordinatorMember(CoordinatorMemberOptions options, EtcdCalls& etcd,
                                     Clock& clock, Files& files)
    : options_(std::move(options)), etcd_(etcd), clock_(clock), files_(files) {}

CoordinatorMember::~CoordinatorMember() { Shutdown(); }

void CoordinatorMember::Log(const std::string& line) const {
  if (options_.server.log != nullptr) options_.server.log(line);
}

bool CoordinatorMember::leads() {
  MutexLock lock(mutex_);
  return leader_ != nullptr && !ending_;
}

bool CoordinatorMember::stopping() {
  MutexLock lock(mutex_);
  return stopping_;
}

void CoordinatorMember::Shutdown() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  if (election_ != nullptr) election_->Stop();
  if (follower_ != nullptr) follower_->Shutdown();
}

// ---------------------------------------------------------------------------------- the two roles

void CoordinatorMember::Run() {
  NameThread("member");
  std::optional<int64_t> term;  // that it serves in
  while (!stopping()) {
    const Election::View view = election_->AwaitChange(term, kLookInterval);
    if (view.term == term) {
      // The port was not free, perhaps.
      if (!term.has_value() && follower_ == nullptr && !Follow().ok())
        absl::SleepFor(kListenInterval);
      continue;
    }
    if (term.has_value()) {
      EndServing();
      term.reset();
      Follow().IgnoreError();  // tried again above
      continue;
    }
    const absl::Status led = Lead(*view.term);
    if (led.ok()) {
      term = view.term;
      continue;
    }
    Log(absl::StrCat("cannot lead the cluster, and leaves it to others: ", led.message()));
    election_->Retire(*view.term, std::string(led.message()));
  }
  EndServing();
}

absl::Status CoordinatorMember::Follow() {
  auto server =
      std::make_unique<RpcServer>(RpcServerOptions{.listen = options_.server.listen,
                                                   .reflection = options_.server.reflection,
                                                   .security = options_.server.security,
                                                   .health = options_.server.health});
  AddFollowerServices(*server, [this] { return Refusal(); });
  PENSTOCK_RETURN_IF_ERROR(server->Start());
  // As a whole it does not serve, so that probes of readiness lead to the leader.
  server->SetPartServing(CoordinatorServer::kMemberPart, true);
  follower_ = std::move(server);
  return absl::OkStatus();
}

absl::Status CoordinatorMember::Lead(int64_t term) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<EtcdStore> store,
                            EtcdStore::Open(etcd_, options_.prefix, term));
  if (follower_ != nullptr) follower_->Shutdown();
  follower_.reset();
  CoordinatorServerOptions server = options_.server;
  server.limits.run.epochs_from = FirstEpochOf(term);
  server.held_patience = kHeldPatience;
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> started,
                            CoordinatorServer::StartOn(std::move(store), election_->MandateOf(term),
                                                       server, clock_, files_));
  MutexLock lock(mutex_);
  leader_ = std::move(started);
  return absl::OkStatus();
}

void CoordinatorMember::EndServing() {
  std::unique_ptr<CoordinatorServer> ended;
  {
    MutexLock lock(mutex_);
    if (leader_ == nullptr) return;
    ending_ = true;
    // The loop has ended or is about to, so those who asked it come back.
    while (users_ > 0) changed_.Wait(mutex_);
    ended = std::move(leader_);
    ending_ = false;
  }
  ended->Shutdown();
}

absl::Status CoordinatorMember::Refusal() {
  const Election::View view = election_->Look();
  // It leads already and is reading the state, or has just ended.
  return NotLeading(view.term.has_value() ? options_.advertise : view.leader);
}

// -------------------------------------------------------------------------------------- the server

template <typename R>
absl::StatusOr<R> CoordinatorMember::Ask(
    const std::function<absl::StatusOr<R>(CoordinatorServer&)>& ask) {
  CoordinatorServer* server = nullptr;
  {
    MutexLock lock(mutex_);
    if (leader_ != nullptr && !ending_) {
      server = leader_.get();
      ++users_;
    }
  }
  if (server == nullptr) return Refusal();
  absl::StatusOr<R> answer = ask(*server);
  MutexLock lock(mutex_);
  --users_;
  changed_.NotifyAll();
  return answer;
}

absl::StatusOr<CoordinatorSnapshot> CoordinatorMember::Snapshot() {
  return Ask<CoordinatorSnapshot>([](CoordinatorServer& server) { return server.Snapshot(); });
}

absl::StatusOr<std::shared_ptr<const ClusterLists>> CoordinatorMember::Lists() {
  return Ask<std::shared_ptr<const ClusterLists>>(
      [](CoordinatorServer& server) { return server.Lists(); });
}

absl::StatusOr<v1::GetJobResponse> CoordinatorMember::Job(const std::string& job_id) {
  return Ask<v1::GetJobResponse>(
      [&job_id](CoordinatorServer& server) { return server.Job(job_id); });
}

absl::StatusOr<JobView> CoordinatorMember::Look(const std::string& job_id) {
  return Ask<JobView>([&job_id](CoordinatorServer& server) { return server.Look(job_id); });
}

absl::Status CoordinatorMember::Drain(absl::Duration timeout) {
  const absl::StatusOr<bool> drained = Ask<bool>([timeout](CoordinatorServer& server) {
    const absl::Status status = server.Drain(timeout);
    return status.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(status);
  });
  // One that leads no longer has nothing under way.
  if (!drained.ok() && !LeaderOf(drained.status()).has_value() && leads()) return drained.status();
  return absl::OkStatus();
}

}  // namespace penstock
