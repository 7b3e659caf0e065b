// RMSNorm over the last dimension: Zhang and Sennrich, arXiv 1910.07467.
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace rms_norm {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"epsilon", AttributeKind::kNumber, "added to the mean square", "1e-6", 0.0, 1.0},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const ValueType& input = a.inputs[0];
  if (!IsF32(input, 1)) return ShapesDoNotFit(a.inputs, "f32 [..., width]");
  return OpResult{.output = input, .parameters = {Gain("weight", input.dims.back())}};
}

}  // namespace
}  // namespace rms_norm

constinit const Op kRmsNorm = {
    .name = "rms_norm",
    .described_as = "rms_norm",
    .help = "each row divided by its root mean square, then a gain",
    .attributes = rms_norm::kAttributes,
    .infer = rms_norm::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
