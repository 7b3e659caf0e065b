// First weights from a directory of Hugging Face's, read by clusters and by the serial reference.
#include "worker/pretrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/weight_files.h"
#include "compute/initial_weights.h"
#include "job/defaults.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/first_weights.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/open_data.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Arrays = std::map<std::string, NamedArray>;

constexpr uint64_t kOtherSeed = 77;

// Weights of a model as another seed samples them, by the names of their parameters.
Arrays OtherWeights(const ModelGraph& model) {
  Arrays arrays;
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      ParameterSpec sampled = parameter;
      sampled.init =
          ParameterSpec::Init::kNormal;  // none of zeros and ones, which would hide mistakes
      sampled.init_scale = 0.1;
      arrays[parameter.name] = {parameter.name, parameter.shape,
                                InitialWeights(sampled, kOtherSeed)};
    }
  }
  return arrays;
}

class Pretrained : public ::testing::Test {
 protected:
  Pretrained() : spec_(SmallJob("1f1b")) {
    AddTestText(files_);
    spec_.mutable_model()->mutable_pretrained()->set_directory("/models/m");
    arrays_ = OtherWeights(ChainOf(spec_));
  }

  // Writes the directory, each tensor under the name that `name` gives it.
  void WriteDirectory(const std::function<std::string(const std::string&)>& name =
                          [](const std::string& parameter) { return parameter; }) {
    std::vector<NamedArray> arrays;
    for (const auto& [parameter, array] : arrays_) {
      arrays.push_back(array);
      arrays.back().name = name(parameter);
    }
    const std::string header = SafetensorsHeader(arrays, {{"format", "pt"}});
    ASSERT_THAT(
        files_.WriteDurably("/models/m/model.safetensors", SafetensorsPieces(header, arrays)),
        IsOk());
  }

  absl::StatusOr<std::vector<std::string>> Digest() { return DigestsOfPretrained(spec_, files_); }

  // The weights that the whole model starts with.
  absl::StatusOr<Arrays> Load() { return LoadAllFirstWeights(spec_, files_); }

  void ExpectLoads() {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Arrays loaded, Load());
    ASSERT_EQ(loaded.size(), arrays_.size());
    for (const auto& [name, array] : arrays_) {
      ASSERT_EQ(loaded.count(name), 1u) << name;
      EXPECT_EQ(loaded.at(name).values, array.values) << name;
    }
  }

  MemoryFiles files_;
  v1::JobSpec spec_;
  Arrays arrays_;
};

TEST_F(Pretrained, Weights_AreThoseOfTheFiles) {
  WriteDirectory();
  ExpectLoads();
}

TEST_F(Pretrained, Weights_AreFoundUnderTransformersNames) {
  WriteDirectory([](const std::string& parameter) {
    return parameter == "lm_head.weight" ? parameter : absl::StrCat("transformer.", parameter);
  });
  ExpectLoads();
}

TEST_F(Pretrained, AnyCut_TrainsAsTheReference) {
  WriteDirectory();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> digests, Digest());
  spec_.mutable_model()->mutable_pretrained()->mutable_layer_sha256()->Assign(digests.begin(),
                                                                              digests.end());
  v1::JobSpec sampled = spec_;
  sampled.mutable_model()->clear_pretrained();
  for (const int stages : {1, 3}) {
    const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec_, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec_, .layers = layers}, files_));
    ExpectSameTraining(cluster, serial);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained other, TrainSerially(sampled, layers, {}, files_));
    EXPECT_NE(other.weights_sha256, serial.weights_sha256);
  }
}

TEST_F(Pretrained, ReorderedAndTiedModels_ReadTheirOwn) {
  spec_.mutable_model()->mutable_gpt()->set_tied_head(true);
  arrays_ = OtherWeights(ChainOf(spec_));
  WriteDirectory();
  ExpectLoads();
  spec_.mutable_model()->set_untie(true);  // the copy starts as the table
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Arrays loaded, Load());
  EXPECT_EQ(loaded.at("head.wte.weight").values, arrays_.at("wte.weight").values);
}

// What transformers stores beside weights, and the head of a tied model.
TEST_F(Pretrained, TensorsThatTransformersIgnores_AreIgnored) {
  spec_.mutable_model()->mutable_gpt()->set_tied_head(true);
  arrays_ = OtherWeights(ChainOf(spec_));
  for (const char* name : {"h.0.attn.bias", "h.0.attn.masked_bias", "lm_head.weight",
                           "layers.0.self_attn.rotary_emb.inv_freq", "cls.seq_relationship.bias"}) {
    arrays_[name] = {name, {1}, {0.0f}};
  }
  WriteDirectory();
  EXPECT_THAT(Digest(), IsOk());
}

