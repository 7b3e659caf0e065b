// Parameters and multiply-adds of the families. Image classifiers: as torchvision states them for its models
// (torchvision.models, the tables of weights: num_params and GFLOPS, which counts a multiply-add once), and as He et al.
// count CIFAR's. Recurrent models: by closed forms, and as their papers round them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/bundle.h"
#include "model/families/gpt.h"
#include "model/families/images.h"
#include "model/families/sequences.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
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

// Matrices of the input and of the state, and PyTorch's two biases.
int64_t LstmParameters(int64_t inputs, int64_t hidden) {
  return 4 * hidden * (inputs + hidden) + 2 * 4 * hidden;
}

// Gal and Ghahramani, arXiv 1512.05287, table 1: 20 million parameters of the medium model and 66 million of the large
// one, on the Penn Treebank's 10,000 words.
TEST(Families, LstmLm_HasThePapersParameters) {
  constexpr int64_t kWords = 10000;
  for (const auto& [hidden, millions] : {std::pair<int64_t, double>{650, 20}, {1500, 66}}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model,
                                  BuildLstmLm({.hidden = hidden, .vocabulary = kWords}));
    const int64_t tables = 2 * kWords * hidden + kWords;
    EXPECT_EQ(model.parameter_count(), tables + 2 * LstmParameters(hidden, hidden));
    EXPECT_NEAR(static_cast<double>(model.parameter_count()) / 1e6, millions, 0.5);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const ModelGraph tied, BuildLstmLm({.hidden = hidden, .vocabulary = kWords, .tied = true}));
    EXPECT_EQ(tied.parameter_count(), model.parameter_count() - kWords * hidden);
  }
}

// Merity et al., table 1: 24 million parameters on the Penn Treebank, 33 million on WikiText-2's 33,278 words.
TEST(Families, AwdLm_HasThePapersParameters) {
  for (const auto& [words, millions] : {std::pair<int64_t, double>{10000, 24}, {33278, 33}}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildAwdLm({.vocabulary = words}));
    EXPECT_EQ(model.parameter_count(), words * 400 + words + LstmParameters(400, 1150) +
                                           LstmParameters(1150, 1150) + LstmParameters(1150, 400));
    EXPECT_NEAR(static_cast<double>(model.parameter_count()) / 1e6, millions, 0.6);
    ASSERT_EQ(model.ties.size(), 1);
    ASSERT_EQ(model.ties[0].parameters.size(), 1);
    EXPECT_EQ(model.ties[0].parameters[0].name, "encoder.weight");
  }
  // An output of its own reads an LSTM of the hidden width, as in the authors' code.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph untied,
                                BuildAwdLm({.vocabulary = 10000, .tied = false}));
  EXPECT_EQ(untied.parameter_count(),
            10000 * (400 + 1150 + 1) + LstmParameters(400, 1150) + 2 * LstmParameters(1150, 1150));
}

// NVIDIA's GNMT v2 with one embedding for both languages: about 160 million parameters, of which the formula is that of
// the sizes of its modules (seq2seq/models/gnmt.py, encoder.py, decoder.py, attention.py).
TEST(Families, Gnmt_HasNvidiasParameters) {
  constexpr int64_t kWords = 32320, kHidden = 1024;
  const int64_t encoder = 2 * LstmParameters(kHidden, kHidden) +
                          LstmParameters(2 * kHidden, kHidden) +
                          2 * LstmParameters(kHidden, kHidden);
  const int64_t attention = 2 * kHidden * kHidden + 2 * kHidden + 1;
  const int64_t decoder = LstmParameters(kHidden, kHidden) + attention +
                          3 * LstmParameters(2 * kHidden, kHidden) + kWords * (kHidden + 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph shared, BuildGnmt({.shared_embedding = true}));
  EXPECT_EQ(shared.parameter_count(), kWords * kHidden + encoder + decoder);
  EXPECT_NEAR(static_cast<double>(shared.parameter_count()) / 1e6, 160, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph separate, BuildGnmt({}));
  EXPECT_EQ(separate.parameter_count(), shared.parameter_count() + kWords * kHidden);
}

TEST(Families, S2vt_HasTheParametersOfItsSizes) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildS2vt({.vocabulary = 12594}));
  EXPECT_EQ(model.parameter_count(), 4097 * 500 + LstmParameters(500, 1000) + 12594 * 500 +
                                         LstmParameters(1000 + 500, 1000) + 1001 * 12594);
}

