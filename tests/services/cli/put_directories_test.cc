// Directories that are put to a cluster whose workers have no disk in common: records, tokens with their tokenizer, and a
// model of Hugging Face's in shards.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/files.h"
#include "base/sha256.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weight_files.h"
#include "data/record_writer.h"
#include "tests/services/cli/cluster_fixture.h"
#include "tests/services/transport/tcp_proxy.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kWorkers = 3;

class PutDirectoriesTest : public ClusterFixture {
 protected:
  void SetUp() override {
    MakeCertificates();
    coordinator_flags_ = {"--data-directory", job_.path("store")};
    StartCoordinator("127.0.0.1:0");
    for (int i = 0; i < kWorkers; ++i) StartWorker({"--data-cache", CacheOf(i)});
    ASSERT_TRUE(Eventually([&] { return RunJson({"workers"}).size() == kWorkers; })) << address_;
  }

  std::string CacheOf(int worker) const { return job_.path("cache-" + std::to_string(worker)); }

  // `penstock data put` of what has this name in the directory of the job; returns its path in a job.
  std::string Put(const std::string& name) const {
    const Json put = RunJson({"data", "put", job_.path(name)});
    return put.is_array() && !put.empty() ? put[0]["path"].get<std::string>() : "";
  }

  // The digest of the weights of a job that trains on the cluster, and of the same in one process.
  std::string WeightsOnCluster() const {
    const ProcessResult trained = Run(
        {"submit", job_.job(), "--set", "pipeline.stages=" + std::to_string(stages_), "--json"});
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    return trained.exit_code == 0 ? Json::parse(trained.out)["weights_sha256"] : "";
  }
  std::string WeightsHere() const {
    const ProcessResult trained = RunProcess(job_.Train({"--reference", "--json"}));
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    return trained.exit_code == 0 ? Json::parse(trained.out)["weights_sha256"] : "";
  }

  std::string RefusalOfJob() const {
    const ProcessResult submitted = Run(
        {"submit", job_.job(), "--set", "pipeline.stages=" + std::to_string(stages_), "--json"});
    EXPECT_NE(submitted.exit_code, 0);
    return submitted.out + submitted.err;
  }

  bool HasFile(int worker, const std::string& content) const {
    return std::filesystem::exists(CacheOf(worker) + "/" + Sha256Hex(content));
  }

  std::string Content(const std::string& name) const {
    std::ifstream file(job_.path(name), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  int stages_ = kWorkers;

  void WriteSquares(const std::string& name, int records) const {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const auto writer, RecordWriter::Create(RealFiles(), job_.path(name),
                                                {{"image", "U8", {8, 8, 1}}, {"label", "I32", {}}},
                                                /*shard_bytes_max=*/1024));
    for (int i = 0; i < records; ++i) {
      std::vector<std::byte> image(64, std::byte{1});
      for (int pixel = 0; pixel < 16; ++pixel) image[i % 4 * 16 + pixel] = std::byte(200 + i % 50);
      const int32_t label = i % 4;
      ASSERT_THAT(
          writer->Add({image, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&label), 4)}),
          IsOk());
    }
    ASSERT_THAT(writer->Finish(), IsOk());
  }

  void WriteRecordsJob(const std::string& train, const std::string& test) const {
    job_.Write("job.yaml", R"(name: squares
model:
  layers:
    - input: {image: {u8: [8, 8, 1]}, label: {i32: []}}
    - image
    - flatten
    - linear: {outputs: 16}
    - relu
    - linear: {outputs: 4}
    - cross_entropy: {targets: label}
data:
  records: {path: ")" + train + R"(", validation: ")" +
                               test + R"("}
training:
  steps: 6
  batch: 8
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-2}}
  seed: 1
validation: {every_steps: 3, batches: 1}
pipeline: {method: 1f1b}
planning: {split: estimated}
)");
  }
};

