// A checkpoint as a directory of transformers, read back as a job would read it.
#include "inference/hugging_face.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_files.h"
#include "compute/initial_weights.h"
#include "inference/hugging_face_config.h"
#include "inference/hugging_face_weights.h"
#include "job/defaults.h"
#include "job/hugging_face/read_config.h"
#include "job/model_graph.h"
#include "nlohmann/json.hpp"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/tokenizer/golden_files.h"
#include "tokenizer/byte_pair_training.h"
#include "tokenizer/tokenizer.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A model with all its numbers.
v1::ModelSpec ModelOf(const std::string& text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, spec.mutable_model()));
  spec.mutable_data()->mutable_synthetic();
  FillDefaults(spec);
  return spec.model();
}

const char* const kModels[] = {
    "gpt { layers: 2 width: 8 heads: 2 context: 6 vocabulary: 20 dropout: 0.25 }",
    "llama { layers: 2 width: 8 heads: 4 key_value_heads: 2 head_size: 6 hidden: 10 context: 5 "
    "vocabulary: 20 "
    "        tied_head: true rope { scaling: 'llama3' factor: 8 base: 5000 original_context: 16 } "
    "}",
    "llama { layers: 1 width: 8 heads: 4 head_size: 2 key_value_heads: 2 hidden: 10 context: 5 "
    "window: 3 }",
    "llama { layers: 1 width: 8 heads: 4 head_size: 2 key_value_heads: 2 hidden: 10 context: 5 "
    "qkv_bias: true }",
    "llama { layers: 2 width: 8 heads: 4 head_size: 2 key_value_heads: 2 hidden: 10 context: 5 "
    "window: 3 qk_norm: true }",
    "bert { layers: 2 width: 8 heads: 2 hidden: 10 context: 7 positions: 7 vocabulary: 20 "
    "segments: 3 }",
    "bert { layers: 1 width: 8 heads: 2 hidden: 10 context: 7 positions: 7 vocabulary: 20 head: "
    "'classification' "
    "       classes: 3 }",
};

TEST(HuggingFaceConfig, OfEveryFamily_IsReadAsTheSameNumbers) {
  for (const char* text : kModels) {
    const v1::ModelSpec model = ModelOf(text);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const nlohmann::ordered_json config,
                                  HuggingFaceConfig(model, Json()));
    v1::HuggingFaceSpec asked;
    asked.set_init("random");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::ModelSpec back, ModelOfHuggingFace(config.dump(), asked));
    EXPECT_TRUE(
        google::protobuf::util::MessageDifferencer::Equals(ModelOf(back.ShortDebugString()), model))
        << config.dump() << back.DebugString() << model.DebugString();
  }
}

TEST(HuggingFaceConfig, WhatTheSourceKnows_IsTakenAlong) {
  const Json source = {{"model_type", "mistral"},
                       {"bos_token_id", 7},
                       {"eos_token_id", {8, 9}},
                       {"max_position_embeddings", 64},
                       {"unknown", 1}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto config,
      HuggingFaceConfig(ModelOf("llama { layers: 1 width: 8 heads: 4 hidden: 10 context: 5 }"),
                        source));
  EXPECT_EQ(config["model_type"], "mistral");
  EXPECT_EQ(config["sliding_window"], nullptr);
  EXPECT_EQ(config["bos_token_id"], 7);
  EXPECT_THAT(config["eos_token_id"], SizeIs(2));
  EXPECT_EQ(config["max_position_embeddings"], 64);
  EXPECT_FALSE(config.contains("unknown"));
  const Json labels = {{"id2label", {{"0", "good"}, {"1", "bad"}}},
                       {"label2id", {{"good", 0}, {"bad", 1}}}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto classifier,
      HuggingFaceConfig(ModelOf("bert { context: 5 head: 'classification' }"), labels));
  EXPECT_EQ(classifier["id2label"]["1"], "bad");
}

TEST(HuggingFaceConfig, OptionsThatNoClassHas_AreRefused) {
  EXPECT_THAT(HuggingFaceConfig(ModelOf("llama { layers: 1 width: 8 heads: 4 hidden: 10 context: 5 "
                                        "qkv_bias: true qk_norm: true }"),
                                Json()),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("qkv_bias and qk_norm")));
}

