#include "checkpoint/weight_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "model/parameter_groups.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kDirectory[] = "/checkpoints/step-000000000003";

// A layer with a weight, a bias and running statistics, in the middle of training.
LayerSpec Layer() {
  LayerSpec layer = {.name = "norm"};
  for (const char* name : {"norm.weight", "norm.bias"}) {
    ParameterSpec& parameter = layer.parameters.emplace_back();
    parameter.name = name;
    parameter.shape = {2};
  }
  return layer;
}

LayerState State() {
  return {.layer = 0,
          .name = "norm",
          .weights = {{"norm.weight", {2}, {1, 2}},
                      {"norm.bias", {2}, {3, 4}},
                      {"norm.running_mean", {1}, {9}}},
          .optimizer_state = {{"norm.weight.exp_avg", {2}, {0, 0}},
                              {"norm.weight.ema", {2}, {10, 20}},
                              {"norm.bias.ema", {2}, {30, 40}}}};
}

TEST(ChooseWeights, Current_LeavesTheWeights) {
  LayerState state = State();
  EXPECT_THAT(ChooseWeights(WeightChoice::kCurrent, kDirectory, {}, Layer(), state), IsOk());
  EXPECT_THAT(state.weights[0].values, ElementsAre(1, 2));
  EXPECT_THAT(state.weights[1].values, ElementsAre(3, 4));
}

TEST(ChooseWeights, Average_TakesThePlaceOfParametersAlone) {
  LayerState state = State();
  EXPECT_THAT(ChooseWeights(WeightChoice::kAverage, kDirectory, {}, Layer(), state), IsOk());
  EXPECT_THAT(state.weights[0].values, ElementsAre(10, 20));
  EXPECT_THAT(state.weights[1].values, ElementsAre(30, 40));
  EXPECT_THAT(state.weights[2].values, ElementsAre(9));
}

TEST(ChooseWeights, ATrainedParameterWithoutOne_IsNamed) {
  LayerState state = State();
  state.optimizer_state.pop_back();
  EXPECT_THAT(ChooseWeights(WeightChoice::kAverage, kDirectory, {}, Layer(), state),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(kDirectory), HasSubstr("no average of norm.bias"),
                             HasSubstr("training.ema"))));
}

TEST(ChooseWeights, AnAverageOfAnotherShape_IsDamage) {
  LayerState state = State();
  state.optimizer_state.back() = {"norm.bias.ema", {1}, {30}};
  EXPECT_THAT(ChooseWeights(WeightChoice::kAverage, kDirectory, {}, Layer(), state),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("norm.bias.ema has shape [1], expected [2]")));
}

// What is frozen is known from the fingerprint, because a manifest that holds a GPT's numbers does not say it.
TEST(ChooseWeights, AFrozenParameter_KeepsItsWeight) {
  ModelGraph model = *BuildGpt({.layers = 2, .width = 16, .heads = 2, .context = 8});
  const std::vector<ParameterGroup> groups = {{.pattern = "h.0.ln_1.*", .frozen = true}};
  ASSERT_THAT(ApplyGroups(groups, model), IsOk());
  const Manifest manifest = {.fingerprint =
                                 MakeFingerprint({.model = model, .optimizer = AdamWConfig()})};
  EXPECT_THAT(FrozenParameters(manifest.fingerprint),
              ElementsAre("h.0.ln_1.bias", "h.0.ln_1.weight"));
  LayerSpec layer = Layer();
  layer.parameters[0].name = "h.0.ln_1.weight";
  LayerState state = {.weights = {{"h.0.ln_1.weight", {2}, {1, 2}}, {"norm.bias", {2}, {3, 4}}},
                      .optimizer_state = {{"norm.bias.ema", {2}, {30, 40}}}};
  EXPECT_THAT(ChooseWeights(WeightChoice::kAverage, kDirectory, manifest, layer, state), IsOk());
  EXPECT_THAT(state.weights[0].values, ElementsAre(1, 2));
  EXPECT_THAT(state.weights[1].values, ElementsAre(30, 40));
}

}  // namespace
}  // namespace penstock
