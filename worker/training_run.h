// TrainingRun: the parts of a run put together, and the walk from cut to cut.
//
// Members stand in the order they are made; each may refer to those above it.
//
// Thread safety: as worker/run.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "job/early_stop.h"
#include "planner/cost/run_memory.h"
#include "worker/checkpoint_writer.h"
#include "worker/collectives.h"
#include "worker/counter.h"
#include "worker/data_source.h"
#include "worker/device_spans.h"
#include "worker/doorbell.h"
#include "worker/emulated_links.h"
#include "worker/emulation.h"
#include "worker/executor.h"
#include "worker/hold_gate.h"
#include "worker/local_stage.h"
#include "worker/run.h"
#include "worker/run_plan.h"
#include "worker/snapshot_keeper.h"
#include "worker/stage_edges.h"
#include "worker/state_file.h"
#include "worker/timeline_recorder.h"

namespace penstock {

class TrainingRun : public Run {
 public:
  TrainingRun(v1::PrepareRunRequest request, RunPlan plan, RunEnvironment environment);

  // The steps of Run::Prepare, in this order; each may fail.
  absl::Status CheckRoomForLayers();
  absl::Status OpenData();
  absl::Status MakeStages();
  absl::Status LoadStart();
  absl::Status OpenEdges();
  absl::Status MakeExecutor();

  absl::Status Execute() override;
  absl::StatusOr<int64_t> Hold() override { return gate_.Hold(); }
  absl::Status CutAt(int64_t step) override;
  void Stop(const std::string& reason) override;

  std::string schedule_digest() const override { return plan_.digest; }
  int64_t memory_bytes() const override { return memory_bytes_; }
  int64_t actions_done() const override { return executor_->actions_done(); }
  int64_t pulse() const override { return executor_->pulse(); }
  int64_t unsteady_pulse() const override { return executor_->unsteady_pulse(); }
  std::vector<v1::StageReport> Reports() const override;
  Timeline RecentTimeline() const override;

 private:
  absl::StatusOr<int64_t> TrainToTheEnd();
  // Runs the range before `cut` and what the cut asks for. Returns the step it ended after, which is
  // earlier than the cut's if the run was cut short.
  absl::StatusOr<int64_t> TrainToCut(int64_t from_step, const Cut& cut);
  absl::Status Validate(int64_t step);
  absl::Status LoadLayersAndState();
  absl::Status LoadFirstWeights(LocalStage& local);
  absl::Status LoadSnapshot();
  // From the files in `directory`, whose manifest is given. Where weights and state live in the worker's own file, they go
  // there one after the other.
  absl::Status LoadCheckpoint(FileReader& files, const std::string& directory,
                              const Manifest& manifest);
  absl::Status LoadLayersOf(LocalStage& local, FileReader& files, const std::string& directory,
                            const Manifest& manifest);
  // Tells that what messages had left out at a layer has no place in this run.
  void NoticeDropped(const LocalStage& local, int layer) const;
  absl::StatusOr<std::vector<LayerSnapshot>> CopyStages();
  absl::Status SaveCheckpoint(int64_t step);
  // The same from the file, layer by layer, while training waits.
  absl::StatusOr<std::vector<SavedLayer>> SaveFromFile(const std::string& staging);
  absl::StatusOr<LayerSnapshot> CopyFromFile(LocalStage& local, int layer);
  // Gives the model's first layer the files that belong to no layer.
  void Attach(LayerSnapshot& layer) const;
  absl::Status WaitForCheckpoint();
  absl::Status KeepSnapshot(int64_t step);
  // REQUIRES: it was made, and is on this worker.
  const LocalStage& LocalOf(StageId stage) const {
    return *std::find_if(stages_.begin(), stages_.end(),
                         [stage](const LocalStage& local) { return local.id == stage; });
  }
  bool SharesEarlierStage(const LocalStage& local) const {
    return plan_.topology()[local.id].holder != local.id;
  }
  // Tells if layers of a stage have seen other numbers of updates than its first.
  void NoticeOtherUpdates(const Manifest& manifest, const LocalStage& local) const;
  // Checks that the messages of replicas to each other are not too long.
  absl::Status CheckReplicaChunk(const LocalStage& local) const;
  absl::Status OpenStageEdges();
  // The most that a message from or to the stage has. Errors: InvalidArgument (too many).
  absl::StatusOr<int64_t> MessageBytes(const Edge& edge, const LocalStage& local) const;
  int64_t ActivationBytesSent(StageId stage) const;
  // For the stages that offload, which are made. Errors: those of SpillFile; FailedPrecondition (no directory for it).
  absl::Status MakeOffloadStore();
  // For those whose weights and state are not in memory; then what is idle does not stay in memory, either. Errors: those of StateFile; FailedPrecondition (no directory for
  // it, or a device with memory of its own).
  absl::Status MakeStateFile();
  // For messages that the job compresses. Errors: ResourceExhausted; FailedPrecondition (a device with memory of its own).
  absl::Status MakeCoders();
  absl::Status CheckComputesInHostMemory(absl::string_view key, absl::string_view value,
                                         absl::string_view instead) const;
  // Where weights and state live in a file: whether blocks that wait for reuse stay in memory, up to what was predicted.
  // Layers on their way to or from a checkpoint take memory beside the pool's.
  void KeepIdleBlocks(bool keep);
  // Counts the stage's nodes that compute by slow kernels, and says why the first does.
  void TellFallbacks(LocalStage& local) const;
  absl::Status MakeEmulation();
  absl::Status EmulateLinks();
  // Where data and first weights are read.
  Files& data_files() const {
    return environment_.data_files == nullptr ? environment_.files : *environment_.data_files;
  }
  // Where checkpoints are written and read.
  FileStore& checkpoints() const {
    return remote_checkpoints_ == nullptr ? environment_.files : *remote_checkpoints_;
  }
  std::unique_ptr<FileStore> OpenRemoteCheckpoints();
  // Whatever edges are opened over.
  Transport& transport() { return links_ == nullptr ? environment_.transport : *links_; }
  // Whether the device has memory apart from the host's.
  bool HasOwnMemory() const {
    return &environment_.backend.pool() != &environment_.backend.host_pool();
  }
  // What this worker will need if passes leave `needs`, by node of the model.
  absl::StatusOr<WorkerMemory> PredictWith(absl::Span<const TapeNeeds> needs) const;
  // The most memory that training will need. REQUIRES: the stages are made.
  absl::StatusOr<int64_t> PredictMemory() const;
  // Whether the device has that many bytes. `what`: what they are for, after a comma.
  absl::Status CheckRoom(int64_t needed, absl::string_view what) const;
  // Returns whether this worker has the losses of a validation.
  bool HasLossOfEvaluation() const;
  bool SavesDrains() const { return !request_.spec().checkpoint().directory().empty(); }

