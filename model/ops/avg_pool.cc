// The mean of each window of an image [height, width, channels], by channel. Padding counts as zeros, as in PyTorch's
// AvgPool2d. In the place of a kernel, `global` takes the whole image and `outputs` cuts it into that many windows of
// about the same size, which may overlap (PyTorch's AdaptiveAvgPool2d).
#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/pool.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace avg_pool {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "kernel",
     .kind = AttributeKind::kIntegers,
     .help = "the windows' height and width; 0: with global or outputs",
     .otherwise = "0",
     .min = 0,
     .sizes = 2},
    kPoolStride,
    kPoolPadding,
    {.name = "global",
     .kind = AttributeKind::kFlag,
     .help = "one mean for each channel",
     .otherwise = "false"},
    {.name = "outputs",
     .kind = AttributeKind::kIntegers,
     .help = "the outputs' height and width, for windows that follow from them",
     .otherwise = "0",
     .min = 0,
     .sizes = 2},
};

bool IsGiven(const std::vector<int64_t>& sizes) { return sizes[0] > 0 && sizes[1] > 0; }

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const bool global = a.attributes.flag("global");
  const std::vector<int64_t>& outputs = a.attributes.integers("outputs");
  const int ways = (IsGiven(a.attributes.integers("kernel")) ? 1 : 0) + (global ? 1 : 0) +
                   (IsGiven(outputs) ? 1 : 0);
  if (ways != 1) {
    return absl::InvalidArgumentError("expected one of kernel, global and outputs");
  }
  if (IsGiven(a.attributes.integers("kernel"))) {
    PENSTOCK_ASSIGN_OR_RETURN(const Window window, PoolWindow(a));
    return Pooled(a, window);
  }
  const ValueType& image = a.inputs[0];
  if (image.dtype != DType::kF32 || image.dims.size() != 3) {
    return ShapesDoNotFit(a.inputs, "f32 [height, width, channels]");
  }
  const int64_t height = global ? 1 : outputs[0];
  const int64_t width = global ? 1 : outputs[1];
  return OpResult{.output = {DType::kF32, {height, width, image.dims[2]}}};
}

}  // namespace
}  // namespace avg_pool

constinit const Op kAvgPool = {
    .name = "avg_pool",
    .described_as = "avg_pool",
    .help = "the mean of each window",
    .attributes = avg_pool::kAttributes,
    .infer = avg_pool::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
