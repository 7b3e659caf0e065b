// Every n-th pixel of every n-th row, with channels of zeros behind those that there are: the shortcut without parameters
// of ResNets (option A of He et al., arXiv 1512.03385).
#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace subsample {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "stride", .help = "the steps between the pixels that are kept", .max = 64},
    {.name = "channels", .help = "channels of the output, as many as the input's or more"},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const std::vector<int64_t>& dims = a.inputs[0].dims;
  const int64_t stride = a.attributes.integer("stride");
  const int64_t channels = a.attributes.integer("channels");
  if (!IsF32(a.inputs[0], 3) || dims.size() != 3 || dims[2] > channels) {
    return ShapesDoNotFit(a.inputs, absl::StrCat("f32 [height, width, channels], with at most ",
                                                 channels, " channels"));
  }
  return OpResult{
      .output = {DType::kF32,
                 {(dims[0] + stride - 1) / stride, (dims[1] + stride - 1) / stride, channels}}};
}

}  // namespace
}  // namespace subsample

constinit const Op kSubsample = {
    .name = "subsample",
    .described_as = "subsample",
    .help = "some of an image's pixels, with more channels, which are zero",
    .attributes = subsample::kAttributes,
    .infer = subsample::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