  // Hands an event out, unless the last one was.
  void Emit(v1::RunEvent event) ABSL_LOCKS_EXCLUDED(events_mutex_);
  void ReportStep(const StepResult& result);
  void ReportCut(int64_t step);
  void ReportSave(int64_t step, const absl::StatusOr<std::vector<SavedLayer>>& layers);
  void ReportSnapshot(int64_t step, const absl::StatusOr<SnapshotKeeper::Kept>& kept);
  void ReportEnd(const absl::StatusOr<int64_t>& step);
  // Of a layer of the job's order, by which checkpoints and digests name it.
  int NumberOf(int layer) const { return plan_.job.model.layers[layer].number; }
  absl::StatusOr<std::vector<v1::LayerDigest>> LayerDigests();
  void FillReports(google::protobuf::RepeatedPtrField<v1::StageReport>& stages) const;

  const v1::PrepareRunRequest request_;
  const RunPlan plan_;
  const RunEnvironment environment_;
  Doorbell bell_;  // of the executor in recorded order
  HoldGate gate_;
  TimelineRecorder recorder_;
  std::unique_ptr<DeviceSpans>
      device_spans_;  // null where the host's clock tells the device's time
  std::unique_ptr<DeviceEmulation> emulation_;  // null: none
  std::unique_ptr<EmulatedLinks> links_;        // null: none
  std::unique_ptr<DataSource> data_;
  std::unique_ptr<OffloadStore> offload_store_;  // null: no stage here offloads
  std::vector<LocalStage> stages_;
  std::unique_ptr<StateFile> state_file_;  // null: weights and state are in memory
  StageEdges edges_;
  std::unique_ptr<Collectives> collectives_;
  std::unique_ptr<Executor> executor_;
  // Held while an event is handed out, so that none overtakes another.
  Mutex events_mutex_;
  bool events_ended_ ABSL_GUARDED_BY(events_mutex_) = false;
  const std::unique_ptr<FileStore> remote_checkpoints_;  // null: they are in environment_.files
  CheckpointWriter writer_;
  Counter checkpoint_wait_ns_;
  int64_t device_memory_bytes_ = 0;     // that was free before
  int64_t memory_bytes_ = 0;            // in use once the stages are made
  int64_t predicted_memory_bytes_ = 0;  // at most, while training
  int64_t saved_step_ = -1;             // of the last checkpoint begun in this run
  EarlyStop early_stop_;
  std::vector<v1::LayerDigest> final_digests_;  // of a run that went to its end
  std::atomic<bool> stopped_ = false;
  absl::Status snapshot_trouble_;              // of the last snapshot; the keeper's thread uses it
  std::unique_ptr<SnapshotKeeper> snapshots_;  // null: none are kept
};

}  // namespace penstock
