#include "worker/checkpoint_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/fault_points.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status CheckFinite(const std::string& layer, absl::Span<const NamedArray> arrays) {
  for (const NamedArray& array : arrays) {
    const auto bad = std::find_if(array.values.begin(), array.values.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad == array.values.end()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", layer, ": ", array.name, " has the value ", *bad, " at ",
                     bad - array.values.begin(),
                     "; lower the learning rate, lengthen the warm-up or clip gradients"));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const LayerState& state) {
  PENSTOCK_RETURN_IF_ERROR(CheckFinite(state.name, state.weights));
  return CheckFinite(state.name, state.optimizer_state);
}

}  // namespace

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
        done(Write(staging, layers));
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

absl::StatusOr<std::vector<SavedLayer>> CheckpointWriter::Write(
    const std::string& staging, const std::vector<LayerSnapshot>& layers) {
  for (const LayerSnapshot& layer : layers) PENSTOCK_RETURN_IF_ERROR(CheckFinite(layer.state));
  std::vector<SavedLayer> saved;
  for (const LayerSnapshot& layer : layers) {
    PENSTOCK_RETURN_IF_ERROR(cancelled());
    PENSTOCK_FAULT_POINT_STATUS(kSaveBeforeLayer);
    SavedLayer& entry = saved.emplace_back();
    entry.layer = layer.state.layer;
    entry.name = layer.state.name;
    entry.sha256 = ParametersDigest(layer.parameters());
    PENSTOCK_ASSIGN_OR_RETURN(entry.files, WriteLayer(files_, staging, layer.state));
    PENSTOCK_FAULT_POINT(kSaveAfterLayer);
  }
  return saved;
}

}  // namespace penstock
