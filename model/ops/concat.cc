// Values side by side along the last dimension, that of channels.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace concat {
namespace {

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  int64_t width = 0;
  for (const ValueType& input : a.inputs) {
    if (!IsF32(input, 1) || WithWidth(input, 0) != WithWidth(a.inputs[0], 0)) {
      return ShapesDoNotFit(a.inputs, "f32 that differ in the last dimension alone");
    }
    width += input.dims.back();
  }
  return OpResult{.output = WithWidth(a.inputs[0], width)};
}

}  // namespace
}  // namespace concat

constinit const Op kConcat = {
    .name = "concat",
    .described_as = "concat",
    .help = "2 to 16 values side by side along the last dimension",
    .inputs_min = 2,
    .inputs_max = 16,
    .infer = concat::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
