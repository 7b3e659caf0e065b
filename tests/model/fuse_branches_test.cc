// Which branches are found, and what is left of a model around them. That fused nodes compute the same is for
// tests/compute/fused_branches_test.cc.
#include "model/fuse_branches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/bundle.h"
#include "model/layer_order.h"
#include "tests/model/separate_gpt.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

GptConfig FusibleGpt() {
  return {.layers = 2, .width = 6, .heads = 2, .context = 5, .vocabulary = 11, .dropout = 0.25};
}

std::vector<std::string> OpsIn(const ModelGraph& model) {
  std::vector<std::string> ops;
  for (const Node& node : model.nodes) ops.emplace_back(node.op->name);
  return ops;
}

TEST(FuseBranches, GptInSeparateOps_BecomesTheFamilys) {
  const std::vector<void (*)(GptConfig&)> changes = {
      [](GptConfig&) {},
      [](GptConfig& config) { config.dropout = 0.0; },
      [](GptConfig& config) { config.tied_head = false; },
      [](GptConfig& config) { config.untie = true; },
  };
  for (const auto& change : changes) {
    GptConfig config = FusibleGpt();
    change(config);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(ModelGraph family, BuildGpt(config));
    family.architecture = kLayersArchitecture;
    // Fused nodes have parameters of several prefixes.
    for (Node& node : family.nodes) {
      if (node.op->name == "attention_branch" || node.op->name == "mlp_branch") {
        node.parameter_prefix.clear();
      }
    }
    EXPECT_EQ(FuseBranches(SeparateGpt(config)), family);
  }
}

TEST(FuseBranches, OfAFusedModel_ChangesNothing) {
  const ModelGraph fused = FuseBranches(SeparateGpt(FusibleGpt()));
  EXPECT_EQ(FuseBranches(fused), fused);
}

TEST(FuseBranches, WhatCrossesCutsAndWhatLayersHave_StaysAsItIs) {
  const ModelGraph model = SeparateGpt(FusibleGpt());
  const ModelGraph fused = FuseBranches(model);
  ASSERT_EQ(fused.size(), model.size());
  EXPECT_LT(fused.nodes.size(), model.nodes.size());
  EXPECT_EQ(fused.ties, model.ties);
  for (int layer = 0; layer < model.size(); ++layer) {
    EXPECT_EQ(fused.layers[layer].name, model.layers[layer].name);
    EXPECT_EQ(fused.layers[layer].parameters, model.layers[layer].parameters);
    const Bundle before = ActivationsAt(model, layer, 3);
    const Bundle after = ActivationsAt(fused, layer, 3);
    EXPECT_EQ(after.elements, before.elements);
    ASSERT_EQ(after.parts.size(), before.parts.size());
    for (size_t part = 0; part < after.parts.size(); ++part) {
      EXPECT_EQ(after.parts[part].offset, before.parts[part].offset);
      EXPECT_EQ(fused.NameOf(after.parts[part].value), model.NameOf(before.parts[part].value));
    }
  }
}

// A table, one layer of nodes that a test lists, and a head. The norm of the nodes reads "scaled", which is another
// function of the table.
class OneBranch {
 public:
  using Specs = std::vector<NodeSpec>;

  static Specs Attention() { return AttentionBranchSpecs(FusibleGpt(), "", "scaled"); }
  static Specs Mlp() { return MlpBranchSpecs(FusibleGpt(), "", "scaled"); }

  // `cut`: the node that begins another layer; 0: none does. `also_read`: what the head reads besides, and a node
  // called "other".
  static ModelGraph With(const Specs& specs, size_t cut = 0, const std::string& also_read = "") {
    const GptConfig c = FusibleGpt();
    GraphBuilder builder(kLayersArchitecture);
    builder.AddPort({"tokens", {DType::kI32, {c.context}}});
    builder.AddPort({"targets", {DType::kI32, {c.context}}});
    builder.BeginLayer("table");
    builder.Add({.op = "embedding",
                 .attributes = {{"vocabulary", c.vocabulary}, {"width", c.width}},
                 .inputs = {"tokens"}});
    builder.BeginLayer("branch");
    builder.Add({.name = "scaled", .op = "rms_norm"});
    for (size_t i = 0; i < specs.size(); ++i) {
      if (cut > 0 && i == cut) builder.BeginLayer("rest");
      builder.Add(specs[i]);
    }
    builder.BeginLayer("head");
    std::vector<std::string> read = {specs.back().name, "table"};
    if (builder.TypeOf("other") != nullptr) read.emplace_back("other");
    if (!also_read.empty()) read.push_back(also_read);
    builder.Add({.name = "all", .op = "concat", .inputs = read});
    builder.Add({.name = "logits", .op = "linear", .attributes = {{"outputs", c.vocabulary}}});
    builder.Add({.name = "loss", .op = "cross_entropy", .inputs = {"logits", "targets"}});
    absl::StatusOr<ModelGraph> model = std::move(builder).Build();
    EXPECT_THAT(model, IsOk());
    return *std::move(model);
  }
};

