// What a worker fetches of what was put: files that data name, and of weights those of its layers.
#include "worker/data_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "checkpoint/layout.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weight_files.h"
#include "compute/initial_weights.h"
#include "data/put_listing.h"
#include "job/defaults.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/pretrained.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr auto kGoesOn = [] { return absl::OkStatus(); };

const std::string kPutDigest(64, 'd');

// A cluster that has one directory, of which files come to /here.
class FakeFetcher final : public DataFetcher {
 public:
  FakeFetcher(Files& there, Files& here, std::vector<std::string> names)
      : there_(there), here_(here), names_(std::move(names)) {}

  void BeginRun() override { fetched.clear(); }
  absl::StatusOr<std::string> Fetch(const PutPath& put,
                                    absl::FunctionRef<bool(absl::string_view name)> wanted,
                                    absl::FunctionRef<absl::Status()>) override {
    PutListing listing;
    for (const std::string& name : names_) listing.files.push_back({name, 1, kPutDigest});
    const std::vector<const PutEntry*> entries = listing.At(put.name);
    if (entries.empty()) return NotInPutDirectory(put, listing);
    for (const PutEntry* entry : entries) {
      if (!wanted(NameBelow(entry->name, put.name))) continue;
      if (!fetched.insert(entry->name).second) continue;
      const absl::StatusOr<std::string> content = there_.Read("/there/" + entry->name, 1 << 24);
      if (!content.ok()) return content.status();
      const absl::Status written = here_.WriteDurably("/here/" + entry->name, {*content});
      if (!written.ok()) return written;
    }
    return put.name.empty() ? "/here" : "/here/" + put.name;
  }

  std::set<std::string> fetched;

 private:
  Files& there_;
  Files& here_;
  const std::vector<std::string> names_;
};

class PutWeights : public ::testing::Test {
 protected:
  PutWeights() : spec_(SmallJob("1f1b")) {
    spec_.mutable_model()->mutable_pretrained()->set_directory("sha256:" + kPutDigest + "/");
    const ModelGraph model = ChainOf(spec_);
    job_.model = model;
    // A shard for each layer with parameters.
    std::string map;
    for (const LayerSpec& layer : model.layers) {
      std::vector<NamedArray> arrays;
      const std::string shard = absl::StrCat("model-", layer.number, ".safetensors");
      for (const ParameterSpec& parameter : layer.parameters) {
        arrays.push_back(
            {"transformer." + parameter.name, parameter.shape, InitialWeights(parameter, 77)});
        absl::StrAppend(&map, map.empty() ? "" : ", ", "\"transformer.", parameter.name, "\": \"",
                        shard, "\"");
      }
      if (arrays.empty()) continue;
      shard_of_layer_[layer.number] = shard;
      const std::string header = SafetensorsHeader(arrays, {{"format", "pt"}});
      EXPECT_THAT(there_.WriteDurably("/there/" + shard, SafetensorsPieces(header, arrays)),
                  IsOk());
      names_.push_back(shard);
    }
    Write(kWeightsIndexName, absl::StrCat(R"({"weight_map": {)", map, "}}"));
    Write("tokenizer.json", "{}");
    Write("pytorch_model.bin", "x");
  }

  void Write(const std::string& name, const std::string& content) {
    EXPECT_THAT(there_.WriteDurably("/there/" + name, {content}), IsOk());
    names_.push_back(name);
  }

  MemoryFiles there_;
  MemoryFiles here_;
  v1::JobSpec spec_;
  ResolvedJob job_;
  std::vector<std::string> names_;
  std::map<int, std::string> shard_of_layer_;
};

TEST_F(PutWeights, OfShards_ThoseOfTheLayersComeAndSuffice) {
  for (int layer = 0; layer < job_.model.size(); ++layer) {
    FakeFetcher fetcher(there_, here_, names_);
    v1::ModelSpec model = spec_.model();
    const LayerRange layers{layer, 1};
    ASSERT_THAT(FetchPutWeights(&fetcher, here_, kGoesOn, job_, layers, model), IsOk());
    EXPECT_EQ(model.pretrained().directory(), "/here");
    std::set<std::string> expected = {kWeightsIndexName};
    if (shard_of_layer_.count(layer) > 0) expected.insert(shard_of_layer_[layer]);
    EXPECT_EQ(fetcher.fetched, expected) << layer;
    const std::set<std::string> tensors = NamesOfFirstWeights(job_.model, layer);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const WeightFiles weights,
                                  WeightFiles::Open(here_, "/here", tensors));
    for (const ParameterSpec& parameter : job_.model.layers[layer].parameters) {
      EXPECT_NE(weights.Find("transformer." + parameter.name), nullptr) << parameter.name;
    }
  }
}

