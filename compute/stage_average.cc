// Stage: the mean of replicas.
#include "base/check.h"
#include "compute/stage.h"

namespace penstock {
namespace {

void AddUp(Backend& backend, absl::Span<float* const> arrays, int64_t count) {
  for (float* const other : arrays.subspan(1)) backend.AddInto(arrays.front(), other, count);
}

void CopyFirst(Backend& backend, absl::Span<float* const> arrays, int64_t count) {
  for (float* const other : arrays.subspan(1)) {
    backend.CopyOnDevice(other, arrays.front(), count * SizeOf(DType::kF32));
  }
}

void AverageArrays(Backend& backend, absl::Span<float* const> arrays, int64_t count) {
  AddUp(backend, arrays, count);
  backend.Scale(arrays.front(), 1.0f / static_cast<float>(arrays.size()), count);
  CopyFirst(backend, arrays, count);
}

}  // namespace

void Stage::Average(absl::Span<Stage* const> stages) {
  Stage& first = *stages.front();
  const int64_t count = first.arena_.trained_count();
  std::vector<float*> arrays(stages.size());
  const auto average = [&](auto array_of) {
    for (size_t i = 0; i < stages.size(); ++i) arrays[i] = array_of(*stages[i]);
    AverageArrays(first.backend_, arrays, count);
  };
  for (const Stage* stage : stages) {
    PENSTOCK_CHECK(&stage->backend_ == &first.backend_ && stage->arena_.trained_count() == count &&
                   stage->optimizer_arrays_.size() == first.optimizer_arrays_.size());
  }
  average([](Stage& stage) { return stage.versions_.current().weights(); });
  for (size_t slot = 0; slot < first.optimizer_arrays_.size(); ++slot) {
    average([slot](Stage& stage) { return stage.optimizer_arrays_[slot]; });
  }
  if (first.average_.exists()) {
    average([](Stage& stage) { return stage.average_.array(); });
    for (Stage* stage : stages) stage->average_.Forget();
  }
  for (Stage* stage : stages) stage->RefreshMirror();
  if (first.buffer_count() == 0) return;
  const auto replicas = static_cast<int64_t>(stages.size());
  for (int64_t i = 0; i < replicas; ++i) {
    stages[i]->BeginBufferSum(i, replicas);
    arrays[i] = static_cast<float*>(stages[i]->buffers_.data());
  }
  AddUp(first.backend_, arrays, first.buffer_count());
  first.EndBufferSum(replicas);
  CopyFirst(first.backend_, arrays, first.buffer_count());
}

}  // namespace penstock
