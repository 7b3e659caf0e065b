// All dimensions as one.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace flatten {
namespace {

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  if (!IsF32(a.inputs[0], 1)) return ShapesDoNotFit(a.inputs, "f32 [...]");
  return OpResult{.output = {DType::kF32, {a.inputs[0].elements()}}};
}

}  // namespace
}  // namespace flatten

constinit const Op kFlatten = {
    .name = "flatten",
    .described_as = "flatten",
    .help = "all dimensions of a sample as one",
    .infer = flatten::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
