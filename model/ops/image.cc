// Images as models take them: (scale * x - mean) / deviation in f32, from the bytes or numbers that data sets hold.
#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace image {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "scale",
     .kind = AttributeKind::kNumber,
     .help =
         "turns the values of images to the unit of mean and deviation; by default bytes to 0 .. 1",
     .otherwise = "0.00392156862745098",
     .min = 1e-12},
    {.name = "mean",
     .kind = AttributeKind::kNumbers,
     .help = "to be subtracted; one for each channel, or one for all",
     .otherwise = "0",
     .min = -(1 << 24)},
    {.name = "deviation",
     .kind = AttributeKind::kNumbers,
     .help = "to divide by; one for each channel, or one for all",
     .otherwise = "1",
     .min = 1e-12},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const ValueType& input = a.inputs[0];
  if ((input.dtype != DType::kF32 && input.dtype != DType::kU8) || input.dims.size() != 3) {
    return ShapesDoNotFit(a.inputs, "u8 or f32 [height, width, channels]");
  }
  const auto channels = static_cast<size_t>(input.dims[2]);
  for (const char* name : {"mean", "deviation"}) {
    const size_t given = a.attributes.numbers(name).size();
    if (given == 1 || given == channels) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has ", given, " numbers; expected one, or one for each of the ",
                     channels, " channels"));
  }
  return OpResult{.output = {DType::kF32, input.dims}};
}

}  // namespace
}  // namespace image

constinit const Op kImage = {
    .name = "image",
    .described_as = "image",
    .help = "images as numbers around 0",
    .attributes = image::kAttributes,
    .infer = image::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
