#include "compute/weight_average.h"

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::StatusOr<Buffer> Acquire(Backend& backend, int64_t size_bytes) {
  Buffer buffer = backend.pool().Acquire(size_bytes);
  if (buffer) return buffer;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "no memory for %d bytes of averaged weights; use more stages, or leave out training.ema",
      size_bytes));
}

}  // namespace

absl::StatusOr<WeightAverage> WeightAverage::Create(Backend& backend, int64_t weight_count,
                                                    bool with_mirror) {
  WeightAverage made;
  made.backend_ = &backend;
  made.weight_count_ = weight_count;
  PENSTOCK_ASSIGN_OR_RETURN(made.average_.arrays.f32,
                            Acquire(backend, weight_count * SizeOf(DType::kF32)));
  if (!with_mirror) return made;
  PENSTOCK_ASSIGN_OR_RETURN(made.average_.arrays.bf16,
                            Acquire(backend, weight_count * SizeOf(DType::kBf16)));
  return made;
}

void WeightAverage::Begin(const WeightVersions::Version& weights) {
  if (!exists()) return;
  backend_->CopyOnDevice(array(), weights.weights(), weight_count_ * SizeOf(DType::kF32));
  Forget();
}

void WeightAverage::AfterStep(const WeightVersions::Version& next, double keep, int64_t count) {
  if (!exists()) return;
  backend_->LinearCombination(array(), static_cast<float>(keep), array(),
                              static_cast<float>(1.0 - keep), next.weights(), count);
  Forget();
}

const WeightVersions::Version& WeightAverage::Read() {
  if (!is_mirrored_ && average_.mirror() != nullptr) {
    backend_->ConvertToBf16(average_.mirror(), array(), weight_count_);
    is_mirrored_ = true;
  }
  return average_;
}

}  // namespace penstock
