#include "worker/open_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/sha256.h"
#include "data/record_writer.h"
#include "job/defaults.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "tokenizer/tokenizer.h"
#include "worker/reference.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// As many records of tokens and targets as a model of `context` reads.
void WriteTokenRecords(Files& files, const std::string& directory, int64_t records,
                       int64_t context) {
  auto writer = RecordWriter::Create(
      files, directory, {{"targets", "I32", {context}}, {"tokens", "I32", {context}}}, 1 << 10);
  ASSERT_THAT(writer, IsOk());
  for (int64_t record = 0; record < records; ++record) {
    const std::vector<int32_t> tokens(context, static_cast<int32_t>(record % 200));
    const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tokens.data()),
                                           context * sizeof(int32_t));
    ASSERT_THAT((*writer)->Add({bytes, bytes}), IsOk());
  }
  ASSERT_THAT((*writer)->Finish(), IsOk());
}

v1::JobSpec RecordsJob(const std::string& path) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_data()->mutable_records()->set_path(path);
  FillDefaults(spec);
  return spec;
}

absl::StatusOr<std::unique_ptr<DataSource>> Open(Files& files, const v1::JobSpec& spec) {
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  EXPECT_THAT(job, IsOk());
  return OpenData(files, spec, *job, "/data", RunLimits());
}

TEST(OpenData, EveryKind_FillsTheModelsPorts) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably(kTextPath, {TestText()}), IsOk());
  WriteTokenRecords(files, "/data/records", 50, 8);
  v1::JobSpec synthetic = SmallJob("1f1b");
  synthetic.mutable_data()->mutable_synthetic();
  for (const v1::JobSpec& spec : {SmallJob("1f1b"), RecordsJob("records"), synthetic}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open(files, spec));
    for (const int port : {0, 1}) {
      std::vector<int32_t> tokens(3 * 8, -1);
      ASSERT_THAT(data->Read(Split::kTraining, 5, port,
                             absl::MakeSpan(reinterpret_cast<std::byte*>(tokens.data()),
                                            tokens.size() * sizeof(int32_t))),
                  IsOk());
      for (const int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < 256);
    }
  }
}

v1::JobSpec TextJob() {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_data()->mutable_text()->set_path("text");
  return spec;
}

TEST(OpenData, Text_ThatIsNotThere_IsNamed) {
  MemoryFiles files;
  v1::JobSpec spec = TextJob();
  spec.mutable_data()->mutable_text()->set_path("nowhere");
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/data/nowhere")));
  ASSERT_THAT(files.CreateDirectories("/data/nowhere"), IsOk());
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("directory")));
}

TEST(OpenData, Text_OfOtherContent_NamesBothDigests) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably("/data/text", {TestText()}), IsOk());
  v1::JobSpec spec = TextJob();
  spec.mutable_data()->mutable_text()->set_sha256(Sha256Hex(TestText()));
  EXPECT_THAT(Open(files, spec), IsOk());
  spec.mutable_data()->mutable_text()->set_sha256(std::string(64, '0'));
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(Sha256Hex(TestText())), HasSubstr(std::string(64, '0')))));
}

TEST(OpenData, Text_OverTheLimit_IsRefused) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably("/data/text", {TestText()}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(TextJob()));
  RunLimits limits;
  limits.data_bytes_max = static_cast<int64_t>(TestText().size()) - 1;
  EXPECT_THAT(OpenData(files, TextJob(), job, "/data", limits).status(),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("/data/text")));
}

// A tokenizer of 256 bytes and "ab", in the form of Hugging Face.
std::string PairTokenizer() {
  const auto letter = [](int byte) {
    const auto printable = [](int b) {
      return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    };
    int code = byte;
    if (!printable(byte)) {
      code = 256;
      for (int before = 0; before < byte; ++before) code += printable(before) ? 0 : 1;
    }
    std::string text;
    if (code < 128) return std::string(1, static_cast<char>(code));
    text += static_cast<char>(0xC0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 63));
    return text;
  };
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary[letter(byte)] = byte;
  vocabulary["ab"] = 256;
  const nlohmann::json file = {
      {"version", "1.0"},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b"}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  return file.dump();
}

