#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/image_builder.h"

namespace penstock {
namespace {

constexpr int64_t kAlexNetPooledSize = 6;

// A convolution of one of the two variants, and what follows it.
struct Convolution {
  int64_t channels, kernel, stride, padding, groups;
  bool normalised, pooled;
};

constexpr Convolution kTorchvision[] = {{64, 11, 4, 2, 1, false, true},
                                        {192, 5, 1, 2, 1, false, true},
                                        {384, 3, 1, 1, 1, false, false},
                                        {256, 3, 1, 1, 1, false, false},
                                        {256, 3, 1, 1, 1, false, true}};
// The second, fourth and fifth see half of the channels each, which were on two GPUs. With 224 pixels a padding of 2
// gives the paper's 55 x 55.
constexpr Convolution k2012[] = {{96, 11, 4, 2, 1, true, true},
                                 {256, 5, 1, 2, 2, true, true},
                                 {384, 3, 1, 1, 1, false, false},
                                 {384, 3, 1, 1, 2, false, false},
                                 {256, 3, 1, 1, 2, false, true}};

}  // namespace

absl::StatusOr<ModelGraph> BuildAlexNet(const AlexNetConfig& config) {
  const bool is_2012 = config.variant == "2012";
  if (!is_2012 && config.variant != "torchvision") {
    return absl::InvalidArgumentError(
        absl::StrCat("variant: is \"", config.variant, "\"; expected torchvision or 2012"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckImage(config.image, 63));
  ImageBuilder model("alexnet", config.image);
  int module = 0;
  const auto next = [&module] { return absl::StrCat("features.", module++); };
  for (const Convolution& c : is_2012 ? k2012 : kTorchvision) {
    const std::string name = next();
    model.BeginLayer(name);
    if (module == 1) model.AddPixels();
    model.Add("conv2d", name,
              {{"channels", c.channels},
               {"kernel", c.kernel},
               {"stride", c.stride},
               {"padding", c.padding},
               {"groups", c.groups}});
    model.Add("relu", next());
    if (c.normalised) {
      model.Add("lrn", next(), {{"size", int64_t{5}}, {"alpha", 1e-4}, {"beta", 0.75}, {"k", 2.0}});
    }
    if (c.pooled) model.Add("max_pool", next(), {{"kernel", int64_t{3}}, {"stride", int64_t{2}}});
  }
  model.BeginLayer("classifier.1");
  model.Add("avg_pool", "avgpool",
            {{"outputs", std::vector<int64_t>{kAlexNetPooledSize, kAlexNetPooledSize}}});
  model.Add("channels_first", "channels_first");
  model.Add("flatten", "flatten");
  model.Add("dropout", "classifier.0", {{"probability", config.dropout}});
  model.Add("linear", "classifier.1", {{"outputs", config.hidden}});
  model.Add("relu", "classifier.2");
  model.BeginLayer("classifier.4");
  model.Add("dropout", "classifier.3", {{"probability", config.dropout}});
  model.Add("linear", "classifier.4", {{"outputs", config.hidden}});
  model.Add("relu", "classifier.5");
  model.BeginLayer("classifier.6");
  model.Add("linear", "classifier.6", {{"outputs", config.image.classes}});
  return std::move(model).Finish();
}

}  // namespace penstock
