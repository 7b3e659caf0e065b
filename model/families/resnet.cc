#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/image_builder.h"

namespace penstock {
namespace {

struct Residual {
  int64_t channels = 0;  // of the 3x3 convolutions
  int64_t stride = 1;
  bool bottleneck = false;

  int64_t outputs() const { return bottleneck ? 4 * channels : channels; }
};

Attributes Convolution(int64_t channels, int64_t kernel, int64_t stride) {
  return {{"channels", channels}, {"kernel", kernel}, {"stride", stride}, {"padding", kernel / 2}};
}

// The convolutions of a block, from `input` on: each with its norm, and ReLU between them.
std::string AddBranch(const std::string& name, const Residual& block, const std::string& input,
                      ImageBuilder& model) {
  std::vector<Attributes> convolutions;
  if (block.bottleneck) {
    convolutions = {Convolution(block.channels, 1, 1), Convolution(block.channels, 3, block.stride),
                    Convolution(block.outputs(), 1, 1)};
  } else {
    convolutions = {Convolution(block.channels, 3, block.stride),
                    Convolution(block.channels, 3, 1)};
  }
  std::string last = input;
  for (size_t i = 0; i < convolutions.size(); ++i) {
    last = model.AddConvolutionAndNorm(absl::StrCat(name, ".conv", i + 1),
                                       absl::StrCat(name, ".bn", i + 1), convolutions[i], {last});
    if (i + 1 < convolutions.size()) last = model.Add("relu", absl::StrCat(name, ".relu", i + 1));
  }
  return last;
}

void AddSum(const std::string& name, std::string branch, std::string shortcut,
            ImageBuilder& model) {
  model.Add("add", absl::StrCat(name, ".sum"), {}, {std::move(branch), std::move(shortcut)});
  model.Add("relu", absl::StrCat(name, ".relu"));
}

// relu(branch(x) + shortcut(x)), the shortcut projected where the shape changes.
void AddResidual(const std::string& name, const Residual& block, int64_t inputs,
                 ImageBuilder& model) {
  const std::string input = model.graph().last();
  model.BeginLayer(name);
  const std::string branch = AddBranch(name, block, input, model);
  std::string shortcut = input;
  if (block.stride != 1 || inputs != block.outputs()) {
    shortcut = model.AddConvolutionAndNorm(absl::StrCat(name, ".downsample.0"),
                                           absl::StrCat(name, ".downsample.1"),
                                           Convolution(block.outputs(), 1, block.stride), {input});
  }
  AddSum(name, branch, shortcut, model);
}

void AddHead(int64_t classes, ImageBuilder& model) {
  model.BeginLayer("fc");
  model.Add("avg_pool", "avgpool", {{"global", true}});
  model.Add("flatten", "flatten");
  model.Add("linear", "fc", {{"outputs", classes}});
}

}  // namespace

absl::StatusOr<ModelGraph> BuildResNet(const ResNetConfig& config) {
  static const std::map<int64_t, std::vector<int64_t>> kBlocks = {{18, {2, 2, 2, 2}},
                                                                  {34, {3, 4, 6, 3}},
                                                                  {50, {3, 4, 6, 3}},
                                                                  {101, {3, 4, 23, 3}},
                                                                  {152, {3, 8, 36, 3}}};
  PENSTOCK_RETURN_IF_ERROR(CheckOneOf("depth", config.depth, {18, 34, 50, 101, 152}));
  PENSTOCK_RETURN_IF_ERROR(CheckImage(config.image, 32));
  ImageBuilder model("resnet", config.image);
  model.BeginLayer("stem");
  model.AddPixels();
  model.AddConvolutionAndNorm("conv1", "bn1", Convolution(64, 7, 2));
  model.Add("relu", "relu");
  model.Add("max_pool", "maxpool",
            {{"kernel", int64_t{3}}, {"stride", int64_t{2}}, {"padding", int64_t{1}}});
  int64_t inputs = 64;
  const std::vector<int64_t>& blocks = kBlocks.at(config.depth);
  for (size_t part = 0; part < blocks.size(); ++part) {
    for (int64_t i = 0; i < blocks[part]; ++i) {
      const Residual block = {.channels = int64_t{64} << part,
                              .stride = part > 0 && i == 0 ? 2 : 1,
                              .bottleneck = config.depth >= 50};
      AddResidual(absl::StrCat("layer", part + 1, ".", i), block, inputs, model);
      inputs = block.outputs();
    }
  }
  AddHead(config.image.classes, model);
  return std::move(model).Finish();
}

absl::StatusOr<ModelGraph> BuildCifarResNet(const CifarResNetConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(CheckOneOf("depth", config.depth, {8, 14, 20, 32, 44, 56, 110}));
  PENSTOCK_RETURN_IF_ERROR(CheckImage(config.image, 8));
  if (config.width < 1 || config.width > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("width: is ", config.width, "; expected 1 to 1024 channels"));
  }
  ImageBuilder model("cifar_resnet", config.image);
  model.BeginLayer("stem");
  model.AddPixels();
  model.AddConvolutionAndNorm("conv1", "bn1", Convolution(config.width, 3, 1));
  model.Add("relu", "relu");
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t i = 0; i < (config.depth - 2) / 6; ++i) {
      const bool shrinks = part > 0 && i == 0;
      const Residual block = {.channels = config.width << part, .stride = shrinks ? 2 : 1};
      const std::string name = absl::StrCat("layer", part + 1, ".", i);
      const std::string input = model.graph().last();
      model.BeginLayer(name);
      const std::string branch = AddBranch(name, block, input, model);
      std::string shortcut = input;
      if (shrinks) {
        // Every second pixel, and as many channels of zeros (option A).
        shortcut = model.Add("subsample", absl::StrCat(name, ".shortcut"),
                             {{"stride", int64_t{2}}, {"channels", block.channels}}, {input});
      }
      AddSum(name, branch, shortcut, model);
    }
  }
  AddHead(config.image.classes, model);
  return std::move(model).Finish();
}

}  // namespace penstock
