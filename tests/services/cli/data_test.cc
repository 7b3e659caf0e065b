// penstock data, and training on what it makes.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "base/files.h"
#include "data/record_writer.h"
#include "tests/services/cli/job_directory.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

ProcessResult Penstock(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ProgramPath("penstock"));
  return RunProcess(arguments);
}

std::string Idx(const std::vector<int>& dims, const std::string& values) {
  std::string file = {0, 0, 8, static_cast<char>(dims.size())};
  for (const int dim : dims) file += {0, 0, 0, static_cast<char>(dim)};
  return file + values;
}

// Six images of two by two pixels in training, one in the test.
class DataCommandTest : public ::testing::Test {
 protected:
  void WriteMnist() {
    std::string pixels;
    for (int i = 0; i < 24; ++i) pixels.push_back(static_cast<char>(10 * i));
    folder_.Write("train-images-idx3-ubyte", Idx({6, 2, 2}, pixels));
    folder_.Write("train-labels-idx1-ubyte", Idx({6}, {0, 1, 1, 2, 2, 2}));
    folder_.Write("t10k-images-idx3-ubyte", Idx({1, 2, 2}, pixels.substr(0, 4)));
    folder_.Write("t10k-labels-idx1-ubyte", Idx({1}, {2}));
  }

  JobDirectory folder_;
};

