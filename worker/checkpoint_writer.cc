#include "worker/checkpoint_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/fault_points.h"

namespace penstock {

CheckpointWriter::~CheckpointWriter() {
  Cancel(absl::AbortedError("the run is over"));
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::Start(std::string staging, std::vector<LayerSnapshot> layers, Done done) {
  {
    MutexLock lock(mutex_);
    PENSTOCK_CHECK(!busy_);
    busy_ = true;
  }
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread(
      [this, staging = std::move(staging), layers = std::move(layers), done = std::move(done)] {
        done(SaveLayers(files_, staging, layers, [this] { return cancelled(); }));
        MutexLock lock(mutex_);
        busy_ = false;
        changed_.NotifyAll();
      });
}

absl::Status CheckpointWriter::Wait(absl::Duration timeout) {
  const auto until = After(timeout);
  MutexLock lock(mutex_);
  while (busy_ && cancelled_.ok()) {
    if (!changed_.WaitUntil(mutex_, until) && busy_ && cancelled_.ok()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the previous checkpoint is still being written after ",
                       absl::FormatDuration(timeout), "; is the disk stuck?"));
    }
  }
  return cancelled_;
}

void CheckpointWriter::Cancel(const absl::Status& reason) {
  PENSTOCK_CHECK(!reason.ok());
  MutexLock lock(mutex_);
  if (cancelled_.ok()) cancelled_ = reason;
  changed_.NotifyAll();
}

absl::Status CheckpointWriter::cancelled() const {
  MutexLock lock(mutex_);
  return cancelled_;
}

}  // namespace penstock