TEST(SplitIntoShards, TakesAsManyAsFit) {
  const std::vector<TensorType> tensors = {{"a", "F32", {2}},
                                           {"b", "F32", {1}},
                                           {"c", "F32", {5}},
                                           {"d", "F32", {1}},
                                           {"e", "F32", {1}}};
  std::vector<std::string> shards;
  for (const auto& shard : SplitIntoShards(tensors, 12)) {
    shards.emplace_back();
    for (const TensorType& tensor : shard) shards.back() += tensor.name;
  }
  EXPECT_THAT(shards, ElementsAre("ab", "c", "de"));
}

class Export : public ::testing::Test {
 protected:
  // Commits a checkpoint of a model whose weights are sampled, in the place of an earlier one, and opens it.
  CheckpointModel Save(const v1::ModelSpec& spec, const std::vector<AttachedFile>& attached = {}) {
    files_.RemoveAll("/checkpoints").IgnoreError();
    const absl::StatusOr<ModelGraph> graph = BuildModel(spec);
    EXPECT_THAT(graph, IsOk());
    Manifest manifest = {
        .job_id = "job", .method = "1f1b", .step = 1, .model = StoredModelOf(spec)};
    manifest.family = FamilyText(spec);
    manifest.fingerprint = MakeFingerprint({.model = *graph, .optimizer = SgdConfig()});
    const std::string staging = StagingPath("/checkpoints", 1, "a");
    for (int layer = 0; layer < graph->size(); ++layer) {
      LayerState state = {.layer = layer, .name = graph->layers[layer].name};
      const auto elsewhere = graph->OwnersElsewhere(layer);
      for (const ParameterSpec& parameter : graph->layers[layer].parameters) {
        if (elsewhere.count(parameter.name) > 0) continue;
        ParameterSpec sampled = parameter;
        sampled.init = ParameterSpec::Init::kNormal;
        state.weights.push_back({parameter.name, parameter.shape, InitialWeights(sampled, 3)});
        values_[parameter.name] = state.weights.back().values;
      }
      const auto written = WriteLayer(files_, staging, state);
      EXPECT_THAT(written, IsOk());
      manifest.files.insert(manifest.files.end(), written->begin(), written->end());
    }
    for (const AttachedFile& file : attached) {
      const auto written = WriteAttached(files_, staging, file);
      EXPECT_THAT(written, IsOk());
      manifest.attached.push_back(*written);
    }
    const auto committed = CommitCheckpoint(
        files_, {.root = "/checkpoints", .tag = "a", .layers = graph->size()}, manifest);
    EXPECT_THAT(committed, IsOk());
    const auto model = OpenCheckpointModel(files_, "/checkpoints");
    EXPECT_THAT(model, IsOk());
    return *model;
  }

  Json ReadJson(const std::string& path) {
    const absl::StatusOr<std::string> text = files_.Read(path, 1 << 20);
    EXPECT_THAT(text, IsOk());
    return Json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  }

  MemoryFiles files_;
  std::map<std::string, std::vector<float>> values_;  // by parameter
};

TEST_F(Export, EveryFamily_KeepsItsWeights) {
  for (const char* text : kModels) {
    files_.RemoveAll("/out").IgnoreError();
    values_.clear();
    const v1::ModelSpec spec = ModelOf(text);
    const CheckpointModel model = Save(spec);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported,
                                  ExportHuggingFace(files_, model, {.output = "/out"}));
    EXPECT_EQ(exported.weights, "/out/model.safetensors");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights, WeightFiles::Open(files_, "/out"));
    EXPECT_THAT(weights.names(), SizeIs(values_.size()));
    for (const auto& [parameter, values] : values_) {
      const std::string name = HuggingFaceName(spec, parameter);
      ASSERT_NE(weights.Find(name), nullptr) << name;
      std::vector<float> read(values.size());
      ASSERT_THAT(weights.Read(name, absl::MakeSpan(read)), IsOk());
      EXPECT_EQ(read, values) << name;
    }
    EXPECT_THAT(exported.others, SizeIs(spec.has_bert() ? 0 : 1));  // generation_config.json
  }
}

TEST_F(Export, LargeModel_IsWrittenInShards) {
  const CheckpointModel model = Save(ModelOf(kModels[1]));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ExportedFiles exported,
      ExportHuggingFace(files_, model, {.output = "/out", .shard_bytes_max = 2000}));
  EXPECT_EQ(exported.weights, "/out/model.safetensors.index.json");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string text, files_.Read(exported.weights, 1 << 20));
  const Json index = Json::parse(text);
  EXPECT_EQ(index["metadata"]["total_size"], 4 * model.graph.parameter_count());
  EXPECT_TRUE(files_.Exists("/out/model-00001-of-00004.safetensors"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights, WeightFiles::Open(files_, "/out"));
  EXPECT_THAT(weights.names(), SizeIs(values_.size()));
}

