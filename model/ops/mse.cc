// The mean squared error of two values.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace mse {
namespace {

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  if (!IsF32(a.inputs[0], 1) || a.inputs[0] != a.inputs[1]) {
    return ShapesDoNotFit(a.inputs, "predictions and targets, both f32 of one shape");
  }
  return OpResult{.output = {DType::kF32, {}}};
}

LossTraits Loss(const OpArguments&) { return {}; }

}  // namespace
}  // namespace mse

constinit const Op kMse = {
    .name = "mse",
    .described_as = "mse",
    .help = "the mean of the squared differences of predictions and targets",
    .inputs_min = 2,
    .inputs_max = 2,
    .infer = mse::Infer,
    .cost = NoProducts,
    .loss = mse::Loss,
};

}  // namespace penstock::ops
