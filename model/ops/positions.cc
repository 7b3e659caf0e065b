// x + a learned row for each time step.
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace positions {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"context", AttributeKind::kInteger, "the number of time steps with a position"},
    kTableDeviation,
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t context = a.attributes.integer("context");
  const ValueType& input = a.inputs[0];
  if (!IsF32(input, 2) || input.dims.size() != 2 || input.dims[0] > context) {
    return ShapesDoNotFit(a.inputs,
                          absl::StrCat("f32 [time, width] with at most ", context, " time steps"));
  }
  return OpResult{
      .output = input,
      .parameters = {Table("weight", context, input.dims[1], a.attributes.number("deviation"))}};
}

OpCost Cost(const OpArguments& a) {
  const auto elements = static_cast<double>(a.inputs[0].elements());
  return {elements, 0.0, elements};  // adds
}

}  // namespace
}  // namespace positions

constinit const Op kPositions = {
    .name = "positions",
    .described_as = "positions",
    .help = "adds a learned row to each time step",
    .attributes = positions::kAttributes,
    .infer = positions::Infer,
    .cost = positions::Cost,
};

}  // namespace penstock::ops
