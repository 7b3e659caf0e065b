// LayerNorm over the last dimension: Ba, Kiros, Hinton, arXiv 1607.06450.
#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace layer_norm {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"width", AttributeKind::kInteger, "the size of the last dimension"},
    {.name = "epsilon",
     .kind = AttributeKind::kNumber,
     .help = "added to the variance",
     .otherwise = "1e-5",
     .min = 0.0,
     .max = 1.0,
     .use = AttributeUse::kKernelsAddedLater},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t width = a.attributes.integer("width");
  const ValueType& input = a.inputs[0];
  if (!IsF32(input, 1) || input.dims.back() != width) {
    return ShapesDoNotFit(a.inputs, absl::StrCat("f32 [..., ", width, "], the width"));
  }
  return OpResult{.output = input, .parameters = {Gain("weight", width), Bias("bias", width)}};
}

}  // namespace
}  // namespace layer_norm

constinit const Op kLayerNorm = {
    .name = "layer_norm",
    .described_as = "norm",
    .help = "each row to mean 0 and variance 1, then a gain and a bias",
    .attributes = layer_norm::kAttributes,
    .infer = layer_norm::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