TEST_F(DataCommandTest, PrepareThenShow_TellsWhatIsThere) {
  WriteMnist();
  const ProcessResult made =
      Penstock({"data", "prepare", "images", folder_.path(), "-o", folder_.path("mnist")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.out, "wrote " + folder_.path("mnist/train") + ": 6 records of MNIST\nwrote " +
                          folder_.path("mnist/test") + ": 1 record of MNIST\n");
  EXPECT_EQ(made.err, "");  // no bar where there is no terminal

  const ProcessResult shown = Penstock({"data", "show", folder_.path("mnist/train"), "--check"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("6 records in 1 shard"), HasSubstr("u8 [2, 2, 1]"),
                               HasSubstr("label has 3 values: 0 (1) 1 (2) 2 (3)")));

  const ProcessResult json = Penstock({"data", "show", folder_.path("mnist/train"), "--json"});
  const Json parsed = Json::parse(json.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(parsed.is_object()) << json.out;
  EXPECT_EQ(parsed["records"], 6);
  EXPECT_EQ(parsed["tensors"]["image"]["max"], 230);
  EXPECT_EQ(parsed["tensors"]["label"]["values"]["2"], 3);
  EXPECT_EQ(parsed["content_checked"], false);
}

TEST_F(DataCommandTest, RecordsOfThePythonExample_AreRead) {
  const ProcessResult made =
      RunProcess({"/usr/bin/python3", "-B",
                  std::string(PENSTOCK_SOURCE_DIR) + "/examples/python/write_records.py",
                  folder_.path("squares")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ProcessResult shown =
      RunProcess({ProgramPath("penstock"), "data", "show", folder_.path("squares"), "--check"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("1000 records in 1 shard"), HasSubstr("u8 [8, 8, 1]"),
                               HasSubstr("label has 4 values")));
}

TEST_F(DataCommandTest, WhatCannotBeDone_IsNamed) {
  const ProcessResult unknown =
      Penstock({"data", "prepare", "images", folder_.path(), "-o", folder_.path("out")});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("train-images-idx3-ubyte"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("out")));

  WriteMnist();
  ASSERT_EQ(
      Penstock({"data", "prepare", "images", folder_.path(), "-o", folder_.path("out")}).exit_code,
      0);
  const ProcessResult again =
      Penstock({"data", "prepare", "images", folder_.path(), "-o", folder_.path("out")});
  EXPECT_NE(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("out/train/index.json is there already"));

  std::filesystem::resize_file(folder_.path("out/train/00000.safetensors"), 20);
  const ProcessResult cut = Penstock({"data", "show", folder_.path("out/train")});
  EXPECT_NE(cut.exit_code, 0);
  EXPECT_THAT(cut.err, HasSubstr("out/train/00000.safetensors"));
}

// Sentences of a few words that all differ, and two that are left out.
std::string PairTable() {
  std::string table = "<b>bold</b>\tfett\nsame\tsame\n";
  for (int i = 0; i < 200; ++i) {
    table += "Open file number " + std::to_string(i) + "\tDatei Nummer " + std::to_string(i) +
             " öffnen\n";
  }
  return table;
}

TEST_F(DataCommandTest, PreparePairsThenShow_TellsWhatIsThere) {
  folder_.Write("pairs.tsv", PairTable());
  const ProcessResult made =
      Penstock({"data", "prepare", "pairs", folder_.path("pairs.tsv"), "-o", folder_.path("out"),
                "--pieces", "60", "--test", "0", "--validation", "0.25"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("wrote " + folder_.path("out/validation") + ": "),
                              HasSubstr("wrote " + folder_.path("out/train") + ": "),
                              HasSubstr("Of 202 pairs that were read, these were left out: empty "
                                        "0, same 1, markup 1, no letters 0, long 0, uneven 0, "
                                        "repeated source 0.\n")));
  EXPECT_EQ(made.err, "");
  EXPECT_FALSE(std::filesystem::exists(folder_.path("out/test")));

  const ProcessResult shown = Penstock({"data", "show", folder_.path("out/train"), "--check"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("SEQUENCE  TYPE  SHORTEST"), HasSubstr("PAIRS THAT FIT"),
                    HasSubstr("0 is padding, 1 unknown, 2 the beginning of a sentence, 3 its end"),
                    HasSubstr("read 202, empty 0, same 1, markup 1")));
  const ProcessResult json = Penstock({"data", "show", folder_.path("out/train"), "--json"});
  const Json parsed = Json::parse(json.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(parsed.is_object()) << json.out;
  EXPECT_EQ(parsed["pairs"]["vocabulary"]["eos"], 3);
  EXPECT_EQ(parsed["pairs"]["counts"]["markup"], 1);
  EXPECT_EQ(parsed["pairs"]["pairs_that_fit"]["256"], parsed["records"]);
  EXPECT_GT(parsed["sequences"]["source"]["longest"], 3);
}

TEST_F(DataCommandTest, PairsThatCannotBePrepared_AreNamed) {
  const auto error = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"data", "prepare", "pairs", "-o", folder_.path("out")});
    const ProcessResult result = Penstock(more);
    EXPECT_NE(result.exit_code, 0);
    return result.err;
  };
  EXPECT_THAT(error({}), HasSubstr("there is nothing to read"));
  EXPECT_THAT(error({folder_.path()}), HasSubstr("has no .mo file below it"));
  folder_.Write("broken.mo", "no catalogue at all, but long enough");
  EXPECT_THAT(error({folder_.path()}),
              HasSubstr("broken.mo: is no gettext catalogue, or is cut short"));
  EXPECT_THAT(error({"--source", folder_.path("broken.mo")}), HasSubstr("--target"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("out")));
}

constexpr int64_t kContext = 16;  // of the job's model

// Records of tokens and targets, each `context` long.
void WriteTokens(const std::string& directory, int64_t context) {
  constexpr int64_t kRecords = 200;
  auto writer = RecordWriter::Create(
      RealFiles(), directory, {{"targets", "I32", {context}}, {"tokens", "I32", {context}}}, 4096);
  ASSERT_THAT(writer, IsOk());
  for (int64_t record = 0; record < kRecords; ++record) {
    std::vector<int32_t> tokens;
    for (int64_t t = 0; t <= context; ++t) {
      tokens.push_back(static_cast<int32_t>((record + t * t) % 7));
    }
    const auto bytes = [&](size_t first) {
      return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tokens.data() + first),
                                 context * sizeof(int32_t));
    };
    ASSERT_THAT((*writer)->Add({bytes(1), bytes(0)}), IsOk());
  }
  ASSERT_THAT((*writer)->Finish(), IsOk());
}