TEST_F(Export, UntiedHead_GetsItsNameInTransformers) {
  for (const auto& [text, name] : {std::pair(kModels[1], "lm_head.weight"),
                                   std::pair(kModels[5], "cls.predictions.decoder.weight")}) {
    files_.RemoveAll("/out").IgnoreError();
    v1::ModelSpec spec = ModelOf(text);
    spec.set_untie(true);
    const CheckpointModel model = Save(spec);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported,
                                  ExportHuggingFace(files_, model, {.output = "/out"}));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights, WeightFiles::Open(files_, "/out"));
    EXPECT_NE(weights.Find(name), nullptr);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string config, files_.Read(exported.config, 1 << 20));
    EXPECT_EQ(Json::parse(config)["tie_word_embeddings"], false);
  }
}

TEST_F(Export, TokenizerOfTheSource_ComesAlong) {
  ASSERT_THAT(files_.WriteDurably("/source/config.json", {R"({"bos_token_id": 5})"}), IsOk());
  ASSERT_THAT(files_.WriteDurably("/source/tokenizer.json", {"{}"}), IsOk());
  ASSERT_THAT(files_.WriteDurably("/source/generation_config.json", {R"({"top_k": 3})"}), IsOk());
  ASSERT_THAT(files_.WriteDurably("/source/README.md", {"not this"}), IsOk());
  v1::ModelSpec spec = ModelOf(kModels[1]);
  spec.mutable_pretrained()->set_directory("/source");
  const CheckpointModel model = Save(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported,
                                ExportHuggingFace(files_, model, {.output = "/out"}));
  EXPECT_THAT(exported.others, ElementsAre("/out/tokenizer.json", "/out/generation_config.json"));
  EXPECT_THAT(files_.Read("/out/generation_config.json", 100), IsOkAndHolds(R"({"top_k": 3})"));
  EXPECT_THAT(files_.Read("/out/config.json", 10000),
              IsOkAndHolds(HasSubstr("\"bos_token_id\": 5")));
  EXPECT_FALSE(files_.Exists("/out/README.md"));
  // It may have gone since, or another one is named.
  ASSERT_THAT(files_.RemoveAll("/source"), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles without,
                                ExportHuggingFace(files_, model, {.output = "/again"}));
  EXPECT_THAT(without.others, ElementsAre("/again/generation_config.json"));
  EXPECT_THAT(
      ExportHuggingFace(files_, model, {.output = "/third", .source = "/source"}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/source has neither config.json nor")));
  EXPECT_FALSE(files_.Exists("/third/config.json"));
}

// As of a model that `penstock data prepare tokens` learned a vocabulary for.
TEST_F(Export, OwnTokenizer_SaysTheSpecialTokens) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string tokenizer,
                                TrainBytePairs("the water and the weather", {}));
  for (const char* text : {"gpt { layers: 1 width: 8 heads: 2 context: 6 vocabulary: 300 }",
                           "llama { layers: 1 width: 8 heads: 2 hidden: 10 context: 5 "
                           "vocabulary: 300 }"}) {
    files_.RemoveAll("/out").IgnoreError();
    const CheckpointModel model = Save(ModelOf(text), {{"tokenizer.json", tokenizer}});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported,
                                  ExportHuggingFace(files_, model, {.output = "/out"}));
    EXPECT_THAT(exported.others, ElementsAre("/out/tokenizer.json", "/out/tokenizer_config.json",
                                             "/out/generation_config.json"));
    EXPECT_THAT(files_.Read("/out/tokenizer.json", 1 << 20), IsOkAndHolds(tokenizer));
    const Json config = ReadJson("/out/config.json");
    EXPECT_EQ(config["eos_token_id"], 0);
    EXPECT_EQ(config["bos_token_id"], nullptr);
    EXPECT_EQ(ReadJson("/out/generation_config.json"),
              Json({{"_from_model_config", true}, {"eos_token_id", 0}}));
    EXPECT_EQ(ReadJson("/out/tokenizer_config.json"),
              Json({{"tokenizer_class", "PreTrainedTokenizerFast"},
                    {"clean_up_tokenization_spaces", false},
                    {"model_input_names", Json::array({"input_ids", "attention_mask"})},
                    {"eos_token", "<|endoftext|>"}}));
  }
}