enum Part { kNorm, kExpansion, kMiddle, kProjection, kDropout, kSum };

void SetWord(NodeSpec& spec, const char* name, const char* word) {
  spec.attributes.Set(name, std::string(word));
}

TEST(FuseBranches, Variants_AreFound) {
  struct Variant {
    const char* name;
    std::function<void(OneBranch::Specs&)> change;
  };
  const std::vector<Variant> variants = {
      {"as it is", [](OneBranch::Specs&) {}},
      {"no dropout",
       [](OneBranch::Specs& specs) {
         specs.erase(specs.begin() + kDropout);
         specs.back().inputs.back() = specs[kProjection].name;
       }},
      {"the sum the other way round",
       [](OneBranch::Specs& specs) { std::swap(specs[kSum].inputs[0], specs[kSum].inputs[1]); }},
      {"PyTorch's layout",
       [](OneBranch::Specs& specs) {
         SetWord(specs[kExpansion], "layout", "outputs_first");
         SetWord(specs[kProjection], "layout", "outputs_first");
       }},
      {"PyTorch's first weights",
       [](OneBranch::Specs& specs) { SetWord(specs[kExpansion], "init", "uniform"); }},
  };
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    OneBranch::Specs attention = OneBranch::Attention(), mlp = OneBranch::Mlp();
    variant.change(attention);
    variant.change(mlp);
    const ModelGraph of_attention = FuseBranches(OneBranch::With(attention));
    EXPECT_THAT(OpsIn(of_attention), ElementsAre("embedding", "rms_norm", "attention_branch",
                                                 "concat", "linear", "cross_entropy"));
    EXPECT_THAT(
        OpsIn(FuseBranches(OneBranch::With(mlp))),
        ElementsAre("embedding", "rms_norm", "mlp_branch", "concat", "linear", "cross_entropy"));
    EXPECT_EQ(of_attention.NameOf(of_attention.nodes[2].inputs[0]), "scaled");
  }
}

// Whatever the fused ops do not compute, or others need, stays in separate ops.
TEST(FuseBranches, NearMisses_AreLeftAlone) {
  struct Miss {
    const char* name;
    std::function<void(OneBranch::Specs&)> change;
    bool of_attention = true, of_mlp = true;
  };
  const auto behind = [](OneBranch::Specs& specs, Part part, NodeSpec spec) {
    specs.insert(specs.begin() + part + 1, std::move(spec));
  };
  const std::vector<Miss> misses = {
      {"another epsilon", [](auto& specs) { specs[kNorm].attributes.Set("epsilon", 1e-6); }},
      {"another norm",
       [](auto& specs) {
         specs[kNorm].op = "rms_norm";
         specs[kNorm].attributes = {};
       }},
      {"no bias of the expansion",
       [](auto& specs) { specs[kExpansion].attributes.Set("bias", false); }},
      {"no bias of the projection",
       [](auto& specs) { specs[kProjection].attributes.Set("bias", false); }},
      {"two layouts", [](auto& specs) { SetWord(specs[kProjection], "layout", "outputs_first"); }},
      {"a mask that is not causal",
       [](auto& specs) { specs[kMiddle].attributes.Set("causal", false); }, true, false},
      {"a window", [](auto& specs) { specs[kMiddle].attributes.Set("window", int64_t{2}); }, true,
       false},
      {"heads that share keys",
       [](auto& specs) {
         specs[kExpansion].attributes.Set("outputs", int64_t{12});
         specs[kMiddle].attributes.Set("key_value_heads", int64_t{1});
       },
       true, false},
      {"keys, values and queries apart",
       [](auto& specs) {
         specs[kExpansion].attributes.Set("outputs", int64_t{6});
         specs[kMiddle].inputs.assign(3, specs[kExpansion].name);
       },
       true, false},
      {"the exact GELU", [](auto& specs) { SetWord(specs[kMiddle], "approximate", "erf"); }, false},
      {"another activation",
       [](auto& specs) {
         specs[kMiddle].op = "relu";
         specs[kMiddle].attributes = {};
       },
       false},
      {"masks for all time steps", [](auto& specs) { SetWord(specs[kDropout], "kind", "locked"); }},
      {"dropout of what is projected",
       [&](auto& specs) {
         behind(specs, kMiddle,
                {.name = "inner", .op = "dropout", .attributes = {{"probability", 0.1}}});
       }},
      {"two dropouts",
       [&](auto& specs) {
         behind(specs, kDropout,
                {.name = "inner", .op = "dropout", .attributes = {{"probability", 0.1}}});
         specs.back().inputs.back() = "inner";
       }},
      {"a node of another branch between them",
       [&](auto& specs) {
         behind(specs, kNorm, {.name = "other", .op = "relu", .inputs = {"table"}});
         specs[2].inputs = {specs[kNorm].name};
       }},
      {"a sum with another value", [](auto& specs) { specs[kSum].inputs.front() = "table"; }},
      {"a sum of three", [](auto& specs) { specs[kSum].inputs.emplace_back("table"); }},
      {"a sum with itself",
       [](auto& specs) { specs[kSum].inputs.front() = specs[kSum].inputs.back(); }},
      {"a product in the place of the sum", [](auto& specs) { specs[kSum].op = "mul"; }},
  };
  for (const Miss& miss : misses) {
    SCOPED_TRACE(miss.name);
    for (const bool attends : {true, false}) {
      if (!(attends ? miss.of_attention : miss.of_mlp)) continue;
      OneBranch::Specs specs = attends ? OneBranch::Attention() : OneBranch::Mlp();
      miss.change(specs);
      const ModelGraph model = OneBranch::With(specs);
      EXPECT_EQ(FuseBranches(model), model) << (attends ? "attention" : "mlp");
    }
  }
}

