// SimulatedRun: the stand-in for a worker's executor. It trains in virtual time what has no numbers but a few weights a layer,
// and does at cuts what TrainingRun does (worker/training_run.h), with the real hold gate (worker/hold_gate.h) and the real
// code that reads and writes checkpoints.
//
// Weights change by a rule that depends on the layer and the step, so what a job comes to after any number of recoveries is
// known (WeightsAfter), bit for bit.
//
// The runs of one attempt share a Pipeline: no worker ends a step before all have begun it, and each hears when another fails.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "job/resolve.h"
#include "job/snapshot_rule.h"
#include "penstock/v1/cluster.pb.h"
#include "tests/simulation/process.h"
#include "tests/simulation/simulated_network.h"
#include "worker/hold_gate.h"
#include "worker/run.h"
#include "worker/save_layers.h"
#include "worker/snapshot_peers.h"

namespace penstock {

class SimulatedRun;

// The edges between the workers of one attempt.
class Pipeline {
 public:
  explicit Pipeline(int workers) : runs_(workers), begun_(workers), done_(workers) {}

  void Join(int worker, SimulatedRun& run) { runs_[worker] = &run; }
  // The worker's run is gone, in good order or not.
  void Leave(int worker) { runs_[worker] = nullptr; }
  // The worker has begun `step`. Those that can go on do.
  void Begin(int worker, int64_t step);
  // The worker has ended in good order.
  void SetDone(int worker) { done_[worker] = true; }
  bool IsDone(int worker) const { return done_[worker]; }
  // All others hear that the worker's run has failed.
  void Fail(int worker);
  int size() const { return static_cast<int>(runs_.size()); }

 private:
  std::vector<SimulatedRun*> runs_;  // by worker; null: gone, or not there yet
  std::vector<int64_t> begun_;
  std::vector<bool> done_;
};

// A worker of the attempt, in the life that takes part.
struct Peer {
  const Process* process = nullptr;
  int64_t life = 0;

  bool IsGone() const { return !process->alive() || process->life() != life; }
};

// What a run gets from its world. REQUIRES: all of it outlives the run.
struct SimulatedRunParts {
  Process& process;
  SimulatedNetwork& network;
  VirtualTime& time;
  RandomStream& random;
  Files& files;
  std::shared_ptr<const ResolvedJob> job;
  std::shared_ptr<Pipeline> pipeline;
  std::vector<Peer> peers;  // by worker; itself among them
  std::function<void(v1::RunEvent)> events;
  // The run has ended, and can be destroyed from the next event on.
  std::function<void()> ended;
  // A save is about to be written. Returns false if the process dies over it, which has happened then.
  std::function<bool(const std::function<void()>& write)> save;
  absl::Duration step_time;
  SnapshotPeers* snapshots = nullptr;
};

class SimulatedRun final : public Run {
 public:
  // REQUIRES: the request was checked (services/worker/run_peers.h).
  SimulatedRun(v1::PrepareRunRequest request, SimulatedRunParts parts);
  ~SimulatedRun() override;

  // Loads the weights: fresh ones, or those of the checkpoint. Errors: as Run::Prepare.
  absl::Status Load();
  // Trains, in virtual time, until `ended` is called.
  void Begin();

  absl::Status Execute() override { return absl::UnimplementedError("takes no thread"); }
  absl::StatusOr<int64_t> Hold() override;
  absl::Status CutAt(int64_t step) override;
  void Stop(const std::string& reason) override;
  std::string schedule_digest() const override { return request_.plan().schedule_digest(); }
  int64_t memory_bytes() const override { return 1000; }
  int64_t actions_done() const override { return begun_step_; }
  int64_t pulse() const override;
  std::vector<v1::StageReport> Reports() const override;
  Timeline RecentTimeline() const override { return {}; }

  // How it ended. REQUIRES: it has.
  const absl::Status& outcome() const { return outcome_; }
  int64_t step() const { return step_; }

  // It was stopped, so its edges are closed: the others hear of that.
  void TellPeers() { parts_.pipeline->Fail(request_.worker_index()); }

  // For the pipeline.
  void EndStepLater();
  void OnPeerFailed(int worker, const std::string& how);

 private:
  // A stage's layer, with its place in the job's order.
  struct Layer {
    int place = 0;
    LayerState state;
  };

  // What comes after a step, or at the start.
  void GoOn();
  // What follows a range: `has_trained` in it; `saves`: a checkpoint is due.
  void EndRange(bool has_trained, bool saves);
  void SaveThen(std::function<void()> next);
  // Writes the layers as they were, as far as `may_go_on` lets it.
  absl::StatusOr<std::vector<SavedLayer>> Write(int64_t step,
                                                const std::vector<LayerSnapshot>& layers,
                                                absl::FunctionRef<absl::Status()> may_go_on);
  absl::Status LoadFrom(FileReader& files, const std::string& directory, const Manifest& manifest);
  std::vector<LayerSnapshot> CopyLayers() const;
  // Keeps the layers as they are in memory, here and at the peer, a little later.
  void KeepSnapshot();
  void ReportSave(int64_t step, const absl::StatusOr<std::vector<SavedLayer>>& saved);
  void Finish(const absl::Status& status, const std::string& peer);
  void LookAtPeers();
  void Emit(v1::RunEvent event);
  // Runs `what` later, unless the run is gone by then.
  void Later(absl::Duration wait, std::function<void()> what);

  const v1::PrepareRunRequest request_;
  const SimulatedRunParts parts_;
  HoldGate gate_;
  std::vector<Cut> cuts_;
  std::vector<Layer> layers_;
  std::shared_ptr<bool> token_ = std::make_shared<bool>();
  SnapshotRule snapshot_rule_;
  int64_t kept_step_ = -1;  // of the last snapshot
  size_t next_cut_ = 0;
  int64_t step_ = 0;
  int64_t range_first_ = 0;
  int64_t begun_step_ = 0;
  int64_t saved_step_ = -1;
  std::optional<int64_t> held_step_;
  bool executing_ = false;
  bool waits_for_cut_ = false;
  bool is_over_ = false;
  struct Saving {
    int64_t step = 0;
    std::vector<LayerSnapshot> layers;
  };
  std::optional<Saving> saving_;
  std::function<void()> after_save_;
  std::map<int, int64_t> silent_since_ns_;  // peers, by worker
  absl::Status outcome_;
};

// The weights of the layer after `step` steps.
std::vector<NamedArray> WeightsAfter(int32_t layer, int64_t step);
// The digest that a job of these steps has at its end.
std::string DigestAfter(const ResolvedJob& job, int64_t step);

}  // namespace penstock
