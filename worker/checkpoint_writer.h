// CheckpointWriter: writes a snapshot of layers to disk while training goes on.
//
// At most one save is in flight: before the next one starts, and before a run ends, the caller waits
// for it. A save that fails is reported and forgotten; training does not depend on it.
//
// Thread safety: Start and Wait by the executor's thread.
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

namespace penstock {

class CheckpointWriter {
 public:
  // Called on the writer's thread when a save has ended: the files, or why not.
  using Done = std::function<void(absl::StatusOr<std::vector<CheckpointFile>>)>;

  // REQUIRES: `files` outlives the writer.
  explicit CheckpointWriter(Files& files) : files_(files) {}
  // Waits for the save in flight.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Writes `layers` into the directory `staging`. REQUIRES: no save is in flight.
  void Start(std::string staging, std::vector<LayerState> layers, Done done);

  // Until no save is in flight. Errors: DeadlineExceeded.
  absl::Status Wait(absl::Duration timeout);

 private:
  absl::StatusOr<std::vector<CheckpointFile>> Write(const std::string& staging,
                                                    const std::vector<LayerState>& layers);

  Files& files_;
  std::thread thread_;
  Mutex mutex_;
  CondVar ended_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace penstock