TEST_F(Export, OwnTokenizerOfABert_HasSegmentsAndItsTokens) {
  Json tokenizer = Json::parse(GoldenContent("cased.json"));
  const size_t next = tokenizer["model"]["vocab"].size();
  tokenizer["model"]["vocab"]["[CLS]"] = next;
  tokenizer["model"]["vocab"]["[PAD]"] = next + 1;
  const CheckpointModel model = Save(ModelOf(kModels[5]), {{"tokenizer.json", tokenizer.dump()}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported,
                                ExportHuggingFace(files_, model, {.output = "/out"}));
  EXPECT_THAT(exported.others, ElementsAre("/out/tokenizer.json", "/out/tokenizer_config.json"));
  EXPECT_EQ(ReadJson("/out/config.json")["pad_token_id"], next + 1);
  const Json config = ReadJson("/out/tokenizer_config.json");
  EXPECT_THAT(config["model_input_names"],
              ElementsAre("input_ids", "token_type_ids", "attention_mask"));
  EXPECT_EQ(config["cls_token"], "[CLS]");
  EXPECT_EQ(config["pad_token"], "[PAD]");
  EXPECT_EQ(config["unk_token"], "[UNK]");
  EXPECT_FALSE(config.contains("sep_token"));
}

// A directory of transformers with a tokenizer, and a model that started from it and was trained on tokens of another.
class ExportOfTwoTokenizers : public Export {
 protected:
  ExportOfTwoTokenizers() {
    Write("config.json", R"({"eos_token_id": 9, "max_position_embeddings": 64})");
    Write("tokenizer.json", GoldenContent("gpt2.json"));
    Write("tokenizer_config.json", "{}");
    Write("vocab.json", "{}");
    Write("chat_template.jinja", "{{ messages }}");
    Write("generation_config.json", R"({"eos_token_id": 9, "top_k": 3})");
    spec_ = ModelOf("llama { layers: 1 width: 8 heads: 2 hidden: 10 context: 5 vocabulary: 300 }");
    spec_.mutable_pretrained()->set_directory("/source");
  }
  void Write(const std::string& name, const std::string& content) {
    ASSERT_THAT(files_.WriteDurably("/source/" + name, {content}), IsOk());
  }
  absl::StatusOr<ExportedFiles> Run(const AttachedFile& attached, const std::string& named = "") {
    files_.RemoveAll("/out").IgnoreError();
    return ExportHuggingFace(files_, Save(spec_, {attached}), {.output = "/out", .source = named});
  }

  v1::ModelSpec spec_;
  const AttachedFile other_ = {"tokenizer.model", GoldenContent("llama2.model")};
};

TEST_F(ExportOfTwoTokenizers, NamedDirectoryOfATokenizerAlone_SaysTheSpecialTokens) {
  for (const char* const name : {"tokenizer.json", "tokenizer.model"}) {
    const bool is_json = std::string(name) == "tokenizer.json";
    files_.RemoveAll("/alone").IgnoreError();
    ASSERT_THAT(files_.CreateDirectories("/alone"), IsOk());
    ASSERT_THAT(files_.WriteDurably(std::string("/alone/") + name,
                                    {GoldenContent(is_json ? "qwen.json" : "llama2.model")}),
                IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported, Run(other_, "/alone"));
    EXPECT_THAT(exported.others,
                ElementsAre(std::string("/out/") + name, "/out/tokenizer_config.json",
                            "/out/generation_config.json"));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizer(files_, "/alone"));
    const Json config = ReadJson("/out/config.json");
    EXPECT_EQ(config["eos_token_id"], tokenizer->SpecialId(SpecialToken::kEos).value());
    EXPECT_EQ(ReadJson("/out/tokenizer_config.json")["tokenizer_class"],
              is_json ? "PreTrainedTokenizerFast" : "LlamaTokenizer");
  }
}