TEST_F(Pretrained, FilesOfAnotherModel_AreRefusedByTensor) {
  arrays_["score.weight"] = {"score.weight", {1}, {0.0f}};
  WriteDirectory();
  EXPECT_THAT(Digest(),
              StatusIs(kInvalid, AllOf(HasSubstr("model.safetensors: tensor score.weight F32 [1]"),
                                       HasSubstr("no parameter of this name"))));
  arrays_.erase("score.weight");
  const NamedArray bias = arrays_.at("h.1.ln_1.bias");
  arrays_.erase("h.1.ln_1.bias");
  WriteDirectory();
  const auto missing = StatusIs(absl::StatusCode::kNotFound,
                                AllOf(HasSubstr("/models/m: has no tensor h.1.ln_1.bias [16]"),
                                      HasSubstr("model.pretrained.sampled")));
  EXPECT_THAT(Digest(), missing);
  EXPECT_THAT(Load(), missing);
  arrays_["h.1.ln_1.bias"] = {"h.1.ln_1.bias", {2, 8}, bias.values};
  WriteDirectory();
  EXPECT_THAT(Load(), StatusIs(kInvalid, AllOf(HasSubstr("tensor h.1.ln_1.bias F32 [2, 8]"),
                                               HasSubstr("expected [16]"))));
}

TEST_F(Pretrained, ParametersThatMayBeSampled_AreWhereTheyAreMissing) {
  arrays_.erase("lm_head.weight");
  WriteDirectory();
  v1::PretrainedSpec& pretrained = *spec_.mutable_model()->mutable_pretrained();
  pretrained.add_sampled("lm_head.");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Arrays loaded, Load());
  v1::JobSpec sampled = spec_;
  const ParameterSpec head = ChainOf(sampled).layers.back().parameters[0];
  EXPECT_EQ(loaded.at("lm_head.weight").values, InitialWeights(head, spec_.training().seed()));
  EXPECT_EQ(loaded.at("wte.weight").values, arrays_.at("wte.weight").values);
  // Digests are of what is read, so that the seed does not matter to them.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto digests, Digest());
  spec_.mutable_training()->set_seed(spec_.training().seed() + 1);
  EXPECT_THAT(Digest(), IsOkAndHolds(digests));
}

TEST_F(Pretrained, ShorterContext_ReadsTheFirstPositions) {
  WriteDirectory();
  spec_.mutable_model()->mutable_gpt()->set_context(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Arrays loaded, Load());
  const std::vector<float>& table = arrays_.at("wpe.weight").values;
  EXPECT_EQ(loaded.at("wpe.weight").values,
            std::vector<float>(table.begin(), table.begin() + 4 * 16));
  spec_.mutable_model()->mutable_gpt()->set_context(9);
  EXPECT_THAT(Load(), StatusIs(kInvalid, HasSubstr("tensor wpe.weight F32 [8, 16]")));
}

TEST_F(Pretrained, ChangedFiles_AreFoundByTheWorkerThatReadsThem) {
  WriteDirectory();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> digests, Digest());
  ASSERT_THAT(digests, SizeIs(kLayers));
  spec_.mutable_model()->mutable_pretrained()->mutable_layer_sha256()->Assign(digests.begin(),
                                                                              digests.end());
  EXPECT_THAT(Load(), IsOk());
  arrays_.at("h.1.mlp.c_fc.weight").values[3] += 1.0f;
  WriteDirectory();
  const auto changed =
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("the weights of layer h.1.mlp"), HasSubstr(digests[4])));
  EXPECT_THAT(Load(), changed);
  EXPECT_THAT(Digest(), changed);
}

TEST_F(Pretrained, JobThatIsHandedIn_GetsTheDigests) {
  WriteDirectory();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> digests, Digest());
  spec_.mutable_data()->mutable_synthetic();
  FillDefaults(spec_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec_));
  ASSERT_THAT(CheckJobData(files_, "", job, spec_), IsOk());
  const auto& entered = spec_.model().pretrained().layer_sha256();
  EXPECT_EQ(std::vector<std::string>(entered.begin(), entered.end()), digests);
  EXPECT_THAT(CheckJobData(files_, "", job, spec_, [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("/models/m")));
}

}  // namespace
}  // namespace penstock
