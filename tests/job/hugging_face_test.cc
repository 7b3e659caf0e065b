// config.json as a job's model: what transformers 5.24 and older versions write, and what is refused.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>

#include "job/defaults.h"
#include "job/fingerprint.h"
#include "job/hugging_face/read_config.h"
#include "job/model_graph.h"
#include "job/run/agreement.h"
#include "nlohmann/json.hpp"
#include "tests/job/jobs.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Json kGpt2 = {{"model_type", "gpt2"},
                    {"activation_function", "gelu_new"},
                    {"n_embd", 32},
                    {"n_head", 2},
                    {"n_inner", nullptr},
                    {"n_layer", 3},
                    {"n_positions", 64},
                    {"resid_pdrop", 0.25},
                    {"embd_pdrop", 0.25},
                    {"layer_norm_epsilon", 1e-5},
                    {"vocab_size", 300},
                    {"architectures", {"GPT2LMHeadModel"}},
                    {"transformers_version", "5.24.0"}};
const Json kLlama = {{"model_type", "llama"},
                     {"attention_bias", false},
                     {"head_dim", 8},
                     {"hidden_act", "silu"},
                     {"hidden_size", 32},
                     {"intermediate_size", 48},
                     {"max_position_embeddings", 64},
                     {"mlp_bias", false},
                     {"num_attention_heads", 4},
                     {"num_hidden_layers", 3},
                     {"num_key_value_heads", 2},
                     {"pretraining_tp", 1},
                     {"rms_norm_eps", 1e-6},
                     {"rope_parameters",
                      {{"factor", 8.0},
                       {"high_freq_factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"original_max_position_embeddings", 16},
                       {"rope_theta", 500000.0},
                       {"rope_type", "llama3"}}},
                     {"tie_word_embeddings", false},
                     {"vocab_size", 300}};
const Json kQwen3 = {{"model_type", "qwen3"},
                     {"attention_bias", false},
                     {"head_dim", 16},
                     {"hidden_size", 32},
                     {"intermediate_size", 48},
                     {"layer_types", {"full_attention", "full_attention", "full_attention"}},
                     {"max_position_embeddings", 64},
                     {"max_window_layers", 28},
                     {"num_attention_heads", 4},
                     {"num_hidden_layers", 3},
                     {"num_key_value_heads", 2},
                     {"rms_norm_eps", 1e-6},
                     {"rope_parameters", {{"rope_theta", 1000000.0}, {"rope_type", "default"}}},
                     {"sliding_window", nullptr},
                     {"tie_word_embeddings", true},
                     {"use_sliding_window", false},
                     {"vocab_size", 300}};
const Json kBert = {{"model_type", "bert"},
                    {"architectures", {"BertForMaskedLM"}},
                    {"hidden_act", "gelu"},
                    {"hidden_dropout_prob", 0.1},
                    {"attention_probs_dropout_prob", 0.1},
                    {"hidden_size", 32},
                    {"intermediate_size", 48},
                    {"layer_norm_eps", 1e-12},
                    {"max_position_embeddings", 64},
                    {"num_attention_heads", 4},
                    {"num_hidden_layers", 3},
                    {"type_vocab_size", 2},
                    {"vocab_size", 300}};

v1::HuggingFaceSpec Directory(const std::string& more = "") {
  v1::HuggingFaceSpec spec;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString("directory: 'models/m' " + more, &spec));
  return spec;
}

absl::StatusOr<v1::ModelSpec> Read(const Json& config, const std::string& asked = "") {
  return ModelOfHuggingFace(config.dump(), Directory(asked));
}

Json With(Json config, const Json& changes) {
  config.merge_patch(changes);
  return config;
}

MATCHER_P(IsModel, text, "is the model " + std::string(text)) {
  v1::ModelSpec expected;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected));
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  *result_listener << arg->DebugString();
  return google::protobuf::util::MessageDifferencer::Equals(*arg, expected);
}

