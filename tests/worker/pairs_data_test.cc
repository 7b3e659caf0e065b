// data.pairs: what the ports hold, and jobs that train on it.
#include "worker/pairs_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "tests/data/pair_directory.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/open_data.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPieces = 20;
constexpr int64_t kSourceTime = 7;
constexpr int64_t kTargetTime = 6;
constexpr int32_t kPadding = 0, kBos = 2, kEos = 3;

// An encoder that reads both ways, and a decoder that attends to it. Five layers.
constexpr char kPairsJob[] = R"(
name: pairs
model:
  layers:
    - input: {source: {i32: [7]}, source_lengths: {i32: []}, inputs: {i32: [6]}, targets: {i32: [6]}}
    - embedding: {of: source, vocabulary: 20, width: 4, deviation: 0.5, name: source_embedding}
    - lstm: {of: [source_embedding, source_lengths], hidden: 3, bidirectional: true, name: encoder}
    - embedding: {of: inputs, vocabulary: 20, width: 5, deviation: 0.5, name: target_embedding}
    - lstm: {hidden: 5, name: decoder}
    - additive_attention: {of: [decoder, encoder, source_lengths], units: 4, name: context}
    - concat: {of: [decoder, context]}
    - linear: {outputs: 20}
    - cross_entropy: {targets: targets, ignore: 0, label_smoothing: 0.1}
data: {pairs: {path: /data/train, validation: /data/validation, buckets: 3}}
training:
  steps: 12
  batch: 8
  microbatches: 4
  optimizer: {sgd: {learning_rate: 0.5, momentum: 0.9}}
  seed: 3
validation: {every_steps: 4, batches: 2}
pipeline: {method: METHOD}
)";

// Pair i has a source of 1 + i % 9 pieces, of which those of 6 and less fit, and a target of 1 + i % 4.
std::vector<PiecePair> Pairs(int64_t count) {
  std::vector<PiecePair> pairs;
  for (int64_t i = 0; i < count; ++i) {
    PiecePair pair;
    for (int64_t k = 0; k <= i % 9; ++k) {
      pair.first.push_back(4 + static_cast<int32_t>((i + k) % 16));
    }
    for (int64_t k = 0; k <= i % 4; ++k) {
      pair.second.push_back(4 + static_cast<int32_t>((3 * i + k) % 16));
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

class PairsDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WritePairDirectory(files_, "/data/train", Pairs(90), kPieces);  // 60 of them fit
    WritePairDirectory(files_, "/data/validation", Pairs(27), kPieces);
  }
  static v1::JobSpec Job(const std::string& method,
                         const std::vector<std::pair<std::string, std::string>>& changes = {}) {
    std::string yaml = absl::StrReplaceAll(kPairsJob, {{"METHOD", method}});
    for (const auto& [from, to] : changes) yaml = absl::StrReplaceAll(yaml, {{from, to}});
    const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(yaml, "job.yaml");
    EXPECT_THAT(spec, IsOk());
    return spec.value_or(v1::JobSpec());
  }
  absl::StatusOr<std::unique_ptr<DataSource>> Open(const v1::JobSpec& spec) {
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    EXPECT_THAT(job, IsOk());
    return OpenData(files_, spec, *job, "/data", RunLimits());
  }
  static std::vector<int32_t> Read(const DataSource& data, enum Split split, int64_t sample,
                                   int port, int64_t time) {
    std::vector<int32_t> values(time, -1);
    EXPECT_THAT(data.Read(split, sample, port,
                          absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                         values.size() * sizeof(int32_t))),
                IsOk());
    return values;
  }
  // The pair that all ports of a sample together are.
  static PiecePair PairOf(const DataSource& data, enum Split split, int64_t sample) {
    const std::vector<int32_t> source = Read(data, split, sample, 0, kSourceTime);
    const int32_t length = Read(data, split, sample, 1, 1)[0];
    const std::vector<int32_t> inputs = Read(data, split, sample, 2, kTargetTime);
    const std::vector<int32_t> targets = Read(data, split, sample, 3, kTargetTime);
    PiecePair pair = {{source.begin(), source.begin() + length - 1}, {}};
    EXPECT_EQ(source[length - 1], kEos);
    EXPECT_EQ(std::count(source.begin() + length, source.end(), kPadding), kSourceTime - length);
    const auto end = std::find(targets.begin(), targets.end(), kEos);
    EXPECT_NE(end, targets.end());
    pair.second.assign(targets.begin(), end);
    const auto target_length = static_cast<int64_t>(pair.second.size()) + 1;
    EXPECT_EQ(std::count(targets.begin() + target_length, targets.end(), kPadding),
              kTargetTime - target_length);
    // Inputs are the targets a step later, behind the beginning; they lack the end.
    EXPECT_EQ(inputs[0], kBos);
    EXPECT_TRUE(std::equal(pair.second.begin(), pair.second.end(), inputs.begin() + 1));
    EXPECT_EQ(std::count(inputs.begin() + target_length, inputs.end(), kPadding),
              kTargetTime - target_length);
    return pair;
  }

  MemoryFiles files_;
};