TEST_F(ExportOfTwoTokenizers, AnotherThanTheSources_ComesAlone) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported, Run(other_));
  EXPECT_THAT(exported.others, ElementsAre("/out/tokenizer.model", "/out/tokenizer_config.json",
                                           "/out/generation_config.json"));
  EXPECT_THAT(FindTokenizerFile(files_, "/out"), IsOkAndHolds("/out/tokenizer.model"));
  const Json of_pieces = ReadJson("/out/tokenizer_config.json");
  EXPECT_EQ(of_pieces["tokenizer_class"], "LlamaTokenizer");
  EXPECT_EQ(of_pieces["bos_token"], "<s>");
  EXPECT_EQ(of_pieces["eos_token"], "</s>");
  EXPECT_EQ(of_pieces["unk_token"], "<unk>");
  EXPECT_TRUE(of_pieces["pad_token"].is_null()) << "llama2.model has none";
  EXPECT_EQ(of_pieces["add_bos_token"], false);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizer(files_, "/out"));
  const Json config = ReadJson("/out/config.json");
  EXPECT_EQ(config["eos_token_id"], tokenizer->SpecialId(SpecialToken::kEos).value());
  EXPECT_EQ(config["bos_token_id"], tokenizer->SpecialId(SpecialToken::kBos).value());
  EXPECT_EQ(config["max_position_embeddings"], 64);
  const Json generation = ReadJson("/out/generation_config.json");
  EXPECT_EQ(generation["eos_token_id"], config["eos_token_id"]);
  EXPECT_FALSE(generation.contains("top_k"));
  // Of the same name, too.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles same_name,
                                Run({"tokenizer.json", GoldenContent("qwen.json")}));
  EXPECT_THAT(same_name.others, ElementsAre("/out/tokenizer.json", "/out/tokenizer_config.json",
                                            "/out/generation_config.json"));
  EXPECT_THAT(files_.Read("/out/tokenizer.json", 1 << 20),
              IsOkAndHolds(GoldenContent("qwen.json")));
  EXPECT_EQ(ReadJson("/out/tokenizer_config.json")["eos_token"], "</s>");
}

TEST_F(ExportOfTwoTokenizers, TheSources_BringsItsFilesAlong) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported,
                                Run({"tokenizer.json", GoldenContent("gpt2.json")}));
  EXPECT_THAT(exported.others,
              ElementsAre("/out/tokenizer.json", "/out/tokenizer_config.json", "/out/vocab.json",
                          "/out/chat_template.jinja", "/out/generation_config.json"));
  EXPECT_EQ(ReadJson("/out/tokenizer_config.json"), Json::object());
  EXPECT_EQ(ReadJson("/out/config.json")["eos_token_id"], 9);
  EXPECT_EQ(ReadJson("/out/generation_config.json")["top_k"], 3);
}

TEST_F(ExportOfTwoTokenizers, NamedOne_TakesThePlaceOfTheCheckpoints) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles exported, Run(other_, "/source"));
  EXPECT_THAT(exported.others,
              ElementsAre("/out/tokenizer.json", "/out/tokenizer_config.json", "/out/vocab.json",
                          "/out/chat_template.jinja", "/out/generation_config.json"));
  EXPECT_EQ(ReadJson("/out/config.json")["eos_token_id"], 9);
  // A directory without a tokenizer has none to take its place.
  ASSERT_THAT(files_.WriteDurably("/bare/config.json", {R"({"eos_token_id": 9})"}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ExportedFiles bare, Run(other_, "/bare"));
  EXPECT_THAT(bare.others, ElementsAre("/out/tokenizer.model", "/out/tokenizer_config.json",
                                       "/out/generation_config.json"));
}

TEST_F(Export, FileThatIsThere_IsNotReplaced) {
  const CheckpointModel model = Save(ModelOf(kModels[1]));
  for (const char* file : {"config.json", "model.safetensors", "generation_config.json"}) {
    files_.RemoveAll("/out").IgnoreError();
    ASSERT_THAT(files_.WriteDurably(absl::StrCat("/out/", file), {"mine"}), IsOk());
    EXPECT_THAT(ExportHuggingFace(files_, model, {.output = "/out"}),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(file)));
    EXPECT_THAT(files_.Read(absl::StrCat("/out/", file), 100), IsOkAndHolds("mine"));
  }
}

TEST_F(Export, ModelThatTransformersLacks_IsRefused) {
  const CheckpointModel model = Save(ModelOf("lstm_lm { hidden: 4 context: 3 }"));
  EXPECT_THAT(ExportHuggingFace(files_, model, {.output = "/out"}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("no gpt, llama or bert")));
}

}  // namespace
}  // namespace penstock
