#include "model/families/image_builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr int64_t kImageSizeMax = 4096;
constexpr int64_t kClassesMax = 1 << 20;
constexpr size_t kColours = 3;

absl::Status CheckNumbers(const char* key, const std::vector<double>& values) {
  if (values.size() == 1 || values.size() == kColours) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": has ", values.size(),
                   " numbers; expected one for all channels, or one for each of 3"));
}

}  // namespace

ImageBuilder::ImageBuilder(std::string architecture, const ImageConfig& image)
    : graph_(std::move(architecture)), image_(image) {
  graph_.AddPort({"image", {DType::kU8, {image.size, image.size, static_cast<int64_t>(kColours)}}});
  graph_.AddPort({"label", {DType::kI32, {}}, image.classes});
}

void ImageBuilder::AddPixels() {
  Add("image", "pixels", {{"mean", image_.mean}, {"deviation", image_.deviation}}, {"image"});
}

std::string ImageBuilder::Add(std::string op, std::string name, Attributes attributes,
                              std::vector<std::string> inputs) {
  graph_.Add({.name = name,
              .op = std::move(op),
              .attributes = std::move(attributes),
              .inputs = std::move(inputs)});
  return name;
}

std::string ImageBuilder::AddConvolutionAndNorm(const std::string& convolution,
                                                const std::string& norm, Attributes attributes,
                                                std::vector<std::string> inputs) {
  attributes.Set("bias", false);
  attributes.Set("init", std::string("kaiming"));
  Add("conv2d", convolution, std::move(attributes), std::move(inputs));
  return Add("batch_norm", norm);
}

absl::StatusOr<ModelGraph> ImageBuilder::Finish() && {
  const std::string logits = graph_.last();
  Add("cross_entropy", "loss", {{"label_smoothing", image_.label_smoothing}}, {logits, "label"});
  return std::move(graph_).Build();
}

absl::Status CheckImage(const ImageConfig& image, int64_t size_min) {
  if (image.size < size_min || image.size > kImageSizeMax) {
    return absl::InvalidArgumentError(absl::StrCat("image.size: is ", image.size, "; expected ",
                                                   size_min, " to ", kImageSizeMax, " pixels"));
  }
  if (image.classes < 2 || image.classes > kClassesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("image.classes: is ", image.classes, "; expected 2 to ", kClassesMax));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckNumbers("image.mean", image.mean));
  return CheckNumbers("image.deviation", image.deviation);
}

absl::Status CheckOneOf(const std::string& key, int64_t value, const std::vector<int64_t>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": is ", value, "; expected one of ", absl::StrJoin(known, ", ")));
}

}  // namespace penstock