TEST_F(PairsDataTest, Epoch_HasEveryPairThatFitsOnceAndMasksTheRest) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open(Job("1f1b")));
  std::map<PiecePair, int> expected;
  for (const PiecePair& pair : Pairs(90)) {
    if (pair.first.size() < kSourceTime) ++expected[pair];
  }
  int64_t fitting = 0;
  for (const auto& [pair, count] : expected) fitting += count;
  ASSERT_EQ(fitting, 60);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<PiecePair, int> seen;
    for (int64_t i = 0; i < 56; ++i) ++seen[PairOf(*data, Split::kTraining, epoch * 56 + i)];
    int64_t missing = 0;  // seven batches of eight leave four out
    for (const auto& [pair, count] : expected) missing += std::abs(count - seen[pair]);
    EXPECT_EQ(missing, 4);
    for (const auto& [pair, count] : seen) EXPECT_LE(count, expected[pair]);
  }
}

TEST_F(PairsDataTest, Batch_IsOfSimilarLengths) {
  const auto mean_spread = [&](const std::string& buckets) {
    const auto data = Open(Job("1f1b", {{"buckets: 3", "buckets: " + buckets}}));
    EXPECT_THAT(data, IsOk());
    int64_t spread = 0;
    for (int64_t batch = 0; batch < 70; ++batch) {
      std::vector<int32_t> lengths;
      for (int64_t i = 0; i < 8; ++i) {
        lengths.push_back(Read(**data, Split::kTraining, 8 * batch + i, 1, 1)[0]);
      }
      const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
      spread += *longest - *shortest;
    }
    return static_cast<double>(spread) / 70;
  };
  EXPECT_GT(mean_spread("1"), 3.5);  // of lengths from 2 to 7
  EXPECT_LT(mean_spread("7"), 1.5);
}

TEST_F(PairsDataTest, AnyMicrobatches_GetTheSameSamples) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto four, Open(Job("1f1b")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto two,
                                Open(Job("1f1b", {{"microbatches: 4", "microbatches: 2"}})));
  for (int64_t sample = 0; sample < 120; ++sample) {
    EXPECT_EQ(PairOf(*four, Split::kTraining, sample), PairOf(*two, Split::kTraining, sample));
  }
}

TEST_F(PairsDataTest, Validation_IsSpreadOverThePairsThatFit) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open(Job("1f1b")));
  std::set<PiecePair> seen;
  size_t before = 0;
  for (int64_t sample = 0; sample < 16; ++sample) {  // two batches of eight
    const PiecePair pair = PairOf(*data, Split::kValidation, sample);
    EXPECT_GE(pair.first.size(), before);
    before = pair.first.size();
    seen.insert(pair);
  }
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_EQ(before, 6u);  // the longest that fit are there
}

