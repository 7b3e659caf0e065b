// Normalisation of groups of the last dimension's channels, sample by sample: Wu and He, arXiv 1803.08494.
#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace group_norm {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "groups", .help = "the groups that the channels are cut into"},
    {.name = "epsilon",
     .kind = AttributeKind::kNumber,
     .help = "added to variances",
     .otherwise = "1e-5",
     .min = 1e-12,
     .max = 1.0},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const ValueType& input = a.inputs[0];
  const int64_t groups = a.attributes.integer("groups");
  if (!IsF32(input, 1) || input.dims.back() % groups != 0) {
    return ShapesDoNotFit(
        a.inputs, absl::StrCat("f32 [..., channels], with channels in ", groups, " groups"));
  }
  const int64_t width = input.dims.back();
  return OpResult{.output = input, .parameters = {Gain("weight", width), Bias("bias", width)}};
}

}  // namespace
}  // namespace group_norm

constinit const Op kGroupNorm = {
    .name = "group_norm",
    .described_as = "group_norm",
    .help = "each sample's groups of channels to mean 0 and variance 1, then a gain and a bias",
    .attributes = group_norm::kAttributes,
    .infer = group_norm::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