// What each cut sends of one sample.
std::vector<int64_t> ElementsAtCuts(const ModelGraph& model) {
  std::vector<int64_t> elements;
  for (int cut = 1; cut < model.size(); ++cut) {
    elements.push_back(0);
    for (const Bundle::Part& part : ActivationsAt(model, cut, 1).parts) {
      elements.back() += model.TypeOf(part.value).elements();
    }
  }
  return elements;
}

TEST(Families, Gnmt_SendsTheMemoryAndTheContextAsFarAsTheyAreRead) {
  GnmtConfig config = {.hidden = 3, .vocabulary = 20, .source_time = 10, .target_time = 1};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph separate, BuildGnmt(config));
  // Of each source 30 numbers, twice as many behind the layer that reads both ways; of each target 3: its embedding,
  // the first LSTM beside what that attends to, then the LSTM before beside the context.
  EXPECT_THAT(ElementsAtCuts(separate), ElementsAre(30, 60, 30, 30, 30, 33, 33, 6, 6, 6, 3));
  config.shared_embedding = true;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph shared, BuildGnmt(config));
  EXPECT_THAT(ElementsAtCuts(shared), ElementsAre(33, 63, 33, 33, 33, 33, 6, 6, 6, 3));
}

TEST(Families, S2vt_SendsNoPadding) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ModelGraph model,
      BuildS2vt({.vocabulary = 30, .frames = 5, .words = 3, .hidden = 8, .embedding = 4}));
  // Embedded frames; the first LSTM's output; that and embedded words; the caption's steps of the second's.
  EXPECT_THAT(ElementsAtCuts(model), ElementsAre(5 * 4, 8 * 8, 8 * 8 + 3 * 4, 3 * 8));
}

TEST(Families, OfSequences_HaveTokens) {
  const absl::StatusOr<ModelGraph> sequences[] = {
      BuildLstmLm({}), BuildAwdLm({}), BuildGnmt({}), BuildS2vt({.vocabulary = 30}),
      BuildGpt({.layers = 1, .width = 4, .heads = 1, .context = 2})};
  for (const absl::StatusOr<ModelGraph>& model : sequences) {
    ASSERT_THAT(model, IsOk());
    EXPECT_TRUE(model->has_tokens()) << model->architecture;
  }
  const absl::StatusOr<ModelGraph> images[] = {BuildVgg({}), BuildAlexNet({}), BuildResNet({}),
                                               BuildCifarResNet({})};
  for (const absl::StatusOr<ModelGraph>& model : images) {
    ASSERT_THAT(model, IsOk());
    EXPECT_FALSE(model->has_tokens()) << model->architecture;
  }
}

// Targets that are numbers, or one class for each place of an image, are no sequence of classes.
TEST(Families, WhatIsNoSequenceOfClasses_HasNoTokens) {
  const auto of_loss = [](const std::string& loss, const ValueType& predicted,
                          const ValueType& targets) {
    GraphBuilder builder("layers");
    builder.AddPort({"x", predicted});
    builder.AddPort({"y", targets});
    builder.BeginLayer("all");
    builder.Add({.name = "linear",
                 .op = "linear",
                 .attributes = {{"outputs", predicted.dims.back()}},
                 .inputs = {"x"}});
    builder.Add({.op = loss, .inputs = {"linear", "y"}});
    return std::move(builder).Build();
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph numbers,
                                of_loss("mse", {DType::kF32, {4}}, {DType::kF32, {4}}));
  EXPECT_FALSE(numbers.has_tokens());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ModelGraph pixels,
      of_loss("cross_entropy", {DType::kF32, {2, 3, 5}}, {DType::kI32, {2, 3}}));
  EXPECT_FALSE(pixels.has_tokens());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ModelGraph sequence,
      of_loss("cross_entropy", {DType::kF32, {3, 5}}, {DType::kI32, {3}}));
  EXPECT_TRUE(sequence.has_tokens());
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
  EXPECT_THAT(BuildGnmt({.layers = 7}),
              StatusIs(kInvalid, AllOf(StartsWith("layers: is 7"), HasSubstr("even"))));
  EXPECT_THAT(BuildS2vt({}), StatusIs(kInvalid, StartsWith("vocabulary: is 0 or missing")));
  EXPECT_THAT(BuildAwdLm({.weight_dropout = 1.0}),
              StatusIs(kInvalid, StartsWith("weight_dropout: is 1")));
  EXPECT_THAT(BuildLstmLm({.hidden = 8, .embedding = 4, .tied = true}),
              StatusIs(kInvalid, AllOf(StartsWith("tied: is true"), HasSubstr("4 wide"))));
}

}  // namespace
}  // namespace penstock
