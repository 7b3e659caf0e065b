// [height, width, channels] -> [channels, height, width]: the order in which PyTorch flattens images, so that the weights
// of a linear map behind them are those of its files.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace channels_first {
namespace {

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const std::vector<int64_t>& dims = a.inputs[0].dims;
  if (!IsF32(a.inputs[0], 3) || dims.size() != 3) {
    return ShapesDoNotFit(a.inputs, "f32 [height, width, channels]");
  }
  return OpResult{.output = {DType::kF32, {dims[2], dims[0], dims[1]}}};
}

}  // namespace
}  // namespace channels_first

constinit const Op kChannelsFirst = {
    .name = "channels_first",
    .described_as = "channels_first",
    .help = "channel after channel, in the place of pixel after pixel",
    .infer = channels_first::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
