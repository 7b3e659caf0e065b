// Batch normalisation of the last dimension's channels: Ioffe and Szegedy, arXiv 1502.03167. Training normalises with
// the microbatch's statistics and lets the running ones follow; evaluation uses the running ones.
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace batch_norm {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "epsilon",
     .kind = AttributeKind::kNumber,
     .help = "added to variances",
     .otherwise = "1e-5",
     .min = 1e-12,
     .max = 1.0},
    {.name = "momentum",
     .kind = AttributeKind::kNumber,
     .help = "the weight of a microbatch's statistics in the running ones",
     .otherwise = "0.1",
     .min = 0.0,
     .max = 1.0},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const ValueType& input = a.inputs[0];
  if (!IsF32(input, 1)) {
    return ShapesDoNotFit(a.inputs, "f32 [..., channels]");
  }
  const int64_t width = input.dims.back();
  return OpResult{.output = input,
                  .parameters = {Gain("weight", width), Bias("bias", width)},
                  .buffers = {{.name = "running_mean", .shape = {width}},
                              {.name = "running_var", .shape = {width}, .initial = 1.0}}};
}

}  // namespace
}  // namespace batch_norm

constinit const Op kBatchNorm = {
    .name = "batch_norm",
    .described_as = "batch_norm",
    .help = "each channel to mean 0 and variance 1 in a microbatch, then a gain and a bias",
    .attributes = batch_norm::kAttributes,
    .infer = batch_norm::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