TEST(FuseBranches, ValuesInsideThatOthersRead_AreKept) {
  for (const OneBranch::Specs& specs : {OneBranch::Attention(), OneBranch::Mlp()}) {
    for (int part = kNorm; part < kSum; ++part) {
      const ModelGraph model = OneBranch::With(specs, /*cut=*/0, specs[part].name);
      EXPECT_EQ(FuseBranches(model), model) << specs[part].name;
    }
    const ModelGraph reads_input = OneBranch::With(specs, /*cut=*/0, "scaled");
    EXPECT_LT(FuseBranches(reads_input).nodes.size(), reads_input.nodes.size());
  }
}

TEST(FuseBranches, BranchesOfTwoLayers_CanStillBeCut) {
  for (const OneBranch::Specs& specs : {OneBranch::Attention(), OneBranch::Mlp()}) {
    for (size_t cut = kExpansion; cut <= kSum; ++cut) {
      const ModelGraph model = OneBranch::With(specs, cut);
      EXPECT_EQ(FuseBranches(model), model) << "cut before " << specs[cut].name;
    }
  }
}

// Rows of rows, which the separate ops take.
TEST(FuseBranches, ShapesThatTheOpsDoNotTake_AreLeftAlone) {
  GraphBuilder builder(kLayersArchitecture);
  builder.AddPort({"x", {DType::kF32, {2, 3, 6}}});
  builder.AddPort({"y", {DType::kF32, {2, 3, 6}}});
  builder.BeginLayer("branch");
  for (NodeSpec& spec : MlpBranchSpecs(FusibleGpt(), "", "x")) builder.Add(std::move(spec));
  builder.Add({.name = "loss", .op = "mse", .inputs = {"mlp", "y"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  EXPECT_EQ(FuseBranches(model), model);
}

// Two branches side by side: the order of layers and the search for branches do not mind each other.
TEST(FuseBranches, InAnyOrderOfLayers_FindsTheSame) {
  GraphBuilder builder(kLayersArchitecture);
  builder.AddPort({"x", {DType::kF32, {5, 6}}});
  builder.AddPort({"y", {DType::kF32, {5, 6}}});
  const auto add_layer = [&](const std::string& name, std::vector<NodeSpec> specs) {
    builder.BeginLayer(name);
    for (NodeSpec& spec : specs) builder.Add(std::move(spec));
  };
  add_layer("left", AttentionBranchSpecs(FusibleGpt(), "left.", "x"));
  add_layer("right", MlpBranchSpecs(FusibleGpt(), "right.", "x"));
  add_layer("both", {{.name = "product", .op = "mul", .inputs = {"left.attention", "right.mlp"}},
                     {.name = "loss", .op = "mse", .inputs = {"product", "y"}}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  const std::vector<std::string> order = {"right", "left", "both"};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph ordered, InLayerOrder(model, order));
  EXPECT_THAT(OpsIn(FuseBranches(ordered)),
              ElementsAre("mlp_branch", "attention_branch", "mul", "mse"));
  EXPECT_THAT(InLayerOrder(FuseBranches(model), order), IsOkAndHolds(FuseBranches(ordered)));
}

}  // namespace
}  // namespace penstock
