// SimulatedCoordinator: the process of a coordinator in a simulated world: the real EventLoop with its Coordinator, driven turn
// by turn, and the real work on checkpoint directories. Only threads, gRPC and the store are stood in for.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/file_tree.h"
#include "base/random.h"
#include "services/coordinator/event_loop.h"
#include "tests/simulation/process.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_store.h"
#include "tests/simulation/simulated_worker.h"
#include "tests/support/memory_files.h"

namespace penstock {

// Hears what the coordinator does, and judges it.
class CoordinatorWatcher {
 public:
  virtual ~CoordinatorWatcher() = default;
  virtual void OnTurn(const absl::Status& invariants) = 0;
  virtual void OnCall(const CallWorker& call) = 0;
  // A checkpoint is about to be committed, and was.
  virtual void OnCommit(const CommitStaged& commit) = 0;
  virtual void OnCommitted(const CommitStaged& commit,
                           const absl::StatusOr<CommittedCheckpoint>& committed) = 0;
  virtual void OnStored(const PublishEvent& event) = 0;
  // The process has ended in the midst of what it did, and has to be started again.
  virtual void OnCoordinatorDied() = 0;
  virtual void Say(const std::string& line) = 0;
};

// Where the coordinator dies by itself.
enum class CoordinatorDeath { kNone, kAfterWriting, kWhileCommitting };

class SimulatedCoordinator final : public EffectPerformer {
 public:
  struct Parts {
    VirtualTime& time;
    RandomStream& random;
    SimulatedNetwork& network;
    MemoryFiles& files;
    KeptState& kept;
    const StoreTrouble& trouble;
    CoordinatorWatcher& watcher;
    std::function<SimulatedWorker&(const std::string& name)> worker;
  };

  explicit SimulatedCoordinator(Parts parts);

  Process& process() { return process_; }
  void Start();
  void Kill();
  void DieAt(CoordinatorDeath death) { death_ = death; }

  // A question of a caller, on the loop. REQUIRES, of all three: it is alive.
  template <typename R>
  void Ask(std::function<absl::StatusOr<R>(Coordinator&, StateStore&, Now)> question,
           SimulatedNetwork::Reply<R> reply) {
    loop_->AskThen<R>(std::move(question),
                      [this, reply = std::move(reply)](absl::StatusOr<R> answer) {
                        if (!dies_) reply(std::move(answer));
                      });
    PlanTurn();
  }
  void Post(EventLoop::Event event) {
    loop_->Post(std::move(event));
    PlanTurn();
  }
  EventLoop& loop() { return *loop_; }
  // What it knows right now. REQUIRES: it has taken a turn.
  const Coordinator& coordinator() const { return *coordinator_; }

  // ---- EffectPerformer.
  void Perform(const CallWorker& call) override;
  void Perform(const ProbeWorker& probe) override;
  void Perform(const FindCheckpoint& find) override;
  void Perform(const CommitStaged& commit) override;
  void Perform(const DiscardStaged& discard) override;
  void Perform(const GatherTimeline& gather) override;
  void Perform(const JudgeCandidates& judge) override;
  void Perform(const GatherPasses& gather) override;
  void OnEventStored(const PublishEvent& event) override;
  void OnStoreWritable(bool) override {}

 private:
  void PlanTurn();
  void TakeTurn();
  void Attempt(const std::shared_ptr<const CallWorker>& call, int attempt);
  void Answer(const std::string& job_id, EffectAnswer answer);
  // Does it on the thread of the disk: one after the other, each after a while.
  void OnDisk(std::function<void()> task);
  void RunDiskTask();
  absl::StatusOr<Descriptor> OpenLock(const std::string& path);

  const Parts parts_;
  Process process_;
  std::unique_ptr<EventLoop> loop_;
  Coordinator* coordinator_ = nullptr;
  std::optional<int64_t> turn_ns_;  // of the turn that is planned
  CoordinatorDeath death_ = CoordinatorDeath::kNone;
  bool dies_ = false;  // at the end of this turn, before it does or answers anything
  std::deque<std::function<void()>> disk_;
  std::map<std::string, Descriptor> locks_;  // by path; they outlive the process
};

}  // namespace penstock
