// Text token by token: a step that keeps what attention needs gives what passes over the whole text give.
#include "inference/text_generator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "job/yaml/yaml.h"
#include "model/decode_step.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/tokenizer/golden_files.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kContext = 12;
constexpr int64_t kVocabulary = 40;

constexpr char kGptModel[] = "gpt: {layers: 2, width: 16, heads: 4, context: 12, vocabulary: 40}";
constexpr char kLlamaModel[] =
    "llama: {layers: 2, width: 16, heads: 4, key_value_heads: 2, hidden: 24, context: 12, "
    "vocabulary: 40, qk_norm: true, window: 5}";
constexpr char kLstmModel[] =
    "lstm_lm: {layers: 2, hidden: 16, context: 12, vocabulary: 40, dropout: 0.1}";
constexpr char kSeparateModel[] = R"(
    layers:
      - input: {tokens: {i32: [12]}, targets: {i32: [12]}}
      - embedding: {of: tokens, vocabulary: 40, width: 16}
      - positions: {context: 12}
      - residual:
          layers:
            - rms_norm
            - linear: {outputs: 48}
            - attention: {heads: 2, causal: true}
            - linear: {outputs: 16}
      - reshape: {dims: [12, 4, 4]}
      - rms_norm
      - reshape: {dims: [12, 16]}
      - linear: {outputs: 40}
      - cross_entropy: {targets: targets})";

ModelGraph GraphOf(const std::string& model) {
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(
      absl::StrCat("name: words\nmodel:\n  ", model,
                   "\ndata: {synthetic: {}}\ntraining: {steps: 1, batch: 1, microbatches: 1, "
                   "optimizer: {sgd: {learning_rate: 0.1}}}\n"),
      "job.yaml");
  EXPECT_THAT(spec, IsOk());
  return ChainOf(*spec);
}

// Targets that count up, over and over.
class CountingTargets : public DataSource {
 public:
  explicit CountingTargets(int64_t samples, int64_t context)
      : samples_(samples), context_(context) {}
  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override {
    EXPECT_EQ(split, Split::kValidation);
    EXPECT_EQ(port, 1);
    std::vector<int32_t> ids(values.size() / sizeof(int32_t));
    EXPECT_LE(first_sample * context_ + static_cast<int64_t>(ids.size()), samples_ * context_);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((first_sample * context_ + static_cast<int64_t>(i)) % kIds) +
               kFirstId;
    }
    std::memcpy(values.data(), ids.data(), values.size());
    return absl::OkStatus();
  }
  int64_t validation_samples() const override { return samples_; }
  std::vector<int32_t> All() const {
    std::vector<int32_t> ids(static_cast<size_t>(samples_ * context_));
    EXPECT_THAT(Read(Split::kValidation, 0, 1,
                     absl::MakeSpan(reinterpret_cast<std::byte*>(ids.data()), 4 * ids.size())),
                IsOk());
    return ids;
  }

 private:
  static constexpr int32_t kFirstId = 3;  // behind those of special tokens
  static constexpr int64_t kIds = 41;
  const int64_t samples_, context_;
};

// A text of SentencePiece is without its first space, and the parts that are read at once are no texts.
TEST(TargetBytes, MoreTokensThanAreReadAtOnce_AreThoseOfOneText) {
  for (const char* const name : {"unigram.model", "bpe.model", "gpt2.json"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                                  LoadTokenizer(RealFiles(), GoldenPath(name)));
    const CountingTargets data(/*samples=*/3, /*context=*/600'000);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string text,
                                  tokenizer->Decode(data.All(), SpecialTokens::kShow));
    EXPECT_THAT(TargetBytes(data, 3, 600'000, *tokenizer),
                IsOkAndHolds(static_cast<int64_t>(text.size())))
        << name;
  }
}

std::unique_ptr<Stage> StageOf(Backend& backend, const ModelGraph& model, int64_t samples) {
  auto stage = Stage::Create(backend, model,
                             {.layers = {0, model.size()},
                              .samples = samples,
                              .step_samples = samples,
                              .optimizer = SgdConfig(),
                              .seed = 5});
  EXPECT_THAT(stage, IsOk());
  return *std::move(stage);
}

Tensor Port(Stage& stage, int port, const std::vector<int32_t>& values) {
  return *stage.PortToDevice(port,
                             absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                                 values.size() * sizeof(int32_t)));
}

