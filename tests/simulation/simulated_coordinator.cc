#include "tests/simulation/simulated_coordinator.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "services/coordinator/checkpoint_keeper.h"
#include "services/coordinator/worker_caller.h"
#include "services/rpc/limits.h"

namespace penstock {
namespace {

absl::Status StatusOf(const WorkerResponse& response) {
  return std::visit([](const auto& typed) { return typed.status(); }, response);
}

WorkerResponse ErrorOf(const WorkerRequest& request, const absl::Status& error) {
  struct OfType {
    const absl::Status& error;
    WorkerResponse operator()(const v1::PrepareRunRequest&) {
      return absl::StatusOr<v1::PrepareRunResponse>(error);
    }
    WorkerResponse operator()(const v1::PrepareProfileRequest&) {
      return absl::StatusOr<v1::PrepareProfileResponse>(error);
    }
    WorkerResponse operator()(const v1::StartRunRequest&) {
      return absl::StatusOr<v1::StartRunResponse>(error);
    }
    WorkerResponse operator()(const v1::HoldRunRequest&) {
      return absl::StatusOr<v1::HoldRunResponse>(error);
    }
    WorkerResponse operator()(const v1::CutRunRequest&) {
      return absl::StatusOr<v1::CutRunResponse>(error);
    }
    WorkerResponse operator()(const v1::StopRunRequest&) {
      return absl::StatusOr<v1::StopRunResponse>(error);
    }
  };
  return std::visit(OfType{error}, request);
}

}  // namespace

SimulatedCoordinator::SimulatedCoordinator(Parts parts)
    : parts_(std::move(parts)), process_(parts_.time, "coordinator") {}

void SimulatedCoordinator::Start() {
  if (process_.alive()) return;
  process_.Start();
  CoordinatorLimits limits;
  limits.draw = [this] { return parts_.random.Next(); };
  loop_ = std::make_unique<EventLoop>(
      parts_.time, limits,
      std::make_unique<SimulatedStore>(parts_.kept, parts_.trouble, parts_.random,
                                       [this] {
                                         if (death_ != CoordinatorDeath::kAfterWriting) return;
                                         dies_ = true;
                                       }),
      *this, nullptr);
  const absl::Status restored = loop_->Restore();
  parts_.watcher.Say(absl::StrCat("coordinator starts: ", restored.ToString()));
  if (!restored.ok() || dies_) {
    Kill();
    return parts_.watcher.OnCoordinatorDied();
  }
  Post([this](Coordinator& coordinator, Now) { coordinator_ = &coordinator; });
}

void SimulatedCoordinator::Kill() {
  if (!process_.alive()) return;
  process_.Kill();
  disk_.clear();
  loop_.reset();
  coordinator_ = nullptr;
  turn_ns_.reset();
  dies_ = false;
  death_ = CoordinatorDeath::kNone;
}

void SimulatedCoordinator::PlanTurn() {
  const std::optional<int64_t> next_ns = loop_->NextTurnNs();
  if (!next_ns.has_value()) return;
  const int64_t now_ns = parts_.time.MonotonicNs();
  const int64_t at_ns = std::max(*next_ns, now_ns);
  if (turn_ns_.has_value() && *turn_ns_ <= at_ns) return;
  turn_ns_ = at_ns;
  process_.After(absl::Nanoseconds(at_ns - now_ns), [this, at_ns] {
    if (turn_ns_ == at_ns) TakeTurn();
  });
}

void SimulatedCoordinator::TakeTurn() {
  turn_ns_.reset();
  loop_->TakeTurn();
  if (dies_) {
    parts_.watcher.Say("coordinator dies after it has written");
    Kill();
    return parts_.watcher.OnCoordinatorDied();
  }
  parts_.watcher.OnTurn(coordinator_->CheckInvariants());
  PlanTurn();
}

void SimulatedCoordinator::Answer(const std::string& job_id, EffectAnswer answer) {
  Post([job_id, answer = std::move(answer)](Coordinator& coordinator, Now now) {
    coordinator.OnAnswer(job_id, answer, now);
  });
}

// --------------------------------------------------------------------------------------- workers

void SimulatedCoordinator::Perform(const CallWorker& call) {
  if (dies_) return;
  parts_.watcher.OnCall(call);
  Attempt(std::make_shared<const CallWorker>(call), 1);
}

// As WorkerCaller does it (services/coordinator/worker_caller.cc).
void SimulatedCoordinator::Attempt(const std::shared_ptr<const CallWorker>& call, int attempt) {
  SimulatedWorker& worker = parts_.worker(call->worker);
  const bool prepares = std::holds_alternative<v1::PrepareRunRequest>(call->request) ||
                        std::holds_alternative<v1::PrepareProfileRequest>(call->request);
  const absl::Duration timeout = prepares ? kPrepareTimeout : kControlTimeout;
  parts_.network.Call<WorkerResponse>(
      process_, worker.process(), timeout,
      [&worker, call, timeout](const SimulatedNetwork::Reply<WorkerResponse>& reply) {
        worker.Serve(call->request, timeout,
                     [reply](WorkerResponse response) { reply(std::move(response)); });
      },
      [this, call, attempt](const absl::StatusOr<WorkerResponse>& answer) {
        const WorkerResponse response =
            answer.ok() ? *answer : ErrorOf(call->request, answer.status());
        const absl::Status status = StatusOf(response);
        const bool again = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
        if (!again || attempt >= kCallAttemptsMax) {
          return Answer(call->job_id, CallAnswer{call->epoch, call->worker_index, response});
        }
        process_.After(kCallRetryDelay, [this, call, attempt] { Attempt(call, attempt + 1); });
      });
}

// The system of a frozen process connects for it, so only a process that is gone is not there.
void SimulatedCoordinator::Perform(const ProbeWorker& probe) {
  if (dies_) return;
  const Process& worker = parts_.worker(probe.worker).process();
  const bool connects = parts_.network.Connects(process_, worker);
  const absl::Duration wait = connects ? parts_.network.Delay() : rpc_limits::kProbeTimeout;
  process_.After(wait, [this, probe, connects, &worker] {
    absl::Status answer;
    if (!connects) {
      answer = absl::DeadlineExceededError("no answer");
    } else if (!worker.alive()) {
      answer = absl::UnavailableError(absl::StrCat("nobody listens at ", probe.address));
    }
    Post([probe, answer](Coordinator& coordinator, Now now) {
      coordinator.OnProbed(probe, answer, now);
    });
  });
}

// Nobody looks at what simulated workers have measured.
void SimulatedCoordinator::Perform(const GatherTimeline& gather) {
  if (dies_) return;
  process_.After(parts_.network.Delay(),
                 [this, job_id = gather.job_id] { Answer(job_id, TimelineGathered{}); });
}

void SimulatedCoordinator::Perform(const GatherPasses& gather) {
  if (dies_) return;
  process_.After(parts_.network.Delay(), [this, job_id = gather.job_id, epoch = gather.epoch] {
    Answer(job_id, PassesGathered{epoch, {}});
  });
}

void SimulatedCoordinator::Perform(const JudgeCandidates& judge) {
  if (dies_) return;
  process_.After(parts_.network.Delay(), [this, job_id = judge.job_id] {
    Answer(job_id, CandidatesJudged{absl::UnimplementedError("nothing was measured")});
  });
}

void SimulatedCoordinator::OnEventStored(const PublishEvent& event) {
  parts_.watcher.OnStored(event);
}

// ------------------------------------------------------------------------------------------ disk

void SimulatedCoordinator::Perform(const FindCheckpoint& find) {
  if (dies_) return;
  OnDisk([this, find] {
    DirectoryLease lease;
    absl::StatusOr<FoundStart> found = ClaimAndFindStart(
        parts_.files, find, lease, [this](const std::string& path) { return OpenLock(path); });
    parts_.watcher.Say(absl::StrCat(
        find.job_id, find.adopted_tag.empty() ? " starts " : " has its directory again, from ",
        found.ok() ? absl::StrCat("after step ", found->step) : found.status().ToString()));
    Answer(find.job_id, StartFound{std::move(found), std::move(lease), !find.adopted_tag.empty()});
  });
}

void SimulatedCoordinator::Perform(const CommitStaged& commit) {
  if (dies_) return;
  OnDisk([this, commit] {
    parts_.watcher.OnCommit(commit);
    const bool dies = death_ == CoordinatorDeath::kWhileCommitting;
    if (dies) {
      parts_.files.FailFrom(static_cast<int64_t>(parts_.random.Below(12)),
                            absl::InternalError("the process is gone"),
                            /*tears_writes=*/parts_.random.Below(2) == 0);
    }
    const absl::StatusOr<CommittedCheckpoint> committed =
        CommitCheckpoint(parts_.files, commit.options, commit.manifest);
    if (dies) {
      parts_.files.Heal();
      parts_.watcher.Say(absl::StrCat("coordinator dies while it commits step ",
                                      commit.manifest.step, " of ", commit.job_id));
      // Not in the midst of its own task.
      return parts_.time.After(absl::ZeroDuration(), [this, life = process_.life()] {
        if (process_.life() != life || !process_.alive()) return;
        Kill();
        parts_.watcher.OnCoordinatorDied();
      });
    }
    parts_.watcher.OnCommitted(commit, committed);
    Answer(commit.job_id, CheckpointCommitted{commit.manifest.step, committed});
  });
}

void SimulatedCoordinator::Perform(const DiscardStaged& discard) {
  if (dies_) return;
  OnDisk([this, discard] {
    DiscardStaging(parts_.files, discard.root, discard.tag, discard.step).IgnoreError();
  });
}

void SimulatedCoordinator::OnDisk(std::function<void()> task) {
  disk_.push_back(std::move(task));
  if (disk_.size() == 1) RunDiskTask();
}

void SimulatedCoordinator::RunDiskTask() {
  process_.After(absl::Milliseconds(1 + static_cast<int64_t>(parts_.random.Below(100))), [this] {
    disk_.front()();
    disk_.pop_front();
    if (!disk_.empty()) RunDiskTask();
  });
}

absl::StatusOr<Descriptor> SimulatedCoordinator::OpenLock(const std::string& path) {
  auto lock = locks_.find(path);
  if (lock == locks_.end()) {
    lock = locks_.emplace(path, Descriptor(memfd_create("lock", MFD_CLOEXEC))).first;
  }
  // Another opening of the same file.
  Descriptor opened(
      open(absl::StrCat("/proc/self/fd/", lock->second.get()).c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.ok()) return absl::InternalError(absl::StrCat("cannot open the lock of ", path));
  return opened;
}

}  // namespace penstock
