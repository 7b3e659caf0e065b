// The families llama and bert: parameters as transformers (5.24) counts them for published configurations, their names
// there, and what each layer hands on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "model/bundle.h"
#include "model/describe.h"
#include "model/families/bert.h"
#include "model/families/llama.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

const LlamaConfig kTiny = {.layers = 2,
                           .width = 8,
                           .heads = 4,
                           .key_value_heads = 2,
                           .head_size = 6,
                           .hidden = 10,
                           .context = 5,
                           .vocabulary = 20};
const BertConfig kTinyBert = {.layers = 2,
                              .width = 8,
                              .heads = 2,
                              .hidden = 10,
                              .context = 5,
                              .positions = 7,
                              .vocabulary = 20,
                              .segments = 3};

TEST(Llama, PublishedConfigurations_HaveTransformersParameters) {
  const std::pair<LlamaConfig, int64_t> known[] = {
      // Llama 2 7B, Llama 3 8B, Llama 3.2 1B.
      {{.layers = 32,
        .width = 4096,
        .heads = 32,
        .hidden = 11008,
        .context = 64,
        .vocabulary = 32000},
       6738415616},
      {{.layers = 32,
        .width = 4096,
        .heads = 32,
        .key_value_heads = 8,
        .hidden = 14336,
        .context = 64,
        .vocabulary = 128256},
       8030261248},
      {{.layers = 16,
        .width = 2048,
        .heads = 32,
        .key_value_heads = 8,
        .head_size = 64,
        .hidden = 8192,
        .context = 64,
        .vocabulary = 128256,
        .tied_head = true},
       1235814400},
      // Mistral 7B.
      {{.layers = 32,
        .width = 4096,
        .heads = 32,
        .key_value_heads = 8,
        .hidden = 14336,
        .context = 64,
        .vocabulary = 32000,
        .window = 4096},
       7241732096},
      // Qwen 2.5 0.5B, Qwen 3 0.6B.
      {{.layers = 24,
        .width = 896,
        .heads = 14,
        .key_value_heads = 2,
        .hidden = 4864,
        .context = 64,
        .vocabulary = 151936,
        .qkv_bias = true,
        .tied_head = true},
       494032768},
      {{.layers = 28,
        .width = 1024,
        .heads = 16,
        .key_value_heads = 8,
        .head_size = 128,
        .hidden = 3072,
        .context = 64,
        .vocabulary = 151936,
        .qk_norm = true,
        .tied_head = true},
       596049920},
  };
  for (const auto& [config, parameters] : known) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildLlama(config));
    EXPECT_EQ(model.parameter_count(), parameters);
    EXPECT_EQ(model.size(), 2 * config.layers + 3);
  }
}

TEST(Bert, BaseConfiguration_HasTransformersParameters) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph mlm, BuildBert({.context = 512}));
  EXPECT_EQ(mlm.parameter_count(), 109514298);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph classifier,
                                BuildBert({.context = 512, .head = kClassificationHead}));
  EXPECT_EQ(classifier.parameter_count(), 109483778);
}

using Shapes = std::map<std::string, std::vector<int64_t>>;

// Parameters of the layers whose names begin so.
Shapes ShapesOf(const ModelGraph& model, const std::string& beginning) {
  Shapes shapes;
  for (const LayerSpec& layer : model.layers) {
    if (layer.name.substr(0, beginning.size()) != beginning) continue;
    for (const ParameterSpec& parameter : layer.parameters)
      shapes[parameter.name] = parameter.shape;
  }
  return shapes;
}

TEST(Llama, Parameters_HaveTransformersNamesAndLayouts) {
  LlamaConfig config = kTiny;
  config.qkv_bias = config.qk_norm = true;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildLlama(config));
  EXPECT_THAT(
      ShapesOf(model, "layers.1."),
      UnorderedElementsAre(Pair("model.layers.1.input_layernorm.weight", ElementsAre(8)),
                           Pair("model.layers.1.self_attn.q_proj.weight", ElementsAre(24, 8)),
                           Pair("model.layers.1.self_attn.q_proj.bias", ElementsAre(24)),
                           Pair("model.layers.1.self_attn.k_proj.weight", ElementsAre(12, 8)),
                           Pair("model.layers.1.self_attn.k_proj.bias", ElementsAre(12)),
                           Pair("model.layers.1.self_attn.v_proj.weight", ElementsAre(12, 8)),
                           Pair("model.layers.1.self_attn.v_proj.bias", ElementsAre(12)),
                           Pair("model.layers.1.self_attn.q_norm.weight", ElementsAre(6)),
                           Pair("model.layers.1.self_attn.k_norm.weight", ElementsAre(6)),
                           Pair("model.layers.1.self_attn.o_proj.weight", ElementsAre(8, 24)),
                           Pair("model.layers.1.post_attention_layernorm.weight", ElementsAre(8)),
                           Pair("model.layers.1.mlp.gate_proj.weight", ElementsAre(10, 8)),
                           Pair("model.layers.1.mlp.up_proj.weight", ElementsAre(10, 8)),
                           Pair("model.layers.1.mlp.down_proj.weight", ElementsAre(8, 10))));
  Shapes ends = ShapesOf(model, "embedding");
  ends.merge(ShapesOf(model, "final_norm"));
  ends.merge(ShapesOf(model, "head"));
  EXPECT_THAT(ends, UnorderedElementsAre(Pair("model.embed_tokens.weight", ElementsAre(20, 8)),
                                         Pair("model.norm.weight", ElementsAre(8)),
                                         Pair("lm_head.weight", ElementsAre(20, 8))));
}

