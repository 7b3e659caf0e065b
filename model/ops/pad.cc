// Zeros before and behind a value along its first dimension, as where one sequence begins when another has ended.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace pad {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "before",
     .kind = AttributeKind::kInteger,
     .help = "entries of zeros before the first",
     .otherwise = "0",
     .min = 0},
    {.name = "behind",
     .kind = AttributeKind::kInteger,
     .help = "entries of zeros behind the last",
     .otherwise = "0",
     .min = 0},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  if (!IsF32(a.inputs[0], 1)) return ShapesDoNotFit(a.inputs, "f32 [time, ...]");
  OpResult result = {.output = a.inputs[0]};
  result.output.dims.front() += a.attributes.integer("before") + a.attributes.integer("behind");
  return result;
}

}  // namespace
}  // namespace pad

constinit const Op kPad = {
    .name = "pad",
    .described_as = "pad",
    .help = "zeros before and behind a value along its first dimension, that of time",
    .attributes = pad::kAttributes,
    .infer = pad::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
