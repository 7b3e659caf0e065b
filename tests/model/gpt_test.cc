// GPT as a model: names, layouts and sizes are those of GPT-2 in Hugging Face.
#include "model/families/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GptConfig Small() {
  GptConfig config;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.context = 8;
  config.vocabulary = 11;
  return config;
}

std::vector<std::string> ParameterNames(const LayerSpec& layer) {
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : layer.parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

TEST(BuildGpt, TwoBlocks_GiveTheLayersInOrder) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildGpt(Small()));
  std::vector<std::string> names;
  for (const LayerSpec& layer : model.layers) {
    names.push_back(layer.name);
  }
  EXPECT_THAT(names, ElementsAre("embedding", "h.0.attention", "h.0.mlp", "h.1.attention",
                                 "h.1.mlp", "final_norm", "head"));
  EXPECT_THAT(model.ports, ElementsAre(Port{"tokens", {DType::kI32, {8}}, 11},
                                       Port{"targets", {DType::kI32, {8}}, 11}));
  for (size_t node = 0; node + 1 < model.nodes.size(); ++node) {
    EXPECT_EQ(model.nodes[node].output, (ValueType{DType::kF32, {8, 16}}));
  }
  EXPECT_EQ(model.targets_per_sample(), 8);
}

TEST(BuildGpt, Parameters_HaveTheNamesAndLayoutsOfGpt2) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildGpt(Small()));
  EXPECT_THAT(ParameterNames(model.layers[0]), ElementsAre("wte.weight", "wpe.weight"));
  EXPECT_THAT(
      ParameterNames(model.layers[1]),
      ElementsAre("h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.c_attn.weight",
                  "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias"));
  EXPECT_THAT(ParameterNames(model.layers[4]),
              ElementsAre("h.1.ln_2.weight", "h.1.ln_2.bias", "h.1.mlp.c_fc.weight",
                          "h.1.mlp.c_fc.bias", "h.1.mlp.c_proj.weight", "h.1.mlp.c_proj.bias"));
  EXPECT_THAT(ParameterNames(model.layers[5]), ElementsAre("ln_f.weight", "ln_f.bias"));
  EXPECT_THAT(ParameterNames(model.layers[6]), ElementsAre("wte.weight"));
  EXPECT_THAT(model.layers[1].parameters[2].shape, ElementsAre(16, 48));
  EXPECT_THAT(model.layers[2].parameters[2].shape, ElementsAre(16, 64));
  EXPECT_THAT(model.layers[2].parameters[4].shape, ElementsAre(64, 16));
  EXPECT_THAT(model.layers[6].parameters[0].shape, ElementsAre(11, 16));
}

TEST(BuildGpt, UntiedHead_HasItsOwnWeight) {
  GptConfig config = Small();
  config.tied_head = false;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildGpt(config));
  EXPECT_FALSE(model.tied());
  EXPECT_THAT(ParameterNames(model.layers.back()), ElementsAre("lm_head.weight"));
}

// 124,439,808 is the published size of the small GPT-2.
TEST(BuildGpt, SizesOfGpt2Small_GiveItsParameterCount) {
  GptConfig config;
  config.layers = 12;
  config.width = 768;
  config.heads = 12;
  config.context = 1024;
  config.vocabulary = 50257;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ModelGraph model, BuildGpt(config));
  EXPECT_TRUE(model.tied());
  EXPECT_EQ(model.parameter_count(), 124439808);
  config.tied_head = false;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(model, BuildGpt(config));
  EXPECT_EQ(model.parameter_count(), 124439808 + 50257 * 768);
}

TEST(BuildGpt, OnlyMatricesDecay) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildGpt(Small()));
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      EXPECT_EQ(parameter.decays, parameter.shape.size() == 2) << parameter.name;
    }
  }
}

TEST(BuildGpt, ProjectionsIntoTheResidualStream_StartSmaller) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildGpt(Small()));
  EXPECT_DOUBLE_EQ(model.layers[1].parameters[2].init_scale, 0.02);
  EXPECT_DOUBLE_EQ(model.layers[1].parameters[4].init_scale, 0.02 / std::sqrt(4.0));
  EXPECT_DOUBLE_EQ(model.layers[2].parameters[4].init_scale, 0.02 / std::sqrt(4.0));
}

struct BadConfig {
  const char* name;
  void (*change)(GptConfig&);
  const char* field;
  const char* value;
};

class BuildGptRefuses : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BuildGptRefuses, BadValue_NamesFieldAndValue) {
  GptConfig config = Small();
  GetParam().change(config);
  EXPECT_THAT(BuildGpt(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(GetParam().field), HasSubstr(GetParam().value))));
}

INSTANTIATE_TEST_SUITE_P(
    BuildGpt, BuildGptRefuses,
    ::testing::Values(
        BadConfig{"NoLayers", [](GptConfig& c) { c.layers = 0; }, "layers: is", "0"},
        BadConfig{"NegativeWidth", [](GptConfig& c) { c.width = -16; }, "width: is", "-16"},
        BadConfig{"HeadsThatDoNotDivide", [](GptConfig& c) { c.heads = 3; }, "heads: is", "3"},
        BadConfig{"NoContext", [](GptConfig& c) { c.context = 0; }, "context: is", "0"},
        BadConfig{"NoVocabulary", [](GptConfig& c) { c.vocabulary = 0; }, "vocabulary: is", "0"},
        BadConfig{"DropoutOfOne", [](GptConfig& c) { c.dropout = 1.0; }, "dropout: is", "1"},
        BadConfig{"DropoutNotANumber",
                  [](GptConfig& c) { c.dropout = std::numeric_limits<double>::quiet_NaN(); },
                  "dropout: is", "nan"},
        BadConfig{"TooManyLayers", [](GptConfig& c) { c.layers = kGptLayersMax + 1; }, "layers: is",
                  "1 to 1024"},
        BadConfig{"EnormousWidth", [](GptConfig& c) { c.width = int64_t{1} << 40; }, "width: is",
                  "1099511627776"},
        BadConfig{"TooManyParameters",
                  [](GptConfig& c) {
                    c.width = kGptWidthMax;
                    c.layers = 1000;
                  },
                  "parameters", "5.15e+13"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
