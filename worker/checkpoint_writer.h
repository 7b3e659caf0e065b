// CheckpointWriter: checks a snapshot of layers and writes it to disk while training goes on.
//
// At most one save is in flight: before the next one starts, and before a run ends in good order, the
// caller waits for it. A save that fails is reported and forgotten; training does not depend on it.
// Weights with a number that is not finite are never written: no checkpoint resumes from spoilt weights.
//
// Thread safety: Start and Wait by the executor's thread, Cancel by any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "base/mutex.h"
#include "checkpoint/checkpoint.h"
#include "worker/layer_state.h"

namespace penstock {

// A layer that was saved: its files, and the digest of its parameters (Stage::LayerDigests).
struct SavedLayer {
  int32_t layer = 0;  // of the model
  std::string name;
  std::string sha256;
  std::vector<CheckpointFile> files;
};

class CheckpointWriter {
 public:
  // Called on the writer's thread when a save has ended: all its layers, or why not.
  using Done = std::function<void(absl::StatusOr<std::vector<SavedLayer>>)>;

  // REQUIRES: `files` outlives the writer.
  explicit CheckpointWriter(Files& files) : files_(files) {}
  // Cancels the save in flight and waits until the layer that is being written has ended. A disk that
  // never answers keeps the thread for ever; only the end of the process helps then.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Writes `layers` into the directory `staging`. REQUIRES: no save is in flight.
  // `done` gets: FailedPrecondition naming a layer and tensor that is not finite, the reason given to
  // Cancel, or the errors of Files.
  void Start(std::string staging, std::vector<LayerSnapshot> layers, Done done);

  // Until no save is in flight. Errors: DeadlineExceeded, or the reason given to Cancel.
  absl::Status Wait(absl::Duration timeout);

  // Ends waits, and the save in flight before its next layer. The first reason counts.
  // REQUIRES: `reason` is not OK.
  void Cancel(const absl::Status& reason);

 private:
  absl::StatusOr<std::vector<SavedLayer>> Write(const std::string& staging,
                                                const std::vector<LayerSnapshot>& layers);
  absl::Status cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

  Files& files_;
  std::thread thread_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
