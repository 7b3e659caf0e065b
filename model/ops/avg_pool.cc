// The mean of each window of an image [height, width, channels], by channel. Padding counts as zeros, as in PyTorch's
// AvgPool2d. In the place of a kernel, `global` takes the whole image and `outputs` cuts it into that many windows of
// about the same size, which may overlap (PyTorch's AdaptiveAvgPool2d).
#include <algorithm>
#include <utility>
#include <vector>

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

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  PENSTOCK_ASSIGN_OR_RETURN(const AveragedWindows windows, AveragedWindowsOf(a.attributes));
  if (windows == AveragedWindows::kOfKernel) {
    PENSTOCK_ASSIGN_OR_RETURN(const Window window, PoolWindow(a));
    return Pooled(a, window);
  }
  const ValueType& image = a.inputs[0];
  if (image.dtype != DType::kF32 || image.dims.size() != 3) {
    return ShapesDoNotFit(a.inputs, "f32 [height, width, channels]");
  }
  std::vector<int64_t> dims = {1, 1, image.dims[2]};
  if (windows == AveragedWindows::kOfOutputs) {
    const std::vector<int64_t>& outputs = a.attributes.integers("outputs");
    std::copy(outputs.begin(), outputs.end(), dims.begin());
  }
  return OpResult{.output = {DType::kF32, std::move(dims)}};
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