TEST(OpenData, Text_WithATokenizer_IsItsTokensAndBringsItAlong) {
  MemoryFiles files;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "ab";
  ASSERT_THAT(files.WriteDurably("/data/text", {text}), IsOk());
  ASSERT_THAT(files.WriteDurably("/data/pairs/tokenizer.json", {PairTokenizer()}), IsOk());
  v1::JobSpec spec = TextJob();
  spec.mutable_data()->mutable_text()->set_tokenizer("pairs/tokenizer.json");
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("data.text.tokenizer: "), HasSubstr("has 257 tokens"),
                             HasSubstr("below 256"))));
  spec.mutable_model()->mutable_gpt()->set_vocabulary(257);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open(files, spec));
  std::vector<int32_t> tokens(3 * 8, -1);
  ASSERT_THAT(data->Read(Split::kTraining, 5, 0,
                         absl::MakeSpan(reinterpret_cast<std::byte*>(tokens.data()),
                                        tokens.size() * sizeof(int32_t))),
              IsOk());
  EXPECT_EQ(tokens, std::vector<int32_t>(3 * 8, 256));
  ASSERT_EQ(data->attached_files().size(), 1u);
  EXPECT_EQ(data->attached_files()[0].name, "tokenizer.json");
  EXPECT_EQ(data->attached_files()[0].content, PairTokenizer());
  spec.mutable_data()->mutable_text()->set_tokenizer_sha256(std::string(64, '0'));
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("data.text.tokenizer: ")));
}

// "ä", "a", "b" and a line end: ids by code points.
TEST(OpenData, Text_ByCharacters_HasThemAsTokensAndBringsThemAlong) {
  MemoryFiles files;
  std::string text;
  for (int i = 0; i < 100; ++i)
    text +=
        "b\xC3\xA4"
        "a\n";
  ASSERT_THAT(files.WriteDurably("/data/text", {text}), IsOk());
  v1::JobSpec spec = TextJob();
  spec.mutable_data()->mutable_text()->set_tokenizer("characters");
  spec.mutable_data()->mutable_text()->set_order("sequential");
  spec.mutable_model()->mutable_gpt()->set_vocabulary(3);
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("data.text.tokenizer: the text has 4 tokens, but the model's "
                                 "input tokens takes ids below 3")));
  spec.mutable_model()->mutable_gpt()->set_vocabulary(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open(files, spec));
  std::vector<int32_t> tokens(8, -1);
  ASSERT_THAT(data->Read(Split::kTraining, 0, 0,
                         absl::MakeSpan(reinterpret_cast<std::byte*>(tokens.data()),
                                        tokens.size() * sizeof(int32_t))),
              IsOk());
  EXPECT_THAT(tokens, testing::ElementsAre(2, 3, 1, 0, 2, 3, 1, 0));
  ASSERT_EQ(data->attached_files().size(), 1u);
  EXPECT_EQ(data->attached_files()[0].name, "tokenizer.json");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                                ParseTokenizerJson(data->attached_files()[0].content));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string decoded, tokenizer->Decode(tokens));
  EXPECT_EQ(decoded, text.substr(0, 10));
}

// Bit for bit, as weights are named by seed and parameter in any partition.
TEST(OpenData, ClusterAsPyTorch_TrainsAsTheReference) {
  MemoryFiles files;
  AddTestText(files);
  std::set<std::string> digests;
  for (const char* init : {"", "family", "pytorch"}) {
    v1::JobSpec spec = SmallJob("pipedream");
    spec.mutable_model()->set_init(init);
    spec.mutable_data()->mutable_text()->set_tokenizer("characters");
    spec.mutable_data()->mutable_text()->set_order("blocks");
    for (const int stages : {1, 3}) {
      const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                    TrainCluster({.spec = spec, .layers = layers}, files));
      ExpectSameTraining(cluster, serial);
      digests.insert(cluster.weights_sha256);
    }
  }
  EXPECT_EQ(digests.size(), 4u);  // of two starts with two delays; "" is "family"
}

