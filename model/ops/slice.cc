// A range of the last dimension.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace slice {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "from", .kind = AttributeKind::kInteger, .help = "the first column", .min = 0},
    {"to", AttributeKind::kInteger, "the column after the last"},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t from = a.attributes.integer("from");
  const int64_t to = a.attributes.integer("to");
  if (from >= to) {
    return absl::InvalidArgumentError(
        absl::StrCat("to: is ", to, "; expected more than from (", from, ")"));
  }
  if (!IsF32(a.inputs[0], 1) || a.inputs[0].dims.back() < to) {
    return ShapesDoNotFit(a.inputs, absl::StrCat("f32 [..., ", to, " or more]"));
  }
  return OpResult{.output = WithWidth(a.inputs[0], to - from)};
}

}  // namespace
}  // namespace slice

constinit const Op kSlice = {
    .name = "slice",
    .described_as = "slice",
    .help = "the columns of the last dimension from one to another",
    .attributes = slice::kAttributes,
    .infer = slice::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
