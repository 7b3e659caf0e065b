// Other dimensions for the same elements.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace reshape {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"dims", AttributeKind::kIntegers, "the dimensions of a sample"},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  OpResult result = {.output = {DType::kF32, a.attributes.integers("dims")}};
  const int64_t elements = result.output.elements();
  if (!IsF32(a.inputs[0]) || a.inputs[0].elements() != elements) {
    return ShapesDoNotFit(
        a.inputs, absl::StrCat("f32 of ", elements, " elements, for ", result.output.ToString()));
  }
  return result;
}

}  // namespace
}  // namespace reshape

constinit const Op kReshape = {
    .name = "reshape",
    .described_as = "reshape",
    .help = "the same elements with other dimensions",
    .attributes = reshape::kAttributes,
    .infer = reshape::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
