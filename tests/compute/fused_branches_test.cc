// Fused branches compute what the nodes that they stand for compute, with the same first weights and masks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compute/stage.h"
#include "model/fuse_branches.h"
#include "tests/model/separate_gpt.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kFusedSamples = 3;

// Loss and gradients, by layer, of a microbatch in training.
struct Passed {
  double loss = 0.0;
  std::vector<std::vector<NamedArray>> gradients;
};

Passed Pass(const ModelGraph& model, Precision precision) {
  const std::unique_ptr<Backend> backend = *MakeCpuBackend(1);
  const absl::StatusOr<std::unique_ptr<Stage>> made = Stage::Create(
      *backend, model,
      {.layers = {0, model.size()}, .samples = kFusedSamples, .precision = precision, .seed = 5});
  EXPECT_THAT(made, IsOk());
  Stage& stage = **made;
  stage.InitializeWeights();
  std::vector<Tensor> ports;
  for (const int port : stage.ports()) {
    const Port& spec = model.ports[port];
    std::vector<int32_t> ids(kFusedSamples * spec.type.elements());
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((3 * i * i + 7 * i + port) % spec.ids);
    }
    const absl::StatusOr<Tensor> tensor = stage.PortToDevice(
        port, {reinterpret_cast<const std::byte*>(ids.data()), ids.size() * sizeof(int32_t)});
    EXPECT_THAT(tensor, IsOk());
    ports.push_back(*tensor);
  }
  Passed passed;
  const absl::StatusOr<Tensor> loss = stage.Forward(MicrobatchId(0), 0, 0, Tensor(), ports);
  EXPECT_THAT(loss, IsOk());
  passed.loss = *stage.ReadLoss(*loss);
  EXPECT_THAT(stage.BackwardInput(MicrobatchId(0), 0, Tensor(), 1.0f), IsOk());
  EXPECT_THAT(stage.BackwardWeight(MicrobatchId(0)), IsOk());
  stage.CombineUses();
  for (int layer = 0; layer < model.size(); ++layer) {
    passed.gradients.push_back(stage.LayerGradients(layer));
  }
  return passed;
}

double Norm(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// Within `tolerance` of the norm of each tensor, and beside that of the largest.
void ExpectNear(const Passed& fused, const Passed& separate, double tolerance) {
  EXPECT_NEAR(fused.loss, separate.loss, tolerance * separate.loss);
  double largest = 0.0;
  for (const auto& layer : separate.gradients) {
    for (const NamedArray& array : layer) largest = std::max(largest, Norm(array.values));
  }
  ASSERT_EQ(fused.gradients.size(), separate.gradients.size());
  for (size_t layer = 0; layer < separate.gradients.size(); ++layer) {
    ASSERT_EQ(fused.gradients[layer].size(), separate.gradients[layer].size());
    for (size_t p = 0; p < separate.gradients[layer].size(); ++p) {
      const NamedArray& expected = separate.gradients[layer][p];
      EXPECT_EQ(fused.gradients[layer][p].name, expected.name);
      std::vector<float> difference = fused.gradients[layer][p].values;
      ASSERT_EQ(difference.size(), expected.values.size());
      for (size_t i = 0; i < difference.size(); ++i) difference[i] -= expected.values[i];
      EXPECT_LE(Norm(difference), tolerance * (Norm(expected.values) + 0.01 * largest))
          << expected.name;
    }
  }
}

GptConfig WithDropout() {
  return {.layers = 2, .width = 24, .heads = 3, .context = 10, .vocabulary = 13, .dropout = 0.25};
}

TEST(FusedBranches, OfGpt_ComputeWhatSeparateOpsDo) {
  for (const bool tied : {true, false}) {
    GptConfig config = WithDropout();
    config.tied_head = tied;
    const ModelGraph model = SeparateGpt(config);
    const ModelGraph fused = FuseBranches(model);
    ASSERT_EQ(fused.nodes.size(), 7u);
    ExpectNear(Pass(fused, Precision::kF32), Pass(model, Precision::kF32), 1e-5);
    ExpectNear(Pass(fused, Precision::kBf16), Pass(model, Precision::kBf16), 2e-2);
  }
}

// Branches of several chunks of rows, whose weights are packed once for a pass: large ones in f32, narrow ones in bf16.
TEST(FusedBranches, OfSeveralChunks_ComputeWhatSeparateOpsDo) {
  GptConfig config = {.layers = 1, .width = 512, .heads = 8, .context = 256, .vocabulary = 13};
  ModelGraph model = SeparateGpt(config);
  ExpectNear(Pass(FuseBranches(model), Precision::kF32), Pass(model, Precision::kF32), 1e-5);
  config.width = 128;
  config.heads = 2;
  model = SeparateGpt(config);
  ExpectNear(Pass(FuseBranches(model), Precision::kBf16), Pass(model, Precision::kBf16), 2e-2);
}

TEST(FusedBranches, OfGpt_AreThoseOfTheFamily) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph family, BuildGpt(WithDropout()));
  const Passed expected = Pass(family, Precision::kF32);
  const Passed fused = Pass(FuseBranches(SeparateGpt(WithDropout())), Precision::kF32);
  EXPECT_EQ(fused.loss, expected.loss);
  ASSERT_EQ(fused.gradients.size(), expected.gradients.size());
  for (size_t layer = 0; layer < expected.gradients.size(); ++layer) {
    for (size_t p = 0; p < expected.gradients[layer].size(); ++p) {
      EXPECT_EQ(fused.gradients[layer][p].values, expected.gradients[layer][p].values)
          << expected.gradients[layer][p].name;
    }
  }
}