class TrainOnDataTest : public ::testing::Test {
 protected:
  void SetData(const std::string& data) {
    job_.EditJob(data_, data);
    data_ = data;
  }
  ProcessResult Train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProcess(job_.Train(arguments));
  }
  std::string WeightsAfter(const std::vector<std::string>& more) const {
    const ProcessResult result = Train(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json json = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    return json.is_object() ? json["weights_sha256"].get<std::string>() : "";
  }

  JobDirectory job_;
  std::string data_ = "text: {path: input.txt, tokenizer: bytes}";
};

TEST_F(TrainOnDataTest, Records_ClusterAndReferenceAgree) {
  WriteTokens(job_.path("records"), kContext);
  SetData("records: {path: records}");
  const std::string weights = WeightsAfter({"--workers", "2"});
  EXPECT_EQ(WeightsAfter({"--reference"}), weights);
  SetData("records: {path: records, order: sequential}");
  EXPECT_NE(WeightsAfter({"--reference"}), weights);
}

// The example of images, from the records of the Python example on.
TEST_F(TrainOnDataTest, ImagesOfTheExample_AreLearnt) {
  const std::string examples = std::string(PENSTOCK_SOURCE_DIR) + "/examples/";
  const ProcessResult made = RunProcess(
      {"/usr/bin/python3", "-B", examples + "python/write_records.py", job_.path("squares")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  std::string weights;
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"--reference"}, std::vector<std::string>{"--workers", "2"}}) {
    std::vector<std::string> call = {ProgramPath("penstock"),
                                     "train",
                                     examples + "squares.yaml",
                                     "--data",
                                     job_.path("squares"),
                                     "--json",
                                     "--set",
                                     "checkpoint.directory=" + job_.checkpoints()};
    call.insert(call.end(), how.begin(), how.end());
    const ProcessResult trained = RunProcess(call);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const Json json = Json::parse(trained.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << trained.out;
    EXPECT_LT(json["validation_loss"].get<double>(), 0.2) << trained.out;  // log 4 before training
    if (weights.empty()) weights = json["weights_sha256"];
    EXPECT_EQ(json["weights_sha256"], weights);
    EXPECT_GT(json["validation_metrics"]["accuracy"], 0.9);
    EXPECT_FALSE(json["validation_metrics"].contains("top5"));  // of four classes
    EXPECT_EQ(json["unit"], "samples");
    EXPECT_GT(json["samples"], 0);
    EXPECT_EQ(json["tokens"], 0);
    EXPECT_THAT(trained.err, HasSubstr(" samples/s"));
    EXPECT_EQ(how[0] == "--workers", absl::StrContains(trained.err, "next:\n  penstock evaluate"));
  }
  const ProcessResult evaluated =
      RunProcess({ProgramPath("penstock"), "evaluate", job_.checkpoints(), "--data",
                  job_.path("squares"), "--split", "validation", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const Json json = Json::parse(evaluated.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << evaluated.out;
  EXPECT_GT(json["metrics"]["accuracy"], 0.9);
  EXPECT_TRUE(json["perplexity"].is_null());
  EXPECT_TRUE(json["bits_per_byte"].is_null());
}

// From a text to text again: tokens with a vocabulary that was learned, a model of them, its checkpoint and what it says.
TEST_F(TrainOnDataTest, Tokens_ComeFromATextAndGoBackToOne) {
  const std::string penstock = ProgramPath("penstock");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), penstock);
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  };
  const Json made = run({"data", "prepare", "tokens", job_.path("input.txt"), "-o",
                         job_.path("tokens"), "--vocabulary", "300", "--json"});
  EXPECT_EQ(made["documents"], 1);
  EXPECT_EQ(made["shards"], 1);
  EXPECT_LE(made["vocabulary"], 300);
  EXPECT_LT(made["tokens"].get<int64_t>(), made["text_bytes"].get<int64_t>() / 2);

  SetData("tokens: {path: tokens, tokenizer: tokens/tokenizer.json}");
  EXPECT_THAT(Train({"--reference"}).err, HasSubstr("data.tokens"));  // the model knows 256 ids
  job_.EditJob("tied_head: false", "vocabulary: 300, tied_head: false");
  const std::vector<std::string> saved = {"--workers", "2", "--set",
                                          "checkpoint.directory=" + job_.checkpoints()};
  const std::string weights = WeightsAfter(saved);
  EXPECT_EQ(WeightsAfter({"--reference"}), weights);

  const Json generated = run({"generate", job_.checkpoints(), "--prompt", "Line ", "--prompt",
                              "text", "--tokens", "30", "--top-p", "0.9", "--json"});
  ASSERT_EQ(generated["texts"].size(), 2u);
  EXPECT_EQ(generated["texts"][0]["prompt"], "Line ");
  EXPECT_EQ(generated["texts"][1]["tokens"], 30);
  EXPECT_FALSE(generated["texts"][0]["text"].get<std::string>().empty());
  const Json whole = run({"generate", job_.checkpoints(), "--prompt", "Line ", "--prompt", "text",
                          "--tokens", "30", "--top-p", "0.9", "--no-cache", "--json"});
  EXPECT_EQ(whole, generated);

  // The text of a job that names the tokenizer, and of a plain file by that of the checkpoint, is the same.
  SetData("text: {path: input.txt, tokenizer: tokens/tokenizer.json}");
  EXPECT_NE(WeightsAfter({"--reference"}), "");
  const Json plain =
      run({"evaluate", job_.checkpoints(), "--data", job_.path("input.txt"), "--json"});
  const Json shards =
      run({"evaluate", job_.checkpoints(), "--data", job_.path("tokens"), "--json"});
  EXPECT_DOUBLE_EQ(plain["loss"], shards["loss"]);
  EXPECT_DOUBLE_EQ(plain["bits_per_byte"], shards["bits_per_byte"]);
  const double tokens_per_byte = made["tokens"].get<double>() / made["text_bytes"].get<double>();
  EXPECT_NEAR(plain["bits_per_byte"].get<double>(),
              plain["loss"].get<double>() / std::log(2.0) * tokens_per_byte, 0.05);
}