std::string TokenShard(int32_t first, int64_t count) {
  std::string shard;
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<uint16_t>(first + i % 50);
    shard.append(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  return shard;
}

v1::JobSpec TokensJob() {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_data()->mutable_tokens()->set_path("low.bin");
  FillDefaults(spec);
  return spec;
}

TEST(OpenData, MixedTokens_GiveEachSourceItsShare) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably("/data/low.bin", {TokenShard(0, 5000)}), IsOk());
  ASSERT_THAT(files.WriteDurably("/data/high.bin", {TokenShard(100, 3000)}), IsOk());
  v1::JobSpec spec = TokensJob();
  v1::TokenSourceSpec& source = *spec.mutable_data()->mutable_tokens()->add_mixture();
  source.set_path("high.bin");
  source.set_weight(3.0);
  spec.mutable_validation()->set_every_steps(1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open(files, spec));
  for (const Split split : {Split::kTraining, Split::kValidation}) {
    const int64_t samples = split == Split::kTraining ? 400 : data->validation_samples();
    std::vector<int32_t> tokens(samples * 8, -1);
    ASSERT_THAT(data->Read(split, 0, 0,
                           absl::MakeSpan(reinterpret_cast<std::byte*>(tokens.data()),
                                          tokens.size() * sizeof(int32_t))),
                IsOk());
    int64_t high = 0;
    for (int64_t sample = 0; sample < samples; ++sample) high += tokens[sample * 8] >= 100 ? 1 : 0;
    EXPECT_EQ(high, samples * 3 / 4);
  }
}

TEST(OpenData, ClusterOnTokens_TrainsAsTheReferenceInEveryOrder) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably("/data/low.bin", {TokenShard(0, 900)}), IsOk());
  ASSERT_THAT(files.WriteDurably("/data/val.bin", {TokenShard(7, 400)}), IsOk());
  std::set<std::string> digests;
  for (const char* order : {"shuffled", "sequential", "random", "contiguous", "blocks"}) {
    v1::JobSpec spec = TokensJob();
    v1::TokensSpec& tokens = *spec.mutable_data()->mutable_tokens();
    tokens.set_path("/data/low.bin");
    tokens.set_order(order);
    tokens.set_validation("/data/val.bin");
    tokens.set_validation_fraction(0.0);
    spec.mutable_training()->set_steps(20);
    spec.mutable_validation()->set_every_steps(10);
    spec.mutable_validation()->set_batches(2);
    const std::vector<LayerRange> layers = EvenSplit(kLayers, 3);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = layers}, files));
    ExpectSameTraining(cluster, serial);
    digests.insert(cluster.weights_sha256);
  }
  EXPECT_EQ(digests.size(), 5u);
}

TEST(OpenData, Reference_TrainsOnRecords) {
  MemoryFiles files;
  WriteTokenRecords(files, "/data/records", 50, 8);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  const auto train = [&](const v1::JobSpec& spec) {
    return TrainReference({.spec = spec, .stages = {{0, kLayers}}, .data_root = "/data"}, files,
                          *backend);
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ReferenceResult shuffled, train(RecordsJob("records")));
  v1::JobSpec stored = RecordsJob("/data/records");
  stored.mutable_data()->mutable_records()->set_order("sequential");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ReferenceResult sequential, train(stored));
  EXPECT_NE(shuffled.weights_sha256, sequential.weights_sha256);
}

TEST(OpenData, ClusterOnRecords_TrainsAsTheReference) {
  MemoryFiles files;
  WriteTokenRecords(files, "/data/records", 70, 8);
  for (const char* method : {"1f1b", "pipedream"}) {
    v1::JobSpec spec = RecordsJob("/data/records");
    spec.mutable_pipeline()->set_method(method);
    spec.mutable_training()->set_steps(20);  // more than two epochs
    spec.mutable_validation()->set_every_steps(10);
    spec.mutable_validation()->set_batches(4);
    spec.mutable_data()->mutable_records()->set_validation_fraction(0.5);
    const std::vector<LayerRange> layers = EvenSplit(kLayers, 3);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = layers}, files));
    ExpectSameTraining(cluster, serial);
    EXPECT_EQ(cluster.validations.size(), 2u);
  }
}

TEST(OpenData, AnotherIndex_IsRefused) {
  MemoryFiles files;
  WriteTokenRecords(files, "/data/records", 50, 8);
  v1::JobSpec spec = RecordsJob("records");
  spec.mutable_data()->mutable_records()->set_sha256(std::string(64, 'a'));
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/data/records/index.json")));
}

class CheckJobDataTest : public ::testing::Test {
 protected:
  absl::Status Check(v1::JobSpec& spec) {
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    EXPECT_THAT(job, IsOk());
    return CheckJobData(RealFiles(), Root(), *job, spec);
  }