TEST_F(PutDirectoriesTest, Records_TrainAsFromADiskOverALinkThatIsCut) {
  stages_ = 2;  // the model has two layers
  WriteSquares("squares/train", 64);
  WriteSquares("squares/test", 16);
  WriteRecordsJob("squares/train", "squares/test");
  const std::string expected = WeightsHere();

  TcpProxy link(std::stoi(address_.substr(address_.rfind(':') + 1)));
  link.CutEvery(2000, /*times=*/2);
  const ProcessResult put =
      RunProcess({ProgramPath("penstock"), "data", "put", job_.path("squares"), "--coordinator",
                  link.address(), "--certificates", certificates("client"), "--json"});
  ASSERT_EQ(put.exit_code, 0) << put.err;
  EXPECT_EQ(link.cuts_left(), 0);
  const Json report = Json::parse(put.out)[0];
  const std::string path = report["path"];
  EXPECT_THAT(path, StartsWith("sha256:"));
  EXPECT_EQ(path.back(), '/');
  EXPECT_GT(report["files"], 4) << "shards of both, and their indices";
  EXPECT_GE(report["breaks"], 2);
  EXPECT_EQ(RunJson({"data", "put", job_.path("squares")})[0]["bytes_sent"], 0);

  WriteRecordsJob(path + "train", path + "test");
  EXPECT_EQ(WeightsOnCluster(), expected);
  EXPECT_EQ(WeightsOnCluster(), expected) << "from the caches";
  EXPECT_TRUE(HasFile(0, Content("squares/train/index.json")) ||
              HasFile(1, Content("squares/train/index.json")) ||
              HasFile(2, Content("squares/train/index.json")));

  // What is not there, or leads out, is refused by name.
  WriteRecordsJob(path + "train", path + "validation");
  EXPECT_THAT(RefusalOfJob(), AllOf(HasSubstr("data.records.validation: "),
                                    HasSubstr("has no validation"), HasSubstr("test, train")));
  WriteRecordsJob(path + "../store", path + "test");
  EXPECT_THAT(RefusalOfJob(), AllOf(HasSubstr("data.records.path: names"), HasSubstr("leads out")));
  ASSERT_EQ(
      Run({"data", "remove", Sha256Hex(Content("squares/train/00000.safetensors"))}).exit_code, 0);
  WriteRecordsJob(path + "train", path + "test");
  EXPECT_THAT(RefusalOfJob(), HasSubstr("train/00000.safetensors is not there as a whole"));
}

TEST_F(PutDirectoriesTest, DirectoryWithAMissingFile_IsNotPut) {
  WriteSquares("squares", 64);
  std::filesystem::remove(job_.path("squares/00001.safetensors"));
  const ProcessResult put = Run({"data", "put", job_.path("squares")});
  EXPECT_EQ(put.exit_code, 2);
  EXPECT_THAT(put.err, AllOf(HasSubstr("squares/00001.safetensors is not there"),
                             HasSubstr("index.json lists it")));
  EXPECT_TRUE(RunJson({"data", "list"}).empty());

  // What leads elsewhere: a link to a directory, and one to nothing.
  std::filesystem::create_directory(job_.path("links"));
  job_.Write("links/text.txt", "a text");
  std::filesystem::create_directory_symlink(job_.path("squares"), job_.path("links/squares"));
  EXPECT_THAT(Run({"data", "put", job_.path("links")}).err,
              HasSubstr("links/squares is a link to a directory"));
  std::filesystem::remove(job_.path("links/squares"));
  std::filesystem::create_symlink(job_.path("nowhere"), job_.path("links/more.txt"));
  EXPECT_THAT(Run({"data", "put", job_.path("links")}).err,
              HasSubstr("links/more.txt is a link to nothing"));
  std::filesystem::remove(job_.path("links/more.txt"));
  // A link to a file is that file, and what begins with a dot is left out.
  std::filesystem::create_symlink(job_.path("input.txt"), job_.path("links/more.txt"));
  job_.Write("links/.lock", "");
  const Json put_links = RunJson({"data", "put", job_.path("links")})[0];
  EXPECT_EQ(put_links["files"], 2);
  EXPECT_EQ(put_links["bytes"].get<size_t>(), 6 + Content("input.txt").size());
}

