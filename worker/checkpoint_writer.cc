#include "worker/checkpoint_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::Start(std::string staging, std::vector<LayerState> layers, Done done) {
  {
    MutexLock lock(mutex_);
    PENSTOCK_CHECK(!busy_);
    busy_ = true;
  }
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread(
      [this, staging = std::move(staging), layers = std::move(layers), done = std::move(done)] {
        done(Write(staging, layers));
        MutexLock lock(mutex_);
        busy_ = false;
        ended_.NotifyAll();
      });
}

absl::Status CheckpointWriter::Wait(absl::Duration timeout) {
  const auto until = CondVar::Clock::now() + absl::ToChronoNanoseconds(timeout);
  MutexLock lock(mutex_);
  while (busy_) {
    if (!ended_.WaitUntil(mutex_, until) && busy_) {
      return absl::DeadlineExceededError(
          absl::StrCat("the previous checkpoint is still being written after ",
                       absl::FormatDuration(timeout), "; is the disk stuck?"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CheckpointFile>> CheckpointWriter::Write(
    const std::string& staging, const std::vector<LayerState>& layers) {
  std::vector<CheckpointFile> written;
  for (const LayerState& layer : layers) {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<CheckpointFile> files,
                              WriteLayer(files_, staging, layer));
    written.insert(written.end(), files.begin(), files.end());
  }
  return written;
}

}  // namespace penstock
