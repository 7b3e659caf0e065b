// Greedy decoding: against one step at a time through the whole model, and of a model that was trained to translate.
#include "inference/greedy_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "inference/translation.h"
#include "job/yaml/yaml.h"
#include "tests/data/pair_directory.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPieces = 12;
constexpr int64_t kSourceTime = 5;
constexpr int64_t kTargetTime = 5;
constexpr int32_t kBos = 2, kEos = 3;

// With the prefixes' embedding first, layers that depend on them stand on both sides of the encoder.
constexpr char kEncoder[] = R"(
    - embedding: {of: source, vocabulary: 12, width: 8, deviation: 0.5, name: source_embedding}
    - lstm: {of: [source_embedding, source_lengths], hidden: 8, bidirectional: true, name: encoder}
)";
constexpr char kPrefixes[] = R"(
    - embedding: {of: inputs, vocabulary: 12, width: 8, deviation: 0.5, name: target_embedding}
)";
constexpr char kJob[] = R"(
name: words
model:
  layers:
    - input: {source: {i32: [5]}, source_lengths: {i32: []}, inputs: {i32: [5]}, targets: {i32: [5]}}FIRST
    - lstm: {of: target_embedding, hidden: 16, name: decoder}
    - additive_attention: {of: [decoder, encoder, source_lengths], units: 8, name: context}
    - concat: {of: [decoder, context], name: both}
    - linear: {of: both, outputs: 12}
    - cross_entropy: {targets: targets, ignore: 0}
data: {pairs: {path: /data/train}}
training:
  steps: STEPS
  batch: 16
  microbatches: 2
  optimizer: {adamw: {learning_rate: 0.02}}
  seed: 3
checkpoint: {directory: /checkpoints, every_steps: STEPS}
pipeline: {method: 1f1b}
)";

class GreedyDecoderTest : public ::testing::Test {
 protected:
  // Word for word, which is another piece for each: 4 to 11 become 11 to 4.
  void SetUp() override {
    std::vector<PiecePair> pairs;
    for (int32_t a = 4; a < 12; ++a) {
      pairs.push_back({{a}, {15 - a}});
      for (int32_t b = 4; b < 12; ++b) {
        if (a != b) pairs.push_back({{a, b}, {15 - a, 15 - b}});
      }
    }
    pairs.push_back({{4, 5, 6, 7, 8}, {4}});  // too long to be read
    WritePairDirectory(files_, "/data/train", pairs, kPieces);
  }
  CheckpointModel Train(const std::string& first, int64_t steps) {
    const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(
        absl::StrReplaceAll(kJob, {{"FIRST", first}, {"STEPS", absl::StrCat(steps)}}), "job.yaml");
    EXPECT_THAT(spec, IsOk());
    const std::vector<LayerRange> layers = EvenSplit(ChainOf(*spec).size(), 1);
    TestCluster cluster({.spec = *spec, .layers = layers}, files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& ended : cluster.Join()) EXPECT_THAT(ended, IsOk());
    const absl::StatusOr<std::string> directory = cluster.CommitCheckpoint(steps);
    EXPECT_THAT(directory, IsOk());
    absl::StatusOr<CheckpointModel> model = OpenCheckpointModel(files_, *directory);
    EXPECT_THAT(model, IsOk());
    return *std::move(model);
  }

  MemoryFiles files_;
};

// The whole model for each step of one sample, with rubbish behind the prefix.
std::vector<int32_t> DecodedByWholePasses(Files& files, const CheckpointModel& model,
                                          const std::vector<int32_t>& source) {
  const auto backend = MakeCpuBackend(1);
  const LayerRange all = {0, model.graph.size()};
  auto stage = Stage::Create(**backend, model.graph,
                             {.layers = all, .samples = 1, .optimizer = SgdConfig()});
  EXPECT_THAT(LoadWeights(files, model, all, **stage), IsOk());
  std::vector<int32_t> sources(kSourceTime, 0);
  std::copy(source.begin(), source.end(), sources.begin());
  sources[source.size()] = kEos;
  const std::vector<int32_t> lengths = {static_cast<int32_t>(source.size()) + 1};
  std::vector<int32_t> inputs(kTargetTime, 7);
  inputs[0] = kBos;
  std::vector<int32_t> target;
  for (int64_t t = 0; t < kTargetTime; ++t) {
    std::vector<Tensor> ports;
    for (const auto* values :
         std::initializer_list<const std::vector<int32_t>*>{&sources, &lengths, &inputs}) {
      ports.push_back(*(*stage)->PortToDevice(
          static_cast<int>(ports.size()),
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values->data()),
                              values->size() * sizeof(int32_t))));
    }
    ports.emplace_back();
    const auto logits = (*stage)->Predictions((*stage)->version(), Tensor(), ports);
    const auto row = logits->begin() + t * kPieces;
    const auto piece = static_cast<int32_t>(std::max_element(row, row + kPieces) - row);
    if (piece == kEos) break;
    target.push_back(piece);
    if (t + 1 < kTargetTime) inputs[t + 1] = piece;
  }
  return target;
}

