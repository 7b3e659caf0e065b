// Stage: what goes between stages that have the same layers on several workers.
#include "base/check.h"
#include "base/status.h"
#include "compute/stage.h"

namespace penstock {

void Stage::TakeGradients(float* to) {
  const int64_t count = arena_.gradient_count();
  backend_.CopyOnDevice(to, gradients(), count * SizeOf(DType::kF32));
  backend_.Fill(gradients(), 0.0f, count);
}

void Stage::PutGradients(const float* from) {
  backend_.CopyOnDevice(gradients(), from, arena_.gradient_count() * SizeOf(DType::kF32));
}

void Stage::CopyWeights(float* to) {
  backend_.CopyOnDevice(to, versions_.current().weights(),
                        arena_.weight_count() * SizeOf(DType::kF32));
}

absl::Status Stage::AdoptWeights(int64_t version, const float* weights) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const WeightVersions::Transition transition,
      versions_.Advance(version, /*keep_replaced=*/false, /*oldest_live=*/version));
  backend_.CopyOnDevice(transition.to->weights(), weights,
                        arena_.weight_count() * SizeOf(DType::kF32));
  ++steps_;  // the one that was made elsewhere
  RefreshMirror();
  return absl::OkStatus();
}

}  // namespace penstock
