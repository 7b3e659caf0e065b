#include "inference/merge_lora.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "compute/stage.h"
#include "model/families/gpt.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LoraAdapter Adapter(const char* map, double scale, bool outputs_first) {
  return {map, scale, outputs_first};
}

// W + 0.5 B A = [[1, 2], [3, 4]] + 0.5 [[1], [2]] [[10, 20]].
TEST(MergeLora, OfEitherLayout_AddsTheProduct) {
  const NamedArray a = {"m.lora_A.weight", {1, 2}, {10, 20}};
  const NamedArray b = {"m.lora_B.weight", {2, 1}, {1, 2}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      std::vector<NamedArray> merged,
      MergeLora({Adapter("m", 0.5, true)},
                {a, {"m.weight", {2, 2}, {1, 2, 3, 4}}, b, {"m.bias", {2}, {7, 8}}}));
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_THAT(merged[0].values, ElementsAre(6, 12, 13, 24));
  EXPECT_THAT(merged[1].values, ElementsAre(7, 8));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      merged, MergeLora({Adapter("m", 0.5, false)}, {{"m.weight", {2, 2}, {1, 3, 2, 4}}, a, b}));
  EXPECT_THAT(merged.front().values, ElementsAre(6, 13, 12, 24));
}

TEST(MergeLora, WhatDoesNotFit_IsNamed) {
  const NamedArray a = {"m.lora_A.weight", {1, 3}, {1, 2, 3}};
  const NamedArray b = {"m.lora_B.weight", {2, 1}, {1, 2}};
  const NamedArray weight = {"m.weight", {2, 2}, {1, 2, 3, 4}};
  EXPECT_THAT(MergeLora({Adapter("m", 1.0, true)}, {a, b, weight}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("m.lora_A.weight has shape [1, 3], expected [1, 2]")));
  EXPECT_THAT(MergeLora({Adapter("m", 1.0, true)}, {a, weight}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lora_B.weight is missing")));
}

ModelGraph Gpt() {
  return *BuildGpt({.layers = 2,
                    .width = 16,
                    .heads = 4,
                    .context = 8,
                    .vocabulary = 23,
                    .dropout = 0.25,
                    .tied_head = false});
}

// All layers, with arrays by layer.
std::unique_ptr<Stage> StageOf(Backend& backend, const ModelGraph& model) {
  auto stage = *Stage::Create(backend, model, {.layers = {0, model.size()}, .samples = 2});
  stage->InitializeWeights();
  return stage;
}

std::vector<float> LogitsOf(Stage& stage, const ModelGraph& model) {
  std::vector<Tensor> ports;
  for (const int port : stage.ports()) {
    std::vector<int32_t> ids(2 * model.ports[port].type.elements());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((7 * i + 3) % 23);
    ports.push_back(*stage.PortToDevice(
        port,
        absl::MakeSpan(reinterpret_cast<std::byte*>(ids.data()), ids.size() * sizeof(int32_t))));
  }
  return *stage.Predictions(0, Tensor(), ports);
}

// The model without adapters, with merged weights, computes what the adapted one does.
TEST(MergeLora, MergedModel_HasTheLogitsOfTheAdaptedOne) {
  const ModelGraph plain = Gpt();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ModelGraph adapted,
      AddLora(plain, {.rank = 3, .alpha = 6.0, .dropout = 0.1, .targets = {"*.c_attn", "h.1.*"}}));
  const auto backend = *MakeCpuBackend(1);
  const auto with_adapters = StageOf(*backend, adapted);
  const auto merged = StageOf(*backend, plain);
  const std::vector<float> before = LogitsOf(*merged, plain);
  EXPECT_EQ(LogitsOf(*with_adapters, adapted).size(), before.size());
  for (int layer = 0; layer < plain.size(); ++layer) {
    std::vector<NamedArray> weights = with_adapters->LayerWeights(layer);
    std::vector<LoraAdapter> of_layer;
    for (NamedArray& array : weights) {
      if (array.name.find(kLoraB) == std::string::npos) continue;
      for (size_t i = 0; i < array.values.size(); ++i) {
        array.values[i] = 0.1f * std::sin(static_cast<float>(i + layer));
      }
      for (const LoraAdapter& adapter : FindAdapters(adapted)) {
        if (array.name == adapter.map + "." + kLoraB) of_layer.push_back(adapter);
      }
    }
    ASSERT_THAT(with_adapters->LoadLayerWeights(layer, weights), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(weights, MergeLora(of_layer, std::move(weights)));
    ASSERT_THAT(merged->LoadLayerWeights(layer, weights), IsOk());
  }
  const std::vector<float> expected = LogitsOf(*with_adapters, adapted);
  const std::vector<float> logits = LogitsOf(*merged, plain);
  float largest = 0.0f;
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], expected[i], 2e-6) << i;
    largest = std::max(largest, std::abs(logits[i] - before[i]));
  }
  EXPECT_GT(largest, 1e-3) << "the adapters do nothing";
}

}  // namespace
}  // namespace penstock
