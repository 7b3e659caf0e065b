// One time step of many: BERT's pooler reads the first.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace select {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "index",
     .kind = AttributeKind::kInteger,
     .help = "the time step, from 0; -1 is the last",
     .otherwise = "0",
     .min = -1},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t index = a.attributes.integer("index");
  const ValueType& input = a.inputs[0];
  if (!IsF32(input, 2) || input.dims[0] <= index) {
    return ShapesDoNotFit(a.inputs, absl::StrCat("f32 [time, ...] with more than ",
                                                 std::max<int64_t>(index, 0), " time steps"));
  }
  return OpResult{.output = {DType::kF32, {input.dims.begin() + 1, input.dims.end()}}};
}

}  // namespace
}  // namespace select

constinit const Op kSelect = {
    .name = "select",
    .described_as = "select",
    .help = "one time step",
    .attributes = select::kAttributes,
    .infer = select::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