TEST(Llama, TiedHead_SharesTheEmbedding) {
  LlamaConfig config = kTiny;
  config.tied_head = true;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ModelGraph model, BuildLlama(config));
  ASSERT_EQ(model.ties.size(), 1u);
  EXPECT_EQ(model.ties[0].parameters[0].name, "model.embed_tokens.weight");
  Untie(model);
  EXPECT_EQ(model.layers.back().parameters[0].name, "lm_head.weight");
}

TEST(Bert, Parameters_HaveTransformersNamesAndLayouts) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph mlm, BuildBert(kTinyBert));
  EXPECT_THAT(
      ShapesOf(mlm, "embedding"),
      UnorderedElementsAre(Pair("bert.embeddings.word_embeddings.weight", ElementsAre(20, 8)),
                           Pair("bert.embeddings.position_embeddings.weight", ElementsAre(7, 8)),
                           Pair("bert.embeddings.token_type_embeddings.weight", ElementsAre(3, 8)),
                           Pair("bert.embeddings.LayerNorm.weight", ElementsAre(8)),
                           Pair("bert.embeddings.LayerNorm.bias", ElementsAre(8))));
  const std::string attention = "bert.encoder.layer.1.attention.";
  EXPECT_THAT(ShapesOf(mlm, "layer.1.attention"),
              UnorderedElementsAre(Pair(attention + "self.query.weight", ElementsAre(8, 8)),
                                   Pair(attention + "self.query.bias", ElementsAre(8)),
                                   Pair(attention + "self.key.weight", ElementsAre(8, 8)),
                                   Pair(attention + "self.key.bias", ElementsAre(8)),
                                   Pair(attention + "self.value.weight", ElementsAre(8, 8)),
                                   Pair(attention + "self.value.bias", ElementsAre(8)),
                                   Pair(attention + "output.dense.weight", ElementsAre(8, 8)),
                                   Pair(attention + "output.dense.bias", ElementsAre(8)),
                                   Pair(attention + "output.LayerNorm.weight", ElementsAre(8)),
                                   Pair(attention + "output.LayerNorm.bias", ElementsAre(8))));
  EXPECT_THAT(
      ShapesOf(mlm, "head"),
      UnorderedElementsAre(Pair("bert.embeddings.word_embeddings.weight", ElementsAre(20, 8)),
                           Pair("cls.predictions.bias", ElementsAre(20))));
  BertConfig config = kTinyBert;
  config.head = kClassificationHead;
  config.classes = 3;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph classifier, BuildBert(config));
  EXPECT_THAT(ShapesOf(classifier, "head"),
              UnorderedElementsAre(Pair("classifier.weight", ElementsAre(3, 8)),
                                   Pair("classifier.bias", ElementsAre(3))));
  EXPECT_THAT(ShapesOf(classifier, "pooler"),
              UnorderedElementsAre(Pair("bert.pooler.dense.weight", ElementsAre(8, 8)),
                                   Pair("bert.pooler.dense.bias", ElementsAre(8))));
}

TEST(Transformers, Blocks_PassOneValueOnAndAreOfOneShape) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph llama, BuildLlama(kTiny));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph bert, BuildBert(kTinyBert));
  for (const ModelGraph* model : {&llama, &bert}) {
    for (int cut = 1; cut < model->size(); ++cut) {
      EXPECT_EQ(ActivationsAt(*model, cut, 1).parts.size(), 1u) << cut;
    }
    EXPECT_EQ(FirstLayersOfShapes(*model).size(),
              5u);  // two ends of each, and the two halves of a block
  }
}

TEST(Bert, TargetsThatAreNotMasked_AreIgnored) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildBert(kTinyBert));
  EXPECT_EQ(model.loss().ignored, kUnmaskedTarget);
  EXPECT_EQ(model.ports[model.targets()].name, "targets");
  EXPECT_EQ(model.IgnoredIn(model.targets()), kUnmaskedTarget);
}

TEST(Llama, BadNumbers_AreNamedWithWhatWouldDo) {
  const auto after = [](void (*change)(LlamaConfig&)) {
    LlamaConfig config = kTiny;
    change(config);
    return BuildLlama(config);
  };
  EXPECT_THAT(
      after([](LlamaConfig& c) { c.key_value_heads = 3; }),
      StatusIs(kInvalid, AllOf(StartsWith("key_value_heads: is 3"), HasSubstr("heads (4)"))));
  EXPECT_THAT(after([](LlamaConfig& c) { c.head_size = 5; }),
              StatusIs(kInvalid, AllOf(StartsWith("head_size: is 5"), HasSubstr("even"))));
  EXPECT_THAT(after([](LlamaConfig& c) { c.window = -1; }),
              StatusIs(kInvalid, StartsWith("window: is -1")));
  EXPECT_THAT(after([](LlamaConfig& c) { c.layers = 0; }),
              StatusIs(kInvalid, StartsWith("layers: is 0")));
  EXPECT_THAT(after([](LlamaConfig& c) {
                c = {.layers = 1024,
                     .width = 65536,
                     .heads = 65536,
                     .head_size = 65536,
                     .hidden = 1,
                     .context = 1};
              }),
              StatusIs(kInvalid, HasSubstr("parameters")));
}

TEST(Bert, BadNumbers_AreNamedWithWhatWouldDo) {
  BertConfig config = kTinyBert;
  config.context = 8;
  EXPECT_THAT(BuildBert(config),
              StatusIs(kInvalid, AllOf(StartsWith("context: is 8"), HasSubstr("to 7"))));
  config = kTinyBert;
  config.head = "pooled";
  EXPECT_THAT(BuildBert(config), StatusIs(kInvalid, StartsWith("head: is \"pooled\"")));
  config = kTinyBert;
  config.heads = 3;
  EXPECT_THAT(BuildBert(config), StatusIs(kInvalid, StartsWith("heads: is 3")));
}

}  // namespace
}  // namespace penstock