int32_t TokenAt(int64_t sample, int64_t place) {
  return static_cast<int32_t>((sample * 17 + place * place * 5 + 3) % kVocabulary);
}

// [samples, kContext, kVocabulary], by the model itself.
std::vector<float> LogitsOfWholeTexts(Backend& backend, const ModelGraph& model, int64_t samples) {
  const auto whole = StageOf(backend, model, samples);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < samples * kContext; ++i) {
    tokens.push_back(TokenAt(i / kContext, i % kContext));
  }
  return *whole->Predictions(whole->version(), Tensor(), {Port(*whole, 0, tokens), Tensor()});
}

TEST(DecodeStep, OfEveryKindOfModel_HasTheLogitsOfTheWholeText) {
  constexpr int64_t kSamples = 3;
  const auto backend = *MakeCpuBackend(1);
  for (const char* const text : {kGptModel, kLlamaModel, kLstmModel, kSeparateModel}) {
    SCOPED_TRACE(text);
    const ModelGraph model = GraphOf(text);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph step, DecodeStepOf(model));
    EXPECT_EQ(step.parameter_count(), model.parameter_count());
    for (int layer = 0; layer < model.size(); ++layer) {
      EXPECT_EQ(step.layers[layer].name, model.layers[layer].name);
      EXPECT_EQ(step.layers[layer].parameters, model.layers[layer].parameters);
    }
    const auto single = StageOf(*backend, step, kSamples);
    const std::vector<float> expected = LogitsOfWholeTexts(*backend, model, kSamples);
    for (int64_t place = 0; place < kContext; ++place) {
      std::vector<int32_t> at, places(kSamples, static_cast<int32_t>(place));
      for (int64_t sample = 0; sample < kSamples; ++sample) at.push_back(TokenAt(sample, place));
      std::vector<Tensor> ports;
      for (const int port : single->ports()) {
        ports.push_back(port == 1 ? Tensor() : Port(*single, port, port == 0 ? at : places));
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const std::vector<float> logits,
          single->Predictions(single->version(), Tensor(), ports, {0, place == 0}));
      for (int64_t sample = 0; sample < kSamples; ++sample) {
        for (int64_t id = 0; id < kVocabulary; ++id) {
          EXPECT_NEAR(logits[sample * kVocabulary + id],
                      expected[(sample * kContext + place) * kVocabulary + id], 2e-5)
              << place;
        }
      }
    }
  }
}