  std::string Root() const { return directory_.path().string(); }
  std::string Path(const char* name) const { return (directory_.path() / name).string(); }

  TestDirectory directory_;
};

TEST_F(CheckJobDataTest, Records_GetTheDigestsOfBothDirectories) {
  WriteTokenRecords(RealFiles(), Path("train"), 50, 8);
  WriteTokenRecords(RealFiles(), Path("test"), 20, 8);
  v1::JobSpec spec = RecordsJob("train");
  spec.mutable_data()->mutable_records()->set_validation("test");
  spec.mutable_data()->mutable_records()->set_validation_fraction(0.0);
  EXPECT_TRUE(JobDataIsHere(Root(), spec));
  ASSERT_THAT(Check(spec), IsOk());
  EXPECT_EQ(spec.data().records().sha256().size(), 64u);
  EXPECT_EQ(spec.data().records().validation_sha256().size(), 64u);
  ASSERT_THAT(Check(spec), IsOk());

  std::ofstream(Path("test/index.json"), std::ios::app) << " ";
  EXPECT_THAT(Check(spec),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("data.records.validation_sha256: ")));
}

TEST_F(CheckJobDataTest, RecordsThatAreNotThere_AreNamedWithTheirKey) {
  v1::JobSpec spec = RecordsJob("train");
  EXPECT_FALSE(JobDataIsHere(Root(), spec));
  EXPECT_THAT(Check(spec),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("data.records.path: "), HasSubstr("train does not exist"),
                             HasSubstr("--data DIR"))));
  std::filesystem::create_directory(Path("train"));
  EXPECT_THAT(Check(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("train is no directory of records")));
}

TEST_F(CheckJobDataTest, ChangedShard_IsFound) {
  WriteTokenRecords(RealFiles(), Path("train"), 50, 8);
  const std::string shard = Path("train/00000.safetensors");
  std::fstream(shard, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << 'x';
  v1::JobSpec spec = RecordsJob("train");
  EXPECT_THAT(Check(spec), StatusIs(absl::StatusCode::kDataLoss,
                                    AllOf(HasSubstr("data.records: "), HasSubstr(shard))));
}

TEST_F(CheckJobDataTest, Interrupted_Ends) {
  WriteTokenRecords(RealFiles(), Path("train"), 50, 8);
  v1::JobSpec spec = RecordsJob("train");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_THAT(CheckJobData(RealFiles(), Root(), job, spec, [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted while train")));
}

TEST_F(CheckJobDataTest, Tokens_GetTheDigestsOfAllTheirSources) {
  ASSERT_THAT(RealFiles().WriteDurably(Path("low.bin"), {TokenShard(0, 900)}), IsOk());
  ASSERT_THAT(RealFiles().WriteDurably(Path("high.bin"), {TokenShard(90, 900)}), IsOk());
  v1::JobSpec spec = TokensJob();
  v1::TokensSpec& tokens = *spec.mutable_data()->mutable_tokens();
  tokens.set_path("lo*.bin");
  v1::TokenSourceSpec& source = *tokens.add_mixture();
  source.set_path("higher.bin");
  source.set_weight(1.0);
  EXPECT_FALSE(JobDataIsHere(Root(), spec));
  EXPECT_THAT(Check(spec), StatusIs(absl::StatusCode::kNotFound,
                                    AllOf(HasSubstr("data.tokens.mixture[0].path: "),
                                          HasSubstr("higher.bin does not exist"))));
  tokens.mutable_mixture(0)->set_path("high.bin");
  EXPECT_TRUE(JobDataIsHere(Root(), spec));
  ASSERT_THAT(Check(spec), IsOk());
  EXPECT_EQ(tokens.sha256().size(), 64u);
  EXPECT_EQ(tokens.mixture(0).sha256().size(), 64u);
  EXPECT_NE(tokens.sha256(), tokens.mixture(0).sha256());
}

TEST_F(CheckJobDataTest, Synthetic_NeedsNothing) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_data()->mutable_synthetic();
  EXPECT_TRUE(JobDataIsHere(Root(), spec));
  EXPECT_THAT(Check(spec), IsOk());
}

}  // namespace
}  // namespace penstock
