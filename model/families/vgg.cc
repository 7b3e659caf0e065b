#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/image_builder.h"

namespace penstock {
namespace {

constexpr int64_t kPool = 0;  // among channels
constexpr int64_t kVggPooledSize = 7;
constexpr double kClassifierDeviation = 0.01;

// Channels of each convolution, of table 1.
std::vector<int64_t> ChannelsOfDepth(int64_t depth) {
  static const std::map<int64_t, std::vector<int64_t>> kByDepth = {
      {11, {1, 1, 2, 2, 2}}, {13, {2, 2, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}};
  constexpr int64_t kChannels[] = {64, 128, 256, 512, 512};
  std::vector<int64_t> channels;
  const std::vector<int64_t>& convolutions = kByDepth.at(depth);
  for (size_t block = 0; block < convolutions.size(); ++block) {
    channels.insert(channels.end(), convolutions[block], kChannels[block]);
    channels.push_back(kPool);
  }
  return channels;
}

Attributes Classifier(int64_t outputs) {
  return {
      {"outputs", outputs}, {"init", std::string("normal")}, {"deviation", kClassifierDeviation}};
}

}  // namespace

absl::StatusOr<ModelGraph> BuildVgg(const VggConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(CheckOneOf("depth", config.depth, {11, 13, 16, 19}));
  PENSTOCK_RETURN_IF_ERROR(CheckImage(config.image, 32));
  ImageBuilder model("vgg", config.image);
  // Modules are numbered as torchvision's Sequential numbers them.
  int module = 0;
  const auto next = [&module] { return absl::StrCat("features.", module++); };
  bool first = true;
  for (const int64_t channels : ChannelsOfDepth(config.depth)) {
    if (channels == kPool) {
      model.Add("max_pool", next(), {{"kernel", int64_t{2}}, {"stride", int64_t{2}}});
      continue;
    }
    const std::string convolution = next();
    model.BeginLayer(convolution);
    if (first) model.AddPixels();
    first = false;
    model.Add("conv2d", convolution,
              {{"channels", channels},
               {"kernel", int64_t{3}},
               {"padding", int64_t{1}},
               {"init", std::string("kaiming")}});
    if (config.batch_norm) model.Add("batch_norm", next());
    model.Add("relu", next());
  }
  model.BeginLayer("classifier.0");
  model.Add("avg_pool", "avgpool",
            {{"outputs", std::vector<int64_t>{kVggPooledSize, kVggPooledSize}}});
  model.Add("channels_first", "channels_first");
  model.Add("flatten", "flatten");
  model.Add("linear", "classifier.0", Classifier(config.hidden));
  model.Add("relu", "classifier.1");
  model.Add("dropout", "classifier.2", {{"probability", config.dropout}});
  model.BeginLayer("classifier.3");
  model.Add("linear", "classifier.3", Classifier(config.hidden));
  model.Add("relu", "classifier.4");
  model.Add("dropout", "classifier.5", {{"probability", config.dropout}});
  model.BeginLayer("classifier.6");
  model.Add("linear", "classifier.6", Classifier(config.image.classes));
  return std::move(model).Finish();
}

}  // namespace penstock