TEST_F(PairsDataTest, ToEvaluate_EveryPairThatFitsIsThereOnceByLength) {
  auto pairs = PairFiles::Open(files_, "/data/train", {});
  ASSERT_THAT(pairs, IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data,
                                PairsData::OpenToEvaluate(*std::move(pairs), ChainOf(Job("1f1b"))));
  ASSERT_EQ(data->validation_samples(), 60);
  std::map<PiecePair, int> seen;
  size_t before = 0;
  for (int64_t sample = 0; sample < 60; ++sample) {
    const PiecePair pair = PairOf(*data, Split::kValidation, sample);
    EXPECT_GE(pair.first.size(), before);
    before = pair.first.size();
    ++seen[pair];
  }
  std::map<PiecePair, int> expected;
  for (const PiecePair& pair : Pairs(90)) {
    if (pair.first.size() < kSourceTime) ++expected[pair];
  }
  EXPECT_EQ(seen, expected);
}

TEST_F(PairsDataTest, ClusterOnPairs_TrainsAsTheReference) {
  for (const char* method : {"1f1b", "zb-h1", "pipedream", "pipedream-2bw", "paci", "nesterov"}) {
    const v1::JobSpec spec = Job(method);
    const int layers = ChainOf(spec).size();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, EvenSplit(layers, 3), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = EvenSplit(layers, 3)}, files_));
    ExpectSameTraining(cluster, serial);
    EXPECT_EQ(cluster.validations.size(), 3u);
  }
}

TEST_F(PairsDataTest, WhatDoesNotFit_IsRefusedWithARemedy) {
  WritePairDirectory(files_, "/data/other", Pairs(27), kPieces + 1);
  WritePairDirectory(files_, "/data/few", Pairs(10), kPieces);
  const struct {
    std::vector<std::pair<std::string, std::string>> changes;
    const char* reason;
  } cases[] = {
      {{{"ignore: 0", "ignore: 1"}},
       "does not ignore it; the loss cross_entropy does with `ignore: 0`"},
      {{{"vocabulary: 20", "vocabulary: 19"}, {"outputs: 20", "outputs: 19"}},
       "has a vocabulary of 20 pieces, but the model's input source takes 19"},
      {{{"/data/validation", "/data/other"}}, "another vocabulary than /data/train"},
      {{{"path: /data/train", "path: /data/few"}},
       "has 7 pairs of at most 6 pieces in the source and at most 5 in the target (of 10), but "
       "training.batch asks for 8"},
      {{{"batches: 2", "batches: 10"}}, "has 18 pairs of at most 6 pieces"}};
  for (const auto& [changes, reason] : cases) {
    EXPECT_THAT(Open(Job("1f1b", changes)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
  }
}

TEST_F(PairsDataTest, ModelsOfOtherPorts_AreRefusedBeforeAnythingIsRead) {
  const struct {
    std::vector<std::pair<std::string, std::string>> changes;
    const char* reason;
  } cases[] = {
      {{{"source: {i32: [7]}", "sentence: {i32: [7]}"}, {"of: source,", "of: sentence,"}},
       "has nothing for the model's input sentence i32 [7]"},
      {{{"name: decoder}", "name: decoder, carried: true}"}},
       "has pairs that stand for themselves, but decoder"},
      {{{"validation: /data/validation, ", ""}}, "data.pairs.validation names no directory"}};
  for (const auto& [changes, reason] : cases) {
    std::string yaml = absl::StrReplaceAll(kPairsJob, {{"METHOD", "1f1b"}});
    for (const auto& [from, to] : changes) yaml = absl::StrReplaceAll(yaml, {{from, to}});
    const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(yaml, "job.yaml");
    const absl::Status status = spec.ok() ? ResolveJob(*spec).status() : spec.status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("data.pairs"), HasSubstr(reason))));
  }
}

}  // namespace
}  // namespace penstock