TEST_F(TrainOnDataTest, OtherRecords_AreTakenWithTheFlag) {
  WriteTokens(job_.path("elsewhere"), kContext);
  SetData("records: {path: none}");
  EXPECT_NE(WeightsAfter({"--reference", "--data", job_.path("elsewhere")}), "");
}

TEST_F(TrainOnDataTest, Synthetic_NeedsNoFiles) {
  SetData("synthetic: {}");
  const std::string weights = WeightsAfter({"--workers", "2"});
  EXPECT_EQ(WeightsAfter({"--reference"}), weights);
  const ProcessResult refused = Train({"--data", job_.path("input.txt")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("data.synthetic, which reads no files"));
}

TEST_F(TrainOnDataTest, RecordsThatDoNotFit_AreNamedBeforeAnythingRuns) {
  SetData("records: {path: none}");
  const ProcessResult missing = Train();
  EXPECT_EQ(missing.exit_code, 2) << missing.err;
  EXPECT_THAT(missing.err, AllOf(HasSubstr("data.records.path"), HasSubstr("none does not exist")));
  WriteTokens(job_.path("long"), kContext + 1);
  SetData("records: {path: long}");
  const ProcessResult other = Train();
  EXPECT_EQ(other.exit_code, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("but the model's input of that name is i32 [16]"));
}

}  // namespace
}  // namespace penstock
