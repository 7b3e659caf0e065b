// Costs against hand-counted multiply-adds.
#include <gtest/gtest.h>

#include "model/families/gpt.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr double kTime = 32, kWidth = 64, kVocabulary = 100;

ModelGraph MakeGpt() {
  GptConfig config;
  config.layers = 1;
  config.width = 64;
  config.heads = 4;
  config.context = 32;
  config.vocabulary = 100;
  return *BuildGpt(config);
}

TEST(EstimateCost, Attention_CountsLinearMapsAndTheCausalHalf) {
  const ModelGraph model = MakeGpt();
  const LayerCost cost = EstimateCost(model, model.layers[1]);
  const double linear = 2 * kTime * kWidth * (3 * kWidth + kWidth);
  const double product = 2 * kTime * kTime * kWidth / 2;  // scores, or scores times values
  EXPECT_DOUBLE_EQ(cost.forward_flops, linear + 2 * product);
  EXPECT_DOUBLE_EQ(cost.backward_input_flops, linear + 5 * product);
  EXPECT_DOUBLE_EQ(cost.backward_weight_flops, linear);
}

TEST(EstimateCost, Mlp_AllPassesCostTheSame) {
  const ModelGraph model = MakeGpt();
  const LayerCost cost = EstimateCost(model, model.layers[2]);
  const double linear = 2 * 2 * kTime * kWidth * 4 * kWidth;
  EXPECT_DOUBLE_EQ(cost.forward_flops, linear);
  EXPECT_DOUBLE_EQ(cost.backward_input_flops, linear);
  EXPECT_DOUBLE_EQ(cost.backward_weight_flops, linear);
}

TEST(EstimateCost, Head_CountsTheLogits) {
  const ModelGraph model = MakeGpt();
  const LayerCost cost = EstimateCost(model, model.layers.back());
  EXPECT_DOUBLE_EQ(cost.forward_flops, 2 * kTime * kWidth * kVocabulary);
}

TEST(EstimateCost, Embedding_HasNoGradientOfItsInput) {
  const ModelGraph model = MakeGpt();
  const LayerCost cost = EstimateCost(model, model.layers[0]);
  EXPECT_DOUBLE_EQ(cost.backward_input_flops, 0.0);
  EXPECT_GT(cost.backward_weight_flops, 0.0);
}

}  // namespace
}  // namespace penstock
