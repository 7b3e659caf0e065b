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

// What backward computes a second time is work of the device, and none of the model.
TEST(EstimateCost, TrainingFlops_AreThriceAForwardWhateverIsComputedAgain) {
  const ModelGraph model = MakeGpt();
  const LayerCost attention = EstimateCost(model, model.layers[1]);
  EXPECT_DOUBLE_EQ(attention.training_flops(), 3 * attention.forward_flops);
  const LayerCost whole = EstimateCost(model);
  double forward = 0;
  for (const LayerSpec& layer : model.layers) forward += EstimateCost(model, layer).forward_flops;
  EXPECT_DOUBLE_EQ(whole.forward_flops, forward);
  // The embedding has no products; all other layers pass gradients on.
  EXPECT_DOUBLE_EQ(whole.training_flops(), 3 * forward);
}

TEST(EstimateCost, FrozenLayers_HaveNoBackwardOfTheirWeights) {
  ModelGraph model = MakeGpt();
  const LayerCost all = EstimateCost(model);
  for (Node& node : model.nodes) {
    for (ParameterSpec& parameter : node.parameters) parameter.frozen = true;
  }
  EXPECT_DOUBLE_EQ(EstimateCost(model).backward_weight_flops, 0);
  EXPECT_DOUBLE_EQ(EstimateCost(model).forward_flops, all.forward_flops);
}

// Queries of 4 heads of 16, over 32 time steps.
OpCost CostOfAttention(const Attributes& given, const std::vector<ValueType>& inputs) {
  const Op& op = **FindOp("attention");
  const Attributes attributes = *Complete(op.attributes, given);
  return op.cost({attributes, inputs});
}

TEST(EstimateCost, HeadsThatShareKeys_CostAsMuchAsOthers) {
  const double all_pairs = 2 * kTime * kTime * kWidth;
  const ValueType queries = {DType::kF32, {32, 64}}, keys = {DType::kF32, {32, 16}};
  const OpCost apart = CostOfAttention({{"heads", int64_t{4}}, {"key_value_heads", int64_t{1}}},
                                       {queries, keys, keys});
  EXPECT_DOUBLE_EQ(apart.forward_flops, 2 * all_pairs);
  const OpCost side_by_side =
      CostOfAttention({{"heads", int64_t{4}}, {"key_value_heads", int64_t{1}}, {"causal", true}},
                      {{DType::kF32, {32, 96}}});
  EXPECT_DOUBLE_EQ(side_by_side.forward_flops, all_pairs);
  EXPECT_DOUBLE_EQ(side_by_side.backward_input_flops, 5 * all_pairs / 2);
}

// A band of 8 time steps below the diagonal, and what the corner of it lacks.
TEST(EstimateCost, Window_CountsWhatItLeaves) {
  const auto forward_flops = [](int64_t window) {
    return CostOfAttention({{"heads", int64_t{4}}, {"causal", true}, {"window", window}},
                           {{DType::kF32, {32, 192}}})
        .forward_flops;
  };
  EXPECT_DOUBLE_EQ(forward_flops(8), 2 * 2 * kWidth * (kTime * 8 - 8 * 8 / 2));
  EXPECT_DOUBLE_EQ(forward_flops(32), forward_flops(0));
  EXPECT_DOUBLE_EQ(forward_flops(33), forward_flops(0));
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