TEST_F(PutWeights, ShardThatIsMissing_IsNamed) {
  std::string missing = shard_of_layer_.begin()->second;
  std::erase(names_, missing);
  FakeFetcher fetcher(there_, here_, names_);
  v1::ModelSpec model = spec_.model();
  const LayerRange layers{shard_of_layer_.begin()->first, 1};
  ASSERT_THAT(FetchPutWeights(&fetcher, here_, kGoesOn, job_, layers, model), IsOk());
  EXPECT_THAT(WeightFiles::Open(here_, "/here", NamesOfFirstWeights(job_.model, layers.first)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(missing)));
}

TEST_F(PutWeights, ModelsOfOneFileAndCheckpoints_ComeWithoutTheRest) {
  FakeFetcher one(there_, here_, {"tokenizer.json", "pytorch_model.bin", "onnx/model.safetensors"});
  v1::ModelSpec model = spec_.model();
  ASSERT_THAT(FetchPutWeights(&one, here_, kGoesOn, job_, {0, 1}, model), IsOk());
  EXPECT_THAT(one.fetched, UnorderedElementsAre());
  Write("model.safetensors", "weights");
  FakeFetcher whole(there_, here_, {"tokenizer.json", "model.safetensors"});
  model = spec_.model();
  ASSERT_THAT(FetchPutWeights(&whole, here_, kGoesOn, job_, {0, 1}, model), IsOk());
  EXPECT_THAT(whole.fetched, ElementsAre("model.safetensors"));
  MemoryFiles empty;
  for (const char* name : {kManifestName, "layer-0", "optim-0"}) Write(name, name);
  FakeFetcher checkpoint(there_, empty, {kManifestName, "layer-0", "optim-0"});
  model = spec_.model();
  ASSERT_THAT(FetchPutWeights(&checkpoint, empty, kGoesOn, job_, {0, 1}, model), IsOk());
  EXPECT_THAT(checkpoint.fetched, UnorderedElementsAre(kManifestName, "layer-0"));
}

TEST_F(PutWeights, WithoutACache_AreRefusedWithTheFlag) {
  v1::ModelSpec model = spec_.model();
  EXPECT_THAT(FetchPutWeights(nullptr, here_, kGoesOn, job_, {0, 1}, model),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("model.pretrained.directory names sha256:")));
  model.mutable_pretrained()->set_directory("/models/m");
  EXPECT_THAT(FetchPutWeights(nullptr, here_, kGoesOn, job_, {0, 1}, model), IsOk());
  EXPECT_EQ(model.pretrained().directory(), "/models/m");
}

TEST_F(PutWeights, TokenizerOfAModel_ComesWithoutItsWeights) {
  Write("config.json", "{}");
  Write("tokens/0.bin", "0");
  v1::DataSpec data;
  data.mutable_tokens()->set_path("sha256:" + kPutDigest + "/tokens");
  data.mutable_tokens()->set_sha256(kPutDigest);
  data.mutable_tokens()->set_tokenizer("sha256:" + kPutDigest + "/");
  FakeFetcher fetcher(there_, here_, names_);
  ASSERT_THAT(FetchPutData(&fetcher, kGoesOn, data), IsOk());
  EXPECT_EQ(data.tokens().path(), "/here/tokens");
  EXPECT_EQ(data.tokens().sha256(), "");
  EXPECT_EQ(data.tokens().tokenizer(), "/here");
  EXPECT_THAT(fetcher.fetched, UnorderedElementsAre("tokens/0.bin", "config.json", "tokenizer.json",
                                                    kWeightsIndexName));
  data.mutable_tokens()->set_path("sha256:" + kPutDigest + "/elsewhere");
  EXPECT_THAT(FetchPutData(&fetcher, kGoesOn, data),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("data.tokens.path: sha256:" + kPutDigest + "/ has no elsewhere")));
}

}  // namespace
}  // namespace penstock
