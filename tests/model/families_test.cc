// Parameters and multiply-adds of the families, as torchvision states them for its models (torchvision.models, the
// tables of weights: num_params and GFLOPS, which counts a multiply-add once), and as He et al. count CIFAR's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/bundle.h"
#include "model/families/images.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

double GigaMultiplyAdds(const ModelGraph& model) {
  double flops = 0.0;
  for (const LayerSpec& layer : model.layers) flops += EstimateCost(model, layer).forward_flops;
  return flops / 2e9;
}

struct KnownModel {
  const char* name;
  absl::StatusOr<ModelGraph> model;
  int64_t parameters;
  double giga_multiply_adds;
};

TEST(Families, OfImages_HaveTorchvisionsParametersAndCosts) {
  const KnownModel known[] = {
      {"vgg11", BuildVgg({.depth = 11}), 132863336, 7.61},
      {"vgg13", BuildVgg({.depth = 13}), 133047848, 11.31},
      {"vgg16", BuildVgg({.depth = 16}), 138357544, 15.47},
      {"vgg16_bn", BuildVgg({.depth = 16, .batch_norm = true}), 138365992, 15.47},
      {"vgg19", BuildVgg({.depth = 19}), 143667240, 19.63},
      {"alexnet", BuildAlexNet({}), 61100840, 0.71},
      {"resnet18", BuildResNet({.depth = 18}), 11689512, 1.81},
      {"resnet34", BuildResNet({.depth = 34}), 21797672, 3.66},
      {"resnet50", BuildResNet({.depth = 50}), 25557032, 4.09},
      {"resnet101", BuildResNet({.depth = 101}), 44549160, 7.80},
      {"resnet152", BuildResNet({.depth = 152}), 60192808, 11.51},
  };
  for (const KnownModel& each : known) {
    SCOPED_TRACE(each.name);
    ASSERT_THAT(each.model, IsOk());
    EXPECT_EQ(each.model->parameter_count(), each.parameters);
    EXPECT_NEAR(GigaMultiplyAdds(*each.model), each.giga_multiply_adds, 0.006);
  }
}

// Krizhevsky et al. write "60 million parameters": 60,954,656 with the biases, by the sizes of figure 2.
TEST(Families, AlexNetOf2012_HasThePapersParameters) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildAlexNet({.variant = "2012"}));
  const int64_t convolutions = (11 * 11 * 3 + 1) * 96 + (5 * 5 * 48 + 1) * 256 +
                               (3 * 3 * 256 + 1) * 384 + (3 * 3 * 192 + 1) * 384 +
                               (3 * 3 * 192 + 1) * 256;
  const int64_t connected = (6 * 6 * 256 + 1) * 4096 + (4096 + 1) * 4096 + (4096 + 1) * 1000;
  EXPECT_EQ(model.parameter_count(), convolutions + connected);
}

// Table 6 of He et al.: 0.27, 0.46, 0.66, 0.85 and 1.7 million.
TEST(Families, OfCifar_HaveThePapersParameters) {
  const std::pair<int64_t, double> known[] = {
      {20, 0.27}, {32, 0.46}, {44, 0.66}, {56, 0.85}, {110, 1.73}};
  for (const auto& [depth, millions] : known) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildCifarResNet({.depth = depth}));
    EXPECT_NEAR(static_cast<double>(model.parameter_count()) / 1e6, millions, 0.006) << depth;
  }
}

TEST(Families, ResidualBlocks_AreLayersThatPassOneValueOn) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildResNet({.depth = 50}));
  EXPECT_EQ(model.size(), 18);
  for (int cut = 1; cut < model.size(); ++cut) {
    EXPECT_EQ(ActivationsAt(model, cut, 1).parts.size(), 1u) << cut;
  }
}

TEST(Families, BadNumbers_AreNamedWithWhatWouldDo) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(BuildVgg({.depth = 12}),
              StatusIs(kInvalid, AllOf(StartsWith("depth: is 12"), HasSubstr("11, 13, 16, 19"))));
  EXPECT_THAT(BuildResNet({.depth = 50, .image = {.size = 16}}),
              StatusIs(kInvalid, AllOf(StartsWith("image.size: is 16"), HasSubstr("32 to"))));
  EXPECT_THAT(BuildAlexNet({.variant = "2013"}), StatusIs(kInvalid, StartsWith("variant")));
  EXPECT_THAT(BuildCifarResNet({.image = {.size = 32, .classes = 1}}),
              StatusIs(kInvalid, StartsWith("image.classes: is 1")));
  EXPECT_THAT(BuildCifarResNet({.image = {.classes = 10, .mean = {0.5, 0.5}}}),
              StatusIs(kInvalid, StartsWith("image.mean: has 2")));
}

}  // namespace
}  // namespace penstock
