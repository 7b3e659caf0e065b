// Convolution of images [height, width, channels], as PyTorch's Conv2d: each output is the product of a filter with the
// window of the input that it sees (no mirroring).
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/window.h"

namespace penstock::ops {
namespace conv2d {
namespace {

constexpr absl::string_view kInits[] = {"uniform", "kaiming"};

constexpr AttributeSpec kAttributes[] = {
    {.name = "channels", .help = "the channels of the output"},
    {.name = "kernel",
     .kind = AttributeKind::kIntegers,
     .help = "the filters' height and width",
     .sizes = 2},
    {.name = "stride",
     .kind = AttributeKind::kIntegers,
     .help = "the steps between windows, down and across",
     .otherwise = "1",
     .sizes = 2},
    {.name = "padding",
     .kind = AttributeKind::kIntegers,
     .help = "zeros around the image, above and below, left and right",
     .otherwise = "0",
     .min = 0,
     .sizes = 2},
    {.name = "same",
     .kind = AttributeKind::kFlag,
     .help = "pads for outputs of the inputs' size divided by the stride, in the place of padding",
     .otherwise = "false"},
    {.name = "dilation",
     .kind = AttributeKind::kIntegers,
     .help = "the steps between the elements of a window",
     .otherwise = "1",
     .sizes = 2},
    {.name = "groups", .help = "the groups of channels that are convolved apart", .otherwise = "1"},
    {.name = "bias",
     .kind = AttributeKind::kFlag,
     .help = "adds a number to each channel of the output",
     .otherwise = "true"},
    {.name = "init",
     .kind = AttributeKind::kWord,
     .help = "uniform below 1/sqrt(inputs of an output), the bias too, as in PyTorch; or kaiming, "
             "normal by the outputs of an input with a bias of zeros, as in ResNets",
     .otherwise = "uniform",
     .words = kInits,
     .use = AttributeUse::kInitialWeights},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(a.attributes, a.inputs[0]));
  const int64_t inputs = a.inputs[0].dims.back();
  const int64_t outputs = a.attributes.integer("channels");
  const int64_t groups = a.attributes.integer("groups");
  if (inputs % groups != 0 || outputs % groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("groups: ", groups, " do not divide the ",
                                                   inputs, " channels of the input and the ",
                                                   outputs, " of the output"));
  }
  const int64_t area = window.kernel_elements();
  const std::vector<int64_t> shape = {outputs, inputs / groups, window.height.kernel,
                                      window.width.kernel};
  // He et al., arXiv 1502.01852, for ReLU and the size of gradients.
  const double deviation = std::sqrt(2.0 / static_cast<double>(outputs * area));
  const int64_t summed = inputs / groups * area;
  const double bound = 1.0 / std::sqrt(static_cast<double>(summed));
  const bool is_uniform = a.attributes.word("init") == "uniform";
  OpResult result{.output = {DType::kF32, {window.height.outputs, window.width.outputs, outputs}}};
  ParameterSpec weight = OfMap(Matrix("weight", shape, deviation), summed);
  result.parameters.push_back(is_uniform ? Uniform(std::move(weight), bound) : std::move(weight));
  if (a.attributes.flag("bias")) {
    ParameterSpec bias = OfMap(Bias("bias", outputs), summed);
    result.parameters.push_back(is_uniform ? Uniform(std::move(bias), bound) : std::move(bias));
  }
  return result;
}

OpCost Cost(const OpArguments& a) {
  const Window window = *WindowOf(a.attributes, a.inputs[0]);
  const int64_t inputs = a.inputs[0].dims.back() / a.attributes.integer("groups");
  const double flops = ProductFlops(static_cast<double>(window.outputs()),
                                    static_cast<double>(inputs * window.kernel_elements()),
                                    static_cast<double>(a.attributes.integer("channels")));
  return {flops, flops, flops};
}

}  // namespace
}  // namespace conv2d

constinit const Op kConv2d = {
    .name = "conv2d",
    .described_as = "conv2d",
    .help = "convolution of images",
    .attributes = conv2d::kAttributes,
    .infer = conv2d::Infer,
    .cost = conv2d::Cost,
};

}  // namespace penstock::ops
