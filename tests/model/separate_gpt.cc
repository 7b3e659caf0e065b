#include "tests/model/separate_gpt.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

NodeSpec LinearSpec(std::string name, int64_t outputs, double deviation) {
  return {.name = std::move(name),
          .op = "linear",
          .attributes = {{"outputs", outputs},
                         {"layout", std::string("inputs_first")},
                         {"init", std::string("normal")},
                         {"deviation", deviation}}};
}

struct BranchParts {
  const char* norm;
  const char* expansion;
  int64_t expanded;
  NodeSpec middle;
  const char* projection;
  const char* result;
};

std::vector<NodeSpec> BranchSpecs(const GptConfig& c, const std::string& prefix,
                                  const std::string& input, BranchParts parts) {
  const std::string dropped = absl::StrCat(prefix, parts.result, ".dropout");
  return {{.name = prefix + parts.norm,
           .op = "layer_norm",
           .attributes = {{"width", c.width}},
           .inputs = {input}},
          LinearSpec(prefix + parts.expansion, parts.expanded, 0.02),
          std::move(parts.middle),
          LinearSpec(prefix + parts.projection, c.width, 0.02 / std::sqrt(2.0 * c.layers)),
          {.name = dropped, .op = "dropout", .attributes = {{"probability", c.dropout}}},
          {.name = prefix + parts.result, .op = "add", .inputs = {input, dropped}}};
}

}  // namespace

std::vector<NodeSpec> AttentionBranchSpecs(const GptConfig& c, const std::string& prefix,
                                           const std::string& input) {
  return BranchSpecs(c, prefix, input,
                     {.norm = "ln_1",
                      .expansion = "attn.c_attn",
                      .expanded = 3 * c.width,
                      .middle = {.name = prefix + "attn",
                                 .op = "attention",
                                 .attributes = {{"heads", c.heads}, {"causal", true}}},
                      .projection = "attn.c_proj",
                      .result = "attention"});
}

std::vector<NodeSpec> MlpBranchSpecs(const GptConfig& c, const std::string& prefix,
                                     const std::string& input) {
  return BranchSpecs(c, prefix, input,
                     {.norm = "ln_2",
                      .expansion = "mlp.c_fc",
                      .expanded = 4 * c.width,
                      .middle = {.name = prefix + "gelu",
                                 .op = "gelu",
                                 .attributes = {{"approximate", std::string("tanh")}}},
                      .projection = "mlp.c_proj",
                      .result = "mlp"});
}

ModelGraph SeparateGpt(const GptConfig& c) {
  GraphBuilder builder(kLayersArchitecture);
  builder.AddPort({"tokens", {DType::kI32, {c.context}}, c.vocabulary});
  builder.AddPort({"targets", {DType::kI32, {c.context}}, c.vocabulary});
  builder.BeginLayer("embedding");
  builder.Add({.op = "gpt_embedding",
               .attributes = {{"vocabulary", c.vocabulary},
                              {"context", c.context},
                              {"width", c.width},
                              {"dropout", c.dropout}},
               .inputs = {"tokens"},
               .parameter_prefix = ""});
  std::string before = "embedding";
  const auto add_layer = [&](const std::string& name, std::vector<NodeSpec> specs) {
    builder.BeginLayer(name);
    for (NodeSpec& spec : specs) builder.Add(std::move(spec));
    before = name;
  };
  for (int64_t block = 0; block < c.layers; ++block) {
    const std::string prefix = absl::StrCat("h.", block, ".");
    add_layer(prefix + "attention", AttentionBranchSpecs(c, prefix, before));
    add_layer(prefix + "mlp", MlpBranchSpecs(c, prefix, before));
  }
  add_layer(
      "final_norm",
      {{.op = "layer_norm", .attributes = {{"width", c.width}}, .parameter_prefix = "ln_f."}});
  add_layer("head", {{.op = "gpt_head",
                      .attributes = {{"vocabulary", c.vocabulary},
                                     {"width", c.width},
                                     {"weight", std::string(c.tied_head ? "tied" : "untied")}},
                      .inputs = {"final_norm", "targets"},
                      .parameter_prefix = ""}});
  ModelGraph model = *std::move(builder).Build();
  if (c.untie) Untie(model);
  return model;
}

}  // namespace penstock
