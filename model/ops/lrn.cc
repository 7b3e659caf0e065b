// Local response normalisation over the last dimension's channels: Krizhevsky, Sutskever and Hinton, NIPS 2012, section
// 3.3, with PyTorch's scaling: x / (k + alpha * mean of x^2 over `size` channels around)^beta, zeros beyond the ends.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace lrn {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "size", .help = "the neighbouring channels, itself among them", .max = 4096},
    {.name = "alpha",
     .kind = AttributeKind::kNumber,
     .help = "the weight of the mean square",
     .otherwise = "1e-4",
     .min = 0.0},
    {.name = "beta",
     .kind = AttributeKind::kNumber,
     .help = "the exponent",
     .otherwise = "0.75",
     .min = 0.0,
     .max = 16.0},
    {.name = "k",
     .kind = AttributeKind::kNumber,
     .help = "added to the mean square",
     .otherwise = "1",
     .min = 1e-6},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const ValueType& input = a.inputs[0];
  if (!IsF32(input, 1)) {
    return ShapesDoNotFit(a.inputs, "f32 [..., channels]");
  }
  return OpResult{.output = input};
}

}  // namespace
}  // namespace lrn

constinit const Op kLrn = {
    .name = "lrn",
    .described_as = "lrn",
    .help = "each value divided by a power of the mean square of its neighbouring channels",
    .attributes = lrn::kAttributes,
    .infer = lrn::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