// Both branches in one layer, weights as PyTorch lays them out, a weight that the two maps of the MLP share, and a
// second MLP that reads the parameters of the first.
ModelGraph SharingModel() {
  GptConfig config = WithDropout();
  GraphBuilder builder(kLayersArchitecture);
  builder.AddPort({"tokens", {DType::kI32, {config.context}}});
  builder.AddPort({"targets", {DType::kI32, {config.context}}});
  builder.BeginLayer("table");
  builder.Add({.op = "embedding",
               .attributes = {{"vocabulary", config.vocabulary}, {"width", config.width}},
               .inputs = {"tokens"}});
  const auto add = [&](std::vector<NodeSpec> specs, bool is_mlp, bool shares) {
    for (size_t part = 0; part < specs.size(); ++part) {
      NodeSpec& spec = specs[part];
      if (spec.op == "linear") {
        spec.attributes.Set("layout", std::string("outputs_first"));
        spec.attributes.Set("init", std::string("uniform"));
        if (is_mlp) spec.attributes.Set("outputs", config.width);
        if (is_mlp && part == 3) spec.weights_of = specs[1].name;
      }
      if (shares && (spec.op == "linear" || spec.op == "layer_norm")) {
        spec.weights_of = "first." + spec.name.substr(spec.name.find('.') + 1);
      }
      builder.Add(spec);
    }
  };
  builder.BeginLayer("block");
  add(AttentionBranchSpecs(config, "first.", "table"), false, false);
  add(MlpBranchSpecs(config, "first.", "first.attention"), true, false);
  builder.BeginLayer("again");
  add(MlpBranchSpecs(config, "second.", "first.mlp"), true, true);
  builder.BeginLayer("head");
  builder.Add({.name = "logits", .op = "linear", .attributes = {{"outputs", config.vocabulary}}});
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
  return *std::move(builder).Build();
}

TEST(FusedBranches, ThatShareWeights_ComputeWhatSeparateOpsDo) {
  const ModelGraph model = SharingModel();
  ASSERT_TRUE(model.tied());
  const ModelGraph fused = FuseBranches(model);
  ASSERT_EQ(fused.nodes.size(), 6u);
  EXPECT_EQ(fused.nodes[1].attributes.word("layout"), "outputs_first");
  ExpectNear(Pass(fused, Precision::kF32), Pass(model, Precision::kF32), 1e-5);
  ExpectNear(Pass(fused, Precision::kBf16), Pass(model, Precision::kBf16), 2e-2);
}

}  // namespace
}  // namespace penstock