// Blocks of any size, one after the other and single steps between them, keep what single steps keep.
TEST(DecodeStep, OfSomeSteps_GoesOnWhereOthersEnded) {
  constexpr int64_t kSamples = 2;
  const auto backend = *MakeCpuBackend(1);
  for (const char* const text : {kGptModel, kLlamaModel, kLstmModel, kSeparateModel}) {
    SCOPED_TRACE(text);
    const ModelGraph model = GraphOf(text);
    const std::vector<float> expected = LogitsOfWholeTexts(*backend, model, kSamples);
    for (const std::vector<int64_t>& blocks : std::vector<std::vector<int64_t>>{
             {12}, {1, 11}, {11, 1}, {4, 4, 4}, {5, 1, 5, 1}, {2, 3, 7}}) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph single, DecodeStepOf(model));
      const auto step = StageOf(*backend, single, kSamples);
      int64_t begin = 0;
      for (const int64_t steps : blocks) {
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph graph, DecodeStepOf(model, steps));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto block, Stage::Create(*backend, graph,
                                                                      {.layers = {0, graph.size()},
                                                                       .samples = kSamples,
                                                                       .step_samples = kSamples,
                                                                       .updates = false,
                                                                       .drops_gradients = true,
                                                                       .borrows_weights = true,
                                                                       .optimizer = SgdConfig()}));
        EXPECT_THAT(block->EvaluateFor(*step), IsOk());
        EXPECT_THAT(block->EvaluateFor(*step), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                        HasSubstr("which have theirs")));
        std::vector<int32_t> at, places;
        for (int64_t sample = 0; sample < kSamples; ++sample) {
          for (int64_t place = begin; place < begin + steps; ++place) {
            at.push_back(TokenAt(sample, place));
            places.push_back(static_cast<int32_t>(place));
          }
        }
        std::vector<Tensor> ports;
        for (const int port : block->ports()) {
          ports.push_back(port == 1 ? Tensor() : Port(*block, port, port == 0 ? at : places));
        }
        PENSTOCK_ASSERT_OK_AND_ASSIGN(
            const std::vector<float> logits,
            block->Predictions(block->version(), Tensor(), ports, {0, begin == 0}));
        for (int64_t sample = 0; sample < kSamples; ++sample) {
          for (int64_t i = 0; i < steps * kVocabulary; ++i) {
            EXPECT_NEAR(logits[sample * steps * kVocabulary + i],
                        expected[(sample * kContext + begin) * kVocabulary + i], 2e-5)
                << begin << " " << i;
          }
        }
        begin += steps;
      }
    }
  }
}

TEST(DecodeStep, WhatSeesLaterSteps_IsRefused) {
  const auto refused = [](const std::string& item) {
    return DecodeStepOf(GraphOf(absl::StrReplaceAll(
                            kSeparateModel, {{"- attention: {heads: 2, causal: true}", item}})))
        .status();
  };
  EXPECT_THAT(refused("- attention: {heads: 2}"),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("attention"), HasSubstr("sees later time steps"))));
  EXPECT_THAT(refused("- lstm: {hidden: 8, bidirectional: true}"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("still to come")));
}

constexpr char kTextJob[] = R"(
name: words
model:
  MODEL
data: {text: {path: /data/text}}
training:
  steps: 30
  batch: 8
  microbatches: 2
  optimizer: {adamw: {learning_rate: 0.02}}
  seed: 3
checkpoint: {directory: /checkpoints, every_steps: 30}
pipeline: {method: 1f1b}
)";

class TextGeneratorTest : public ::testing::Test {
 protected:
  CheckpointModel Train(const std::string& model) {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "\x01\x02\x03\x04\x05\x06\x07\x08";
    EXPECT_THAT(files_.WriteDurably("/data/text", {text}), IsOk());
    EXPECT_THAT(files_.RemoveAll("/checkpoints"), IsOk());
    const absl::StatusOr<v1::JobSpec> spec =
        ParseJobYaml(absl::StrReplaceAll(kTextJob, {{"MODEL", model}}), "job.yaml");
    EXPECT_THAT(spec, IsOk());
    TestCluster cluster({.spec = *spec, .layers = EvenSplit(ChainOf(*spec).size(), 1)}, files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& ended : cluster.Join()) EXPECT_THAT(ended, IsOk());
    const absl::StatusOr<std::string> directory = cluster.CommitCheckpoint(30);
    EXPECT_THAT(directory, IsOk());
    absl::StatusOr<CheckpointModel> opened = OpenCheckpointModel(files_, *directory);
    EXPECT_THAT(opened, IsOk());
    return *std::move(opened);
  }

  // The texts with `count` more tokens.
  std::vector<std::vector<int32_t>> Continue(const CheckpointModel& model, bool caches,
                                             std::vector<std::vector<int32_t>> texts, int count,
                                             int64_t block = 256) {
    auto generator = TextGenerator::Create(files_, model,
                                           {.vocabulary = 256,
                                            .texts = static_cast<int64_t>(texts.size()),
                                            .caches = caches,
                                            .block = block});
    EXPECT_THAT(generator, IsOk());
    std::vector<Sampler> samplers;
    for (size_t i = 0; i < texts.size(); ++i) samplers.emplace_back(SamplerOptions{.seed = 7 + i});
    for (int n = 0; n < count; ++n) {
      const auto next = generator->Next(texts, absl::MakeSpan(samplers));
      EXPECT_THAT(next, IsOk());
      for (size_t i = 0; i < texts.size(); ++i) texts[i].push_back((*next)[i]);
    }
    return texts;
  }

