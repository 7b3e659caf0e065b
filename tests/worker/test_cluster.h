// TestCluster: the workers of a job as threads of the test, joined by a memory transport unless a test has another, with the
// test in the place of the coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "checkpoint/manifest.h"
#include "model/graph.h"
#include "tests/support/memory_files.h"
#include "tests/worker/memory_transport.h"
#include "worker/reference.h"
#include "worker/run.h"

namespace penstock {

struct ClusterOptions {
  v1::JobSpec spec;
  std::vector<LayerRange> layers;  // by stage of a pipeline, placed as the method wants them
  int64_t first_step = 0;
  std::string checkpoint;
  std::vector<int64_t> extra_cuts;
  uint64_t delay_seed = 0;  // of SlowTransport; 0: no delays
  int64_t delay_us_max = 400;
  // Small rings, because a test makes hundreds of runs.
  RunLimits limits = {.timeline_spans_max = 1 << 12, .duration_samples_max = 1 << 6};
  // Called for every event, on the worker's thread; may be empty.
  std::function<void(int worker, const v1::RunEvent&)> on_event;
  // As RunEnvironment's, called on the worker's thread; may be empty.
  std::function<void(int worker, const std::string&)> on_notice;
  // May change a worker's request before it is used.
  std::function<void(v1::PrepareRunRequest&)> edit_request;
  // Of each worker, called on its thread; empty: the CPU's.
  std::function<std::unique_ptr<Backend>()> make_backend;
  // Likewise; empty: of a network in memory.
  std::function<std::unique_ptr<Transport>(int worker)> make_transport;
  std::optional<EmulatedDevice> emulated_device;  // of each worker
  int64_t device_memory_bytes = 0;                // likewise; 0: what it has
  std::string offload_directory = "/tmp";         // of each worker
  // Where a worker keeps snapshots; empty: nowhere.
  std::function<SnapshotPeers*(int worker)> snapshots;
};

class TestCluster {
 public:
  // Prepares all workers, each on its own thread; Start lets them train. REQUIRES: `files` outlives it.
  TestCluster(ClusterOptions options, Files& files);
  ~TestCluster();

  // The worst result of preparing: OK if all are prepared.
  absl::Status prepared() const;
  void Start();
  // Waits for all workers; returns what each ended with.
  std::vector<absl::Status> Join();

  // Both halves of a drain. Returns the step it was cut after.
  absl::StatusOr<int64_t> Drain();

  // Until Join.
  Run& run(int worker) { return *workers_[worker]->run; }
  int size() const { return static_cast<int>(workers_.size()); }
  MemoryNetwork& network() { return network_; }

  // After Join.
  const std::vector<v1::RunEvent>& events(int worker) const { return workers_[worker]->events; }
  std::vector<StepResult> Steps() const;
  std::vector<ReferenceResult::Validation> Validations() const;
  std::string WeightsSha256() const;
  int64_t LastStep() const;
  // What the workers of a job in recorded order logged; without ranges for others.
  RecordedOrder Order() const;
  // The reports of RunDone, by stage.
  std::vector<v1::StageReport> Reports() const;
  // What all workers did, as far as their rings hold it.
  Timeline MeasuredTimeline() const;

  // What the coordinator does with LayersSaved of all workers. Returns the directory.
  absl::StatusOr<std::string> CommitCheckpoint(int64_t step);
  // The manifest of a checkpoint of `step`. `saved_by`: what an event tells of it, or null.
  Manifest ManifestOf(int64_t step,
                      const std::function<const v1::LayersSaved*(const v1::RunEvent&)>& saved_by);

 private:
  struct Worker {
    std::unique_ptr<Run> run;
    absl::Status prepared;
    absl::Status result;
    std::vector<v1::RunEvent> events;  // guarded by the cluster's mutex until Join
    Timeline timeline;                 // set when the run has ended
    std::thread thread;
  };

  void Main(int worker);
  std::unique_ptr<Transport> MakeTransport(int worker);

  const Worker& loss_worker() const { return *workers_[worker_of_stage_.back()]; }

  const ClusterOptions options_;
  Files& files_;
  const std::vector<int> worker_of_stage_;
  MemoryNetwork network_;
  std::vector<std::unique_ptr<Worker>> workers_;

  Mutex mutex_;
  CondVar changed_;
  int prepared_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int ended_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool joining_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

// Files that hold the test text.
void AddTestText(MemoryFiles& files);

// Trains the options' job with a cluster; fails the test on errors.
struct Trained {
  std::vector<StepResult> steps;
  std::vector<ReferenceResult::Validation> validations;
  std::string weights_sha256;
  std::vector<v1::StageReport> reports;
  RecordedOrder order = {};
  Timeline timeline = {};                               // of a cluster
  std::vector<ReferenceResult::StageReads> reads = {};  // of a serial run
};
absl::StatusOr<Trained> TrainCluster(const ClusterOptions& options, Files& files);
// The same with the serial reference. `recorded`: of a job in recorded order.
absl::StatusOr<Trained> TrainSerially(const v1::JobSpec& spec, std::vector<LayerRange> layers,
                                      const std::vector<int64_t>& extra_cuts, Files& files,
                                      std::optional<RecordedOrder> recorded = std::nullopt);

// Bit for bit: every step's loss, rate and norm, every validation, all weights.
void ExpectSameTraining(const Trained& actual, const Trained& expected);

}  // namespace penstock
