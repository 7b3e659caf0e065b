#include "model/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "model/bundle.h"
#include "model/families/gpt.h"
#include "model/graph_builder.h"
#include "model/parameter_groups.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

ModelGraph Gpt() {
  return *BuildGpt({.layers = 2,
                    .width = 6,
                    .heads = 2,
                    .context = 5,
                    .vocabulary = 11,
                    .dropout = 0.25,
                    .tied_head = true});
}

const ParameterSpec& Find(const ModelGraph& model, const std::string& name) {
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      if (parameter.name == name) return parameter;
    }
  }
  ADD_FAILURE() << "no parameter " << name;
  return model.layers.front().parameters.front();
}

std::vector<std::string> OpsOf(const ModelGraph& model, int layer) {
  std::vector<std::string> ops;
  const LayerSpec& spec = model.layers[layer];
  for (int n = spec.first_node; n < spec.end_node(); ++n) {
    ops.emplace_back(model.nodes[n].op->name);
  }
  return ops;
}

TEST(LinearMaps, OfAGpt_AreThoseOfItsBranches) {
  EXPECT_THAT(LinearMaps(Gpt()),
              ElementsAre("h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.mlp.c_fc", "h.0.mlp.c_proj",
                          "h.1.attn.c_attn", "h.1.attn.c_proj", "h.1.mlp.c_fc", "h.1.mlp.c_proj"));
}

TEST(AddLora, Adapters_AreNamedShapedAndDrawnAsInPeft) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model,
                                AddLora(Gpt(), {.rank = 4, .alpha = 2.0, .targets = {"*.c_attn"}}));
  const ParameterSpec& a = Find(model, "h.1.attn.c_attn.lora_A.weight");
  const ParameterSpec& b = Find(model, "h.1.attn.c_attn.lora_B.weight");
  EXPECT_THAT(a.shape, ElementsAre(4, 6));
  EXPECT_THAT(b.shape, ElementsAre(18, 4));
  EXPECT_EQ(a.init, ParameterSpec::Init::kUniform);
  // Kaiming uniform with a = sqrt(5): sqrt(6 / ((1 + 5) inputs)).
  EXPECT_DOUBLE_EQ(a.init_scale, 1.0 / std::sqrt(6.0));
  EXPECT_EQ(b.init, ParameterSpec::Init::kZeros);
  EXPECT_THAT(FindAdapters(model), ElementsAre(LoraAdapter{"h.0.attn.c_attn", 0.5, false},
                                               LoraAdapter{"h.1.attn.c_attn", 0.5, false}));
}

TEST(AddLora, BranchOfATarget_IsTakenApartAndOthersAreNot) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ModelGraph model,
      AddLora(Gpt(), {.rank = 4, .alpha = 2.0, .dropout = 0.1, .targets = {"h.0.mlp.c_proj"}}));
  EXPECT_THAT(OpsOf(model, 1), ElementsAre("attention_branch"));
  EXPECT_THAT(OpsOf(model, 2), ElementsAre("layer_norm", "linear", "gelu", "linear", "dropout",
                                           "linear", "linear", "scale", "add", "dropout", "add"));
}

TEST(AddLora, LayersCutsAndOtherParameters_StayAsTheyWere) {
  const ModelGraph model = Gpt();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph adapted,
                                AddLora(model, {.rank = 2, .targets = {"*"}}));
  ASSERT_EQ(adapted.size(), model.size());
  EXPECT_EQ(adapted.ties.size(), 1u);
  for (int layer = 0; layer < model.size(); ++layer) {
    EXPECT_EQ(adapted.layers[layer].name, model.layers[layer].name);
    EXPECT_EQ(ActivationsAt(adapted, layer, 3).elements, ActivationsAt(model, layer, 3).elements);
    for (const ParameterSpec& parameter : model.layers[layer].parameters) {
      EXPECT_THAT(adapted.layers[layer].parameters, Contains(parameter));
    }
  }
}

TEST(AddLora, MapsThatShareAWeight_ShareItsAdapter) {
  GraphBuilder builder("layers");
  builder.AddPort({"x", {DType::kF32, {4}}});
  builder.AddPort({"y", {DType::kF32, {4}}});
  for (const char* name : {"one", "two"}) {
    builder.BeginLayer(std::string(name) + "_layer");
    builder.Add({.name = name,
                 .op = "linear",
                 .attributes = {{"outputs", int64_t{4}}},
                 .inputs = {std::string(name) == "one" ? "x" : "one"},
                 .weights_of = std::string(name) == "one" ? "" : "one"});
  }
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"two", "y"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  EXPECT_THAT(LinearMaps(model), ElementsAre("one"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ModelGraph adapted,
                                AddLora(model, {.rank = 2, .targets = {"one"}}));
  EXPECT_THAT(ParameterNames(adapted),
              ElementsAre("one.weight", "one.bias", "one.lora_A.weight", "one.lora_B.weight"));
  EXPECT_THAT(FindAdapters(adapted), ElementsAre(LoraAdapter{"one", 8.0, true}));
  Untie(adapted);
  EXPECT_EQ(ParameterNames(adapted).size(), 8u);
}

}  // namespace
}  // namespace penstock