  MemoryFiles files_;
};

// Beyond the context of 12, too, and texts of other lengths at once.
TEST_F(TextGeneratorTest, WithAndWithoutTheCache_TokensAreTheSame) {
  for (const char* const model :
       {"gpt: {layers: 1, width: 16, heads: 2, context: 12}",
        "llama: {layers: 1, width: 16, heads: 2, hidden: 24, context: 12, vocabulary: 256}",
        "lstm_lm: {layers: 1, hidden: 16, context: 12, vocabulary: 256}"}) {
    SCOPED_TRACE(model);
    const CheckpointModel trained = Train(model);
    const std::vector<std::vector<int32_t>> texts = {{3, 4}, {1, 2, 3, 4, 5}, {8}};
    const auto cached = Continue(trained, true, texts, 15);
    EXPECT_EQ(cached, Continue(trained, false, texts, 15));
    EXPECT_EQ(Continue(trained, true, {{3, 4}}, 15)[0], cached[0]);
  }
}

// Texts that begin with 1 to 17 tokens are read in blocks of 5, or one token at a time, or all at once.
TEST_F(TextGeneratorTest, BlocksOfAnySize_TokensAreTheSame) {
  constexpr int64_t kBlock = 5;
  for (const char* const model :
       {"gpt: {layers: 1, width: 16, heads: 2, context: 24}",
        "llama: {layers: 2, width: 16, heads: 4, key_value_heads: 2, hidden: 24, context: 24, "
        "vocabulary: 256, window: 7}",
        "lstm_lm: {layers: 1, hidden: 16, context: 24, vocabulary: 256}"}) {
    SCOPED_TRACE(model);
    const CheckpointModel trained = Train(model);
    const auto text_of = [](int64_t tokens) {
      std::vector<int32_t> text;
      for (int64_t i = 0; i < tokens; ++i) text.push_back(static_cast<int32_t>(1 + i * i % 8));
      return text;
    };
    const auto expect_same = [&](const std::vector<std::vector<int32_t>>& texts) {
      const auto expected = Continue(trained, false, texts, 6);
      for (const int64_t block : {int64_t{1}, kBlock, int64_t{256}}) {
        EXPECT_EQ(Continue(trained, true, texts, 6, block), expected)
            << texts[0].size() << " tokens, blocks of " << block;
      }
    };
    for (const int64_t tokens :
         {int64_t{1}, kBlock - 1, kBlock, kBlock + 1, kBlock + 2, 2 * kBlock + 1, 3 * kBlock + 2}) {
      expect_same({text_of(tokens)});
    }
    expect_same({text_of(1), text_of(3 * kBlock + 2), text_of(kBlock), text_of(2)});
    expect_same({text_of(kBlock + 1), text_of(kBlock + 1)});
  }
}

TEST_F(TextGeneratorTest, TooSmallAModel_IsRefused) {
  const CheckpointModel model = Train("gpt: {layers: 1, width: 16, heads: 2, context: 12}");
  EXPECT_THAT(TextGenerator::Create(files_, model, {.vocabulary = 257}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("knows 256 tokens"), HasSubstr("has 257"))));
}

TEST(CheckGeneratesText, NeedsToKnowTheTextOfTokens) {
  const ModelGraph model = GraphOf(kGptModel);
  EXPECT_THAT(CheckGeneratesText(model, /*has_tokenizer=*/true), IsOk());
  EXPECT_THAT(CheckGeneratesText(model, /*has_tokenizer=*/false),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--tokenizer")));
}

}  // namespace
}  // namespace penstock