TEST_F(GreedyDecoderTest, Batches_GiveWhatWholePassesGive) {
  for (const bool prefixes_first : {false, true}) {
    const std::string first =
        prefixes_first ? absl::StrCat(kPrefixes, kEncoder) : absl::StrCat(kEncoder, kPrefixes);
    ASSERT_THAT(files_.RemoveAll("/checkpoints"), IsOk());
    const CheckpointModel model = Train(first, 60);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        GreedyDecoder decoder,
        GreedyDecoder::Create(files_, model, {.batch = 4, .bos = kBos, .eos = kEos}));
    EXPECT_EQ(decoder.source_pieces_max(), 4);
    const std::vector<std::vector<int32_t>> sources = {{4},         {5, 6}, {7, 8, 9, 10},
                                                       {11, 4, 11}, {6},    {9, 8}};
    std::vector<std::vector<int32_t>> expected;
    for (const auto& source : sources) {
      expected.push_back(DecodedByWholePasses(files_, model, source));
    }
    const auto all = absl::MakeConstSpan(sources);
    // A whole batch, then one that is not.
    PENSTOCK_ASSERT_OK_AND_ASSIGN(auto decoded, decoder.Decode(all.first(4)));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto rest, decoder.Decode(all.subspan(4)));
    decoded.insert(decoded.end(), rest.begin(), rest.end());
    EXPECT_EQ(decoded, expected);
    EXPECT_NE(decoded[0], decoded[2]);
  }
}

TEST_F(GreedyDecoderTest, TrainedModel_TranslatesWhatItReads) {
  const CheckpointModel model = Train(absl::StrCat(kEncoder, kPrefixes), 250);
  const auto pairs = PairFiles::Open(files_, "/data/train", {});
  ASSERT_THAT(pairs, IsOk());
  int64_t done = 0;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Translation translation,
      Translate(files_, model, **pairs, {.batch = 7, .progress = [&](int64_t now, int64_t all) {
                                           EXPECT_EQ(all, 64);
                                           EXPECT_GT(now, done);
                                           done = now;
                                           return absl::OkStatus();
                                         }}));
  EXPECT_EQ(done, 64);
  EXPECT_EQ(translation.left_out, 1);
  ASSERT_EQ(translation.hypotheses.size(), 64u);
  EXPECT_EQ(translation.sources[0], "e");
  EXPECT_EQ(translation.references[0], "l");
  int64_t right = 0;
  for (size_t i = 0; i < 64; ++i) {
    right += translation.hypotheses[i] == translation.references[i];
  }
  EXPECT_GE(right, 55);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TranslationFiles written,
                                WriteTranslation(files_, translation, "/out"));
  EXPECT_EQ(written.hypotheses, "/out/hypotheses.txt");
  EXPECT_EQ(files_.Content("/out/sources.txt").substr(0, 8), "e\ne f\ne ");
  const std::string hypotheses = files_.Content("/out/hypotheses.txt");
  EXPECT_EQ(std::count(hypotheses.begin(), hypotheses.end(), '\n'), 64);
}

TEST_F(GreedyDecoderTest, OtherModels_AreRefused) {
  CheckpointModel model = Train(absl::StrCat(kEncoder, kPrefixes), 1);
  WritePairDirectory(files_, "/data/more", {{{4}, {5}}}, kPieces + 1);
  const auto pairs = PairFiles::Open(files_, "/data/more", {});
  ASSERT_THAT(pairs, IsOk());
  EXPECT_THAT(Translate(files_, model, **pairs, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trained on other pieces")));
  model.graph.ports[0].name = "tokens";
  EXPECT_THAT(GreedyDecoder::Create(files_, model, {}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("as data.pairs fills them")));
}

}  // namespace
}  // namespace penstock
