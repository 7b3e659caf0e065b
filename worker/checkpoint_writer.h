// CheckpointWriter: a thread that saves a snapshot of layers (save_layers.h) while training goes on.
//
// At most one save is in flight: before the next one starts, and before a run ends in good order, the
// caller waits for it. A save that fails is reported and forgotten; training does not depend on it.
//
// Thread safety: Start and Wait by the executor's thread, Cancel by any.
#pragma once

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
#include "worker/layer_state.h"
#include "worker/save_layers.h"

namespace penstock {

class CheckpointWriter {
 public:
  // Called on the writer's thread when a save has ended: all its layers, or why not.
  using Done = std::function<void(absl::StatusOr<std::vector<SavedLayer>>)>;

  // REQUIRES: `files` outlives the writer.
  explicit CheckpointWriter(FileWriter& files) : files_(files) {}
  // Cancels the save in flight and waits until the layer that is being written has ended. A disk that
  // never answers keeps the thread for ever; only the end of the process helps then.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Writes `layers` into the directory `staging`. REQUIRES: no save is in flight.
  // `done` gets the errors of SaveLayers, which goes on until Cancel gives a reason.
  void Start(std::string staging, std::vector<LayerSnapshot> layers, Done done);

  // Until no save is in flight. Errors: DeadlineExceeded, or the reason given to Cancel.
  absl::Status Wait(absl::Duration timeout);

  // Ends waits, and the save in flight before its next layer. The first reason counts.
  // REQUIRES: `reason` is not OK.
  void Cancel(const absl::Status& reason);
  // Returns the reason, or OK.
  absl::Status cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  FileWriter& files_;
  std::thread thread_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
