#include "model/pytorch_init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "model/families/gpt.h"
#include "model/graph_builder.h"
#include "model/lora.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using Init = ParameterSpec::Init;

struct Start {
  Init init;
  double scale;
  friend bool operator==(const Start&, const Start&) = default;
};

std::ostream& operator<<(std::ostream& out, const Start& start) {
  return out << "{" << static_cast<int>(start.init) << ", " << start.scale << "}";
}

Start Normal(double deviation) { return {Init::kNormal, deviation}; }
Start Within(double bound) { return {Init::kUniform, bound}; }
constexpr Start kOnes = {Init::kOnes, 0.0};
constexpr Start kZeros = {Init::kZeros, 0.0};

// By name. Nodes and layers have the same.
std::map<std::string, Start> StartsOf(const ModelGraph& model) {
  std::map<std::string, Start> starts;
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      starts[parameter.name] = {parameter.init, parameter.init_scale};
    }
  }
  for (const Node& node : model.nodes) {
    for (const ParameterSpec& parameter : node.parameters) {
      EXPECT_EQ(starts.at(parameter.name), (Start{parameter.init, parameter.init_scale}))
          << parameter.name;
    }
  }
  return starts;
}

std::map<std::string, Start> AsPyTorch(absl::StatusOr<ModelGraph> model) {
  EXPECT_THAT(model, IsOk());
  InitialiseAsPyTorch(*model);
  return StartsOf(*model);
}

constexpr GptConfig kGpt = {
    .layers = 1, .width = 16, .heads = 2, .context = 4, .vocabulary = 10, .tied_head = false};

// 16 inputs, so 1/4; the MLP's projection has 64.
TEST(PyTorchInit, Gpt_StartsAsItsModules) {
  const std::map<std::string, Start> expected = {
      {"wte.weight", Normal(1.0)},
      {"wpe.weight", Normal(1.0)},
      {"h.0.ln_1.weight", kOnes},
      {"h.0.ln_1.bias", kZeros},
      {"h.0.attn.c_attn.weight", Within(0.25)},
      {"h.0.attn.c_attn.bias", Within(0.25)},
      {"h.0.attn.c_proj.weight", Within(0.25)},
      {"h.0.attn.c_proj.bias", Within(0.25)},
      {"h.0.ln_2.weight", kOnes},
      {"h.0.ln_2.bias", kZeros},
      {"h.0.mlp.c_fc.weight", Within(0.25)},
      {"h.0.mlp.c_fc.bias", Within(0.25)},
      {"h.0.mlp.c_proj.weight", Within(0.125)},
      {"h.0.mlp.c_proj.bias", Within(0.125)},
      {"ln_f.weight", kOnes},
      {"ln_f.bias", kZeros},
      {"lm_head.weight", Within(0.25)},
  };
  EXPECT_EQ(AsPyTorch(BuildGpt(kGpt)), expected);
}

TEST(PyTorchInit, TiedHead_StartsAsTheTable) {
  GptConfig gpt = kGpt;
  gpt.tied_head = true;
  EXPECT_EQ(AsPyTorch(BuildGpt(gpt)).at("wte.weight"), Normal(1.0));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ModelGraph tied, BuildGpt(gpt));
  InitialiseAsPyTorch(tied);
  Untie(tied);
  const ParameterSpec& head = tied.layers.back().parameters.front();
  EXPECT_EQ(head.initial_as, "wte.weight");
  EXPECT_EQ((Start{head.init, head.init_scale}), Normal(1.0));
}

// An image [6, 6, 4] through 8 filters of 3 x 3 in 2 groups: 2 * 9 = 18 inputs. Then [4, 4, 8] = 128 inputs.
TEST(PyTorchInit, ImageModel_StartsWithinTheInputsOfAnOutput) {
  GraphBuilder builder("layers");
  builder.AddPort({"image", {DType::kF32, {6, 6, 4}}});
  builder.AddPort({"label", {DType::kI32, {}}, 5});
  builder.BeginLayer("body");
  builder.Add({.name = "conv",
               .op = "conv2d",
               .attributes = {{"channels", int64_t{8}},
                              {"kernel", int64_t{3}},
                              {"groups", int64_t{2}},
                              {"init", std::string("kaiming")}},
               .inputs = {"image"}});
  builder.Add({.name = "norm", .op = "batch_norm", .inputs = {"conv"}});
  builder.Add({.name = "flat", .op = "flatten", .inputs = {"norm"}});
  builder.Add({.name = "classes",
               .op = "linear",
               .attributes = {{"outputs", int64_t{5}}, {"init", std::string("normal")}},
               .inputs = {"flat"}});
  builder.BeginLayer("loss");
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"classes", "label"}});
  const std::map<std::string, Start> starts = AsPyTorch(std::move(builder).Build());
  EXPECT_EQ(starts.at("conv.weight"), Within(1.0 / std::sqrt(18.0)));
  EXPECT_EQ(starts.at("conv.bias"), Within(1.0 / std::sqrt(18.0)));
  EXPECT_EQ(starts.at("norm.weight"), kOnes);
  EXPECT_EQ(starts.at("norm.bias"), kZeros);
  EXPECT_EQ(starts.at("classes.weight"), Within(1.0 / std::sqrt(128.0)));
  EXPECT_EQ(starts.at("classes.bias"), Within(1.0 / std::sqrt(128.0)));
}

// A table of 7 rows that is drawn evenly, as a paper wants it; an LSTM of 9 hidden units; a map that begins with zeros.
TEST(PyTorchInit, SequenceModel_StartsAsItsModules) {
  GraphBuilder builder("layers");
  builder.AddPort({"tokens", {DType::kI32, {6}}, 7});
  builder.AddPort({"targets", {DType::kI32, {6}}, 7});
  builder.BeginLayer("body");
  builder.Add({.name = "table",
               .op = "embedding",
               .attributes = {{"vocabulary", int64_t{7}}, {"width", int64_t{4}}, {"bound", 0.1}},
               .inputs = {"tokens"}});
  builder.Add({.name = "lstm",
               .op = "lstm",
               .attributes = {{"hidden", int64_t{9}}, {"bound", 0.1}},
               .inputs = {"table"}});
  builder.Add({.name = "zeros",
               .op = "linear",
               .attributes = {{"outputs", int64_t{7}}, {"init", std::string("zeros")}},
               .inputs = {"lstm"}});
  builder.BeginLayer("loss");
  builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"zeros", "targets"}});
  const std::map<std::string, Start> starts = AsPyTorch(std::move(builder).Build());
  EXPECT_EQ(starts.at("table.weight"), Normal(1.0));
  for (const char* name : {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}) {
    EXPECT_EQ(starts.at(std::string("lstm.") + name), Within(1.0 / 3.0)) << name;
  }
  EXPECT_EQ(starts.at("zeros.weight").init, Init::kZeros);
  EXPECT_EQ(starts.at("zeros.bias").init, Init::kZeros);
}

// Adapters add nothing at first.
TEST(PyTorchInit, Adapters_KeepTheirZeros) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph gpt, BuildGpt(kGpt));
  const std::map<std::string, Start> starts =
      AsPyTorch(AddLora(gpt, {.rank = 2, .alpha = 2.0, .targets = {"*.c_attn"}}));
  EXPECT_EQ(starts.at("h.0.attn.c_attn.weight"), Within(0.25));
  EXPECT_EQ(starts.at("h.0.attn.c_attn.lora_A.weight"), Within(0.25));
  EXPECT_EQ(starts.at("h.0.attn.c_attn.lora_B.weight").init, Init::kZeros);
}

}  // namespace
}  // namespace penstock