TEST_F(PutDirectoriesTest, TokensAndTokenizers_TrainAsFromADisk) {
  ASSERT_EQ(RunProcess({ProgramPath("penstock"), "data", "prepare", "tokens",
                        job_.path("input.txt"), "-o", job_.path("tokens"), "--vocabulary", "300"})
                .exit_code,
            0);
  job_.EditJob("tied_head: false", "vocabulary: 300, tied_head: false");
  job_.EditJob("text: {path: input.txt, tokenizer: bytes}",
               "tokens: {path: tokens, tokenizer: tokens}");
  const std::string expected = WeightsHere();
  const std::string path = Put("tokens");
  job_.EditJob("{path: tokens, tokenizer: tokens}",
               "{path: \"" + path + "\", tokenizer: \"" + path + "\"}");
  EXPECT_EQ(WeightsOnCluster(), expected);
  // The files by a pattern, and a tokenizer that was put by itself.
  const std::string tokenizer = Put("tokens/tokenizer.json");
  EXPECT_THAT(tokenizer, ::testing::EndsWith("/tokenizer.json"));
  job_.EditJob("{path: \"" + path + "\", tokenizer: \"" + path + "\"}",
               "{path: \"" + path + "0*.bin\", tokenizer: \"" + tokenizer + "\"}");
  EXPECT_EQ(WeightsOnCluster(), expected);
}

// The shard of a tensor: one for each layer of the file.
std::string ShardOf(const std::string& tensor) {
  if (tensor.find("h.0.") != tensor.npos) return "model-00002-of-00004.safetensors";
  if (tensor.find("h.1.") != tensor.npos) return "model-00003-of-00004.safetensors";
  return tensor.find("wte") != tensor.npos || tensor.find("wpe") != tensor.npos
             ? "model-00001-of-00004.safetensors"
             : "model-00004-of-00004.safetensors";
}

TEST_F(PutDirectoriesTest, ModelInShards_StartsAsFromADiskAndNoWorkerFetchesAllOfIt) {
  ASSERT_EQ(
      RunProcess(job_.Train({"--set", "checkpoint.directory=" + job_.checkpoints()})).exit_code, 0);
  ASSERT_EQ(
      RunProcess({ProgramPath("penstock"), "export", job_.checkpoints(), "-o", job_.path("model")})
          .exit_code,
      0);
  // save_pretrained's shards, of the one file.
  const std::string whole = Content("model/model.safetensors");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto file,
                                RealFiles().OpenRandomAccess(job_.path("model/model.safetensors")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SafetensorsLayout layout, ReadSafetensorsLayout(*file));
  std::map<std::string, std::pair<std::vector<TensorType>, std::string>> shards;
  Json map;
  for (const TensorPlace& tensor : layout.tensors) {
    auto& [types, bytes] = shards[ShardOf(tensor.type.name)];
    types.push_back(tensor.type);
    bytes += whole.substr(tensor.offset, tensor.size_bytes);
    map["weight_map"][tensor.type.name] = ShardOf(tensor.type.name);
  }
  ASSERT_EQ(shards.size(), 4u);
  std::filesystem::remove(job_.path("model/model.safetensors"));
  for (const auto& [name, shard] : shards) {
    job_.Write("model/" + name,
               SafetensorsHeaderFor(shard.first, {{"format", "pt"}}) + shard.second);
  }
  job_.Write("model/model.safetensors.index.json", map.dump());

  job_.EditJob("gpt: {layers: 2, width: 32, heads: 2, context: 16, tied_head: false}",
               "hugging_face: {directory: model}");
  const std::string expected = WeightsHere();
  const std::string path = Put("model");
  const std::string text = Put("input.txt");
  job_.EditJob("directory: model", "directory: \"" + path + "\"");
  job_.EditJob("path: input.txt", "path: \"" + text + "\"");
  EXPECT_EQ(WeightsOnCluster(), expected);
  for (const auto& [name, shard] : shards) {
    int holders = 0;
    for (int i = 0; i < kWorkers; ++i) holders += HasFile(i, Content("model/" + name)) ? 1 : 0;
    EXPECT_GE(holders, 1) << name;
    EXPECT_LT(holders, kWorkers) << name;
  }
  EXPECT_THAT(RunProcess(job_.Train()).err, HasSubstr("is with a coordinator"));
  job_.EditJob("directory: \"" + path, "directory: \"" + path + "elsewhere/");
  EXPECT_THAT(RefusalOfJob(), HasSubstr("has no elsewhere"));
}

}  // namespace
}  // namespace penstock