TEST(ReadConfig, Gpt2_IsAGpt) {
  EXPECT_THAT(Read(kGpt2), IsModel(R"(
    gpt { layers: 3 width: 32 heads: 2 context: 64 vocabulary: 300 dropout: 0.25 tied_head: true }
    pretrained { directory: 'models/m' })"));
  EXPECT_THAT(Read(With(kGpt2, {{"tie_word_embeddings", false}, {"n_inner", 128}}),
                   "init: 'random' context: 16 dropout: 0"),
              IsModel(R"(
    gpt { layers: 3 width: 32 heads: 2 context: 16 vocabulary: 300 dropout: 0 tied_head: false })"));
}

TEST(ReadConfig, LlamaOf3_HasItsScaling) {
  EXPECT_THAT(Read(kLlama, "context: 32"), IsModel(R"(
    llama { layers: 3 width: 32 heads: 4 key_value_heads: 2 head_size: 8 hidden: 48 context: 32 vocabulary: 300
            epsilon: 1e-6 qkv_bias: false qk_norm: false window: 0 tied_head: false
            rope { base: 500000 scaling: 'llama3' factor: 8 low_frequency_factor: 1 high_frequency_factor: 4
                   original_context: 16 } }
    pretrained { directory: 'models/m' })"));
}

// Before version 5 the base stood by itself, and the type was called so.
TEST(ReadConfig, OlderRopeKeys_AreTheSame) {
  Json older = kLlama;
  older.erase("rope_parameters");
  older.erase("head_dim");
  older.erase("num_key_value_heads");
  older["rope_theta"] = 20000.0;
  older["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(Read(older), IsModel(R"(
    llama { layers: 3 width: 32 heads: 4 hidden: 48 context: 64 vocabulary: 300
            epsilon: 1e-6 qkv_bias: false qk_norm: false window: 0 tied_head: false
            rope { base: 20000 scaling: 'linear' factor: 2 } }
    pretrained { directory: 'models/m' })"));
  older["rope_scaling"] = nullptr;
  older.erase("rope_theta");
  const absl::StatusOr<v1::ModelSpec> plain = Read(older);
  ASSERT_THAT(plain, IsOk());
  EXPECT_EQ(plain->llama().rope().ShortDebugString(), "base: 10000");
}

TEST(ReadConfig, KindsOfLlama_DifferInOptions) {
  EXPECT_THAT(Read(kQwen3), IsModel(R"(
    llama { layers: 3 width: 32 heads: 4 key_value_heads: 2 head_size: 16 hidden: 48 context: 64 vocabulary: 300
            epsilon: 1e-6 qkv_bias: false qk_norm: true window: 0 tied_head: true rope { base: 1000000 } }
    pretrained { directory: 'models/m' })"));
  Json qwen2 = With(kQwen3, {{"model_type", "qwen2"}, {"head_dim", nullptr}});
  EXPECT_THAT(Read(qwen2, "init: 'random'"), IsModel(R"(
    llama { layers: 3 width: 32 heads: 4 key_value_heads: 2 hidden: 48 context: 64 vocabulary: 300
            epsilon: 1e-6 qkv_bias: true qk_norm: false window: 0 tied_head: true rope { base: 1000000 } })"));
  const auto window = [](const Json& config) {
    const absl::StatusOr<v1::ModelSpec> model = Read(config);
    EXPECT_THAT(model, IsOk());
    return model.ok() ? model->llama().window() : -1;
  };
  Json mistral = With(kLlama, {{"model_type", "mistral"}, {"sliding_window", 16}});
  EXPECT_EQ(window(mistral), 16);
  mistral.erase("sliding_window");
  EXPECT_EQ(window(mistral), 4096);
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(window(mistral), 0);
  Json sliding = With(qwen2, {{"use_sliding_window", true}, {"sliding_window", 12}});
  sliding["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention"};
  EXPECT_EQ(window(sliding), 12);
  EXPECT_EQ(Read(qwen2)->llama().head_size(), 0);
  EXPECT_EQ(Read(With(kQwen3, {{"head_dim", nullptr}}))->llama().head_size(), 128);
}

TEST(ReadConfig, Bert_HasTheHeadOfItsArchitecture) {
  EXPECT_THAT(Read(kBert, "context: 16"), IsModel(R"(
    bert { layers: 3 width: 32 heads: 4 hidden: 48 context: 16 positions: 64 vocabulary: 300 segments: 2
           epsilon: 1e-12 dropout: 0.1 head: 'mlm' }
    pretrained { directory: 'models/m' })"));
  const Json classifier = With(kBert, {{"architectures", {"BertForSequenceClassification"}},
                                       {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}});
  EXPECT_THAT(Read(classifier), IsModel(R"(
    bert { layers: 3 width: 32 heads: 4 hidden: 48 context: 64 positions: 64 vocabulary: 300 segments: 2
           epsilon: 1e-12 dropout: 0.1 head: 'classification' classes: 3 }
    pretrained { directory: 'models/m' })"));
  // A new head for weights that were trained on masked tokens.
  EXPECT_THAT(Read(kBert, "head: 'classification' classes: 5"), IsModel(R"(
    bert { layers: 3 width: 32 heads: 4 hidden: 48 context: 64 positions: 64 vocabulary: 300 segments: 2
           epsilon: 1e-12 dropout: 0.1 head: 'classification' classes: 5 }
    pretrained { directory: 'models/m' sampled: 'bert.pooler.' sampled: 'classifier.' })"));
}

TEST(ReadConfig, WhatIsReadBuilds) {
  for (const Json& config : {kGpt2, kLlama, kQwen3, kBert}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelSpec model, Read(config));
    v1::JobSpec spec = GoodJob();
    *spec.mutable_model() = model;
    spec.mutable_data()->mutable_synthetic();
    FillDefaults(spec);
    EXPECT_THAT(ResolveJob(spec), IsOk());
  }
}

struct Mistake {
  const Json& config;
  Json change;
  const char* says;
};

TEST(ReadConfig, WhatWouldChangeNumbers_IsRefusedByItsKey) {
  const Mistake mistakes[] = {
      {kLlama,
       {{"model_type", "gemma2"}},
       "model_type: is \"gemma2\"; supported are gpt2, llama, mistral, qwen2, qwen3 and bert"},
      {kLlama, {{"model_type", nullptr}}, "model_type: is missing; supported are"},
      {kLlama, {{"hidden_act", "relu"}}, "hidden_act: is \"relu\"; expected \"silu\""},
      {kLlama, {{"attention_bias", true}}, "attention_bias: is true; expected false"},
      {kLlama, {{"mlp_bias", true}}, "mlp_bias: is true"},
      {kLlama, {{"attention_dropout", 0.5}}, "attention_dropout: is 0.5; expected 0.0"},
      {kLlama,
       {{"rope_parameters", {{"rope_type", "yarn"}}}},
       "rope_parameters.rope_type: is \"yarn\"; supported are default, linear and llama3"},
      {kLlama, {{"rope_parameters", {{"rope_type", "longrope"}}}}, "longrope"},
      {kLlama, {{"rope_parameters", {{"rope_type", "dynamic"}}}}, "dynamic"},
      {kLlama,
       {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
       "partial_rotary_factor: is 0.5"},
      {kLlama, {{"rope_parameters", {{"factor", nullptr}}}}, "factor: is missing"},
      {kLlama, {{"rope_parameters", 3}}, "rope_parameters: is 3; expected an object"},
      {kLlama, {{"quantization_config", {{"bits", 4}}}}, "quantized weights are not supported"},
      {kLlama, {{"auto_map", {{"AutoModel", "x"}}}}, "bring their own code"},
      {kLlama, {{"hidden_size", "wide"}}, "hidden_size: is \"wide\"; expected a whole number"},
      {kLlama, {{"hidden_size", 32.5}}, "hidden_size: is 32.5; expected a whole number"},
      {kLlama, {{"hidden_size", 18446744073709551615u}}, "expected a whole number"},
      {kLlama, {{"hidden_size", nullptr}}, "hidden_size: is missing"},
      {kQwen3, {{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types: is"},
      {kQwen3,
       {{"use_sliding_window", true}, {"sliding_window", 8}, {"layer_types", nullptr}},
       "max_window_layers: is 28"},
      {kGpt2, {{"activation_function", "relu"}}, "activation_function: is \"relu\""},
      {kGpt2, {{"layer_norm_epsilon", 1e-6}}, "layer_norm_epsilon: is 1e-06; expected 1e-05"},
      {kGpt2, {{"n_inner", 100}}, "n_inner: is 100; expected 4 times n_embd"},
      {kGpt2, {{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx"},
      {kGpt2, {{"embd_pdrop", 0.5}}, "set model.hugging_face.dropout"},
      {kBert, {{"hidden_act", "gelu_new"}}, "hidden_act: is \"gelu_new\""},
      {kBert, {{"position_embedding_type", "relative_key"}}, "position_embedding_type"},
      {kBert, {{"is_decoder", true}}, "is_decoder: is true"},
      {kBert, {{"tie_word_embeddings", false}}, "tie_word_embeddings: is false; expected true"},
      {kBert,
       {{"architectures", {"BertForSequenceClassification"}}, {"problem_type", "regression"}},
       "problem_type: is \"regression\""},
      {kBert,
       {{"architectures", {"BertForSequenceClassification"}}, {"id2label", {{"0", "a"}}}},
       "one label is a regression"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(Read(With(mistake.config, mistake.change)),
                StatusIs(kInvalid, HasSubstr(mistake.says)));
  }
  EXPECT_THAT(Read(kLlama, "head: 'mlm'"),
              StatusIs(kInvalid, HasSubstr("predicts the next token")));
  EXPECT_THAT(Read(kLlama, "dropout: 0.1"), StatusIs(kInvalid, HasSubstr("drop nothing")));
  EXPECT_THAT(Read(kGpt2, "context: 65"), StatusIs(kInvalid, HasSubstr("n_positions: is 64")));
  EXPECT_THAT(ModelOfHuggingFace("[]", Directory()),
              StatusIs(kInvalid, HasSubstr("no JSON object")));
  EXPECT_THAT(ModelOfHuggingFace("{\"a\": 1, \"a\": 2}", Directory()),
              StatusIs(kInvalid, HasSubstr("twice")));
}

TEST(ReadConfig, Directory_IsReplacedByItsFamily) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably("/jobs/models/m/config.json", {kLlama.dump()}), IsOk());
  v1::ModelSpec model;
  *model.mutable_hugging_face() = Directory();
  model.set_untie(true);
  model.mutable_lora()->add_targets("*.q_proj");
  ASSERT_THAT(ReadHuggingFaceConfig(files, "/jobs", model), IsOk());
  EXPECT_TRUE(model.has_llama());
  EXPECT_TRUE(model.untie());
  EXPECT_EQ(model.lora().targets_size(), 1);
  EXPECT_EQ(model.pretrained().directory(), "models/m");
  // What has a family stays.
  const v1::ModelSpec read = model;
  ASSERT_THAT(ReadHuggingFaceConfig(files, "/elsewhere", model), IsOk());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, read));
}

TEST(ReadConfig, BadDirectory_IsNamedWithItsKey) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably("/jobs/models/m/config.json",
                                 {With(kLlama, {{"hidden_act", "relu"}}).dump()}),
              IsOk());
  const auto read = [&](const std::string& asked) {
    v1::ModelSpec model;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(asked, model.mutable_hugging_face()));
    return ReadHuggingFaceConfig(files, "/jobs", model);
  };
  EXPECT_THAT(read("directory: 'models/m'"),
              StatusIs(kInvalid, StartsWith("model.hugging_face.directory: "
                                            "/jobs/models/m/config.json: hidden_act: is")));
  EXPECT_THAT(
      read("directory: 'none'"),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(StartsWith("model.hugging_face.directory: there is no file "
                                "/jobs/none/config.json; expected a directory that"),
                     HasSubstr("name such a directory, or fetch the files that are missing"),
                     HasSubstr("a relative path starts from /jobs"))));
  EXPECT_THAT(read("directory: '/none'"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("there is no file /none/config.json; expected"),
                             Not(HasSubstr("a relative path")))));
  EXPECT_THAT(read(""), StatusIs(kInvalid, HasSubstr("directory: is missing")));
  EXPECT_THAT(read("directory: 'models/m' init: 'zeros'"),
              StatusIs(kInvalid, StartsWith("model.hugging_face.init: is \"zeros\"")));
}

// A GPT that starts from weights of files is another job than one that starts from sampled ones.
TEST(Pretrained, IsAPartOfFingerprintAndAgreement) {
  const auto after = [](const std::string& pretrained) {
    v1::JobSpec spec = GoodJob();
    if (!pretrained.empty()) {
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
          pretrained, spec.mutable_model()->mutable_pretrained()));
    }
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    EXPECT_THAT(job, IsOk());
    return std::pair(FingerprintOf(spec, *job), AgreementOf(*job));
  };
  std::string digests = "directory: 'm'";
  for (int layer = 0; layer < 15; ++layer)
    digests += " layer_sha256: '" + std::string(64, 'a') + "'";
  const auto sampled = after(""), unknown = after("directory: 'm'"), known = after(digests);
  EXPECT_NE(unknown.first, sampled.first);
  EXPECT_NE(known.first, unknown.first);
  EXPECT_NE(unknown.second, sampled.second);
  EXPECT_NE(known.second, unknown.second);
  for (const auto& [field, value] : sampled.first) EXPECT_NE(field, "model.pretrained");
}

TEST(Pretrained, DigestsThatDoNotFit_AreRefused) {
  v1::JobSpec spec = GoodJob();
  v1::PretrainedSpec& pretrained = *spec.mutable_model()->mutable_pretrained();
  EXPECT_THAT(ResolveJob(spec), StatusIs(kInvalid, HasSubstr("model.pretrained.directory")));
  pretrained.set_directory("m");
  pretrained.add_layer_sha256(std::string(64, 'a'));
  EXPECT_THAT(ResolveJob(spec), StatusIs(kInvalid, HasSubstr("has 1 digests; expected one for each "
                                                             "of the 15 layers")));
  for (int layer = 1; layer < 15; ++layer) pretrained.add_layer_sha256("x");
  EXPECT_THAT(ResolveJob(spec), StatusIs(kInvalid, HasSubstr("64 digits")));
}

TEST(FamilyText, GoesThereAndBack) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::ModelSpec model, Read(kLlama));
  model.mutable_pretrained()->add_layer_sha256(std::string(64, 'a'));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ModelSpec back, FamilyOfText(FamilyText(model)));
  model.mutable_pretrained()->clear_layer_sha256();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(back, model));
  EXPECT_EQ(FamilyText(GoodJob().model()), "");
  EXPECT_THAT(FamilyOfText("{"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("family")));
}

}  // namespace
}  // namespace penstock
