// First weights from a checkpoint of another job, whatever its cut, its optimizer and its method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "job/defaults.h"
#include "model/lora.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/first_weights.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "tests/worker/test_models.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kBaseSteps = 3;

class PretrainedCheckpoint : public ::testing::Test {
 protected:
  PretrainedCheckpoint() { AddTestText(files_); }

  // Trains the base on three workers. `directory_` is then its checkpoint, and `arrays_` what that holds of the model.
  void TrainBase(v1::JobSpec base) {
    base.mutable_training()->set_steps(kBaseSteps);
    base.mutable_checkpoint()->set_every_steps(kBaseSteps);
    base.mutable_checkpoint()->set_directory(kCheckpointRoot);
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    TestCluster cluster({.spec = base, .layers = EvenSplit(ChainOf(base).size(), 3)}, files_);
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& ended : cluster.Join()) ASSERT_THAT(ended, IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(directory_, cluster.CommitCheckpoint(kBaseSteps));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(manifest_, ReadManifest(files_, directory_));
    arrays_.clear();
    for (int layer = 0; layer < ChainOf(base).size(); ++layer) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const LayerState state,
                                    LoadLayer(files_, directory_, manifest_, layer));
      for (const NamedArray& array : state.weights) arrays_[array.name] = array;
    }
  }

  // A base with another optimizer and another method than the jobs that start from it.
  void TrainSmallBase() {
    v1::JobSpec base = SmallJob("pipedream");
    base.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
    FillDefaults(base);
    TrainBase(base);
  }

  v1::JobSpec From(v1::JobSpec spec) const {
    spec.mutable_training()->set_seed(spec.training().seed() + 1);
    spec.mutable_model()->mutable_pretrained()->set_directory(directory_);
    return spec;
  }
  v1::JobSpec SmallJobFromBase() const { return From(SmallJob("1f1b")); }
  v1::JobSpec AdaptedJobFromBase() const {
    v1::JobSpec spec = SmallJobFromBase();
    for (const char* target : {"*.c_attn", "*.mlp.*"}) {
      spec.mutable_model()->mutable_lora()->add_targets(target);
    }
    FillDefaults(spec);
    return spec;
  }

  MemoryFiles files_;
  std::string directory_;
  Manifest manifest_;
  std::map<std::string, NamedArray> arrays_;
};

TEST_F(PretrainedCheckpoint, Weights_AreTheCheckpoints) {
  ASSERT_NO_FATAL_FAILURE(TrainSmallBase());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAllFirstWeights(SmallJobFromBase(), files_));
  ASSERT_EQ(loaded.size(), arrays_.size());
  for (const auto& [name, array] : loaded) EXPECT_EQ(array.values, arrays_.at(name).values) << name;
}

TEST_F(PretrainedCheckpoint, AdaptersThatItLacks_BeginAsUsual) {
  ASSERT_NO_FATAL_FAILURE(TrainSmallBase());
  const v1::JobSpec spec = AdaptedJobFromBase();
  v1::JobSpec sampled = spec;
  sampled.mutable_model()->clear_pretrained();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAllFirstWeights(spec, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto usual, LoadAllFirstWeights(sampled, files_));
  int adapters = 0;
  for (const auto& [name, array] : loaded) {
    const bool is_of_adapter = absl::EndsWith(name, kLoraA) || absl::EndsWith(name, kLoraB);
    adapters += is_of_adapter;
    EXPECT_EQ(array.values, (is_of_adapter ? usual : arrays_).at(name).values) << name;
  }
  EXPECT_EQ(adapters, 2 * 2 * 3);  // of c_attn, c_fc and c_proj in two blocks
}

TEST_F(PretrainedCheckpoint, AnyCut_TrainsAsTheReference) {
  ASSERT_NO_FATAL_FAILURE(TrainSmallBase());
  for (v1::JobSpec spec : {SmallJobFromBase(), AdaptedJobFromBase()}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto digests, DigestsOfPretrained(spec, files_));
    spec.mutable_model()->mutable_pretrained()->mutable_layer_sha256()->Assign(digests.begin(),
                                                                               digests.end());
    for (const int stages : {1, 2}) {
      const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                    TrainCluster({.spec = spec, .layers = layers}, files_));
      ExpectSameTraining(cluster, serial);
      EXPECT_EQ(serial.steps.front().step, 1);
    }
  }
}

// A copy that was trained apart is read as it is, and not as the weight that it was a copy of.
TEST_F(PretrainedCheckpoint, UntiedUses_HaveTheirOwnWeights) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_model()->mutable_gpt()->set_tied_head(true);
  spec.mutable_model()->set_untie(true);
  ASSERT_NO_FATAL_FAILURE(TrainBase(spec));
  EXPECT_NE(arrays_.at("head.wte.weight").values, arrays_.at("wte.weight").values);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAllFirstWeights(From(spec), files_));
  EXPECT_EQ(loaded.at("head.wte.weight").values, arrays_.at("head.wte.weight").values);
  EXPECT_EQ(loaded.at("wte.weight").values, arrays_.at("wte.weight").values);
}

// Running statistics are read. What an LSTM carried belongs to the samples of the base, so that it starts from zero.
TEST_F(PretrainedCheckpoint, Statistics_AreRead_AndCarriedStateIsNot) {
  for (const TestModel& model : TestModels()) {
    const std::string name = model.name;
    if (name != "unet" && name != "lstm_lm_carried") continue;
    SCOPED_TRACE(name);
    const v1::JobSpec base = JobOf(model, "1f1b");
    ASSERT_NO_FATAL_FAILURE(TrainBase(base));
    const v1::JobSpec spec = From(base);
    EXPECT_THAT(DigestsOfPretrained(spec, files_), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto loaded, LoadAllFirstWeights(spec, files_));
    std::map<std::string, BufferSpec::Kind> buffers;
    for (const Node& node : ChainOf(base).nodes) {
      for (const BufferSpec& buffer : node.buffers) buffers[buffer.name] = buffer.kind;
    }
    EXPECT_FALSE(buffers.empty());
    for (const auto& [array, values] : loaded) {
      const auto buffer = buffers.find(array);
      if (buffer != buffers.end() && buffer->second == BufferSpec::Kind::kCarried) {
        EXPECT_THAT(values.values, Each(0.0f)) << array;
      } else {
        EXPECT_EQ(values.values, arrays_.at(array).values) << array;
      }
    }
  }
}

TEST_F(PretrainedCheckpoint, AnotherModel_IsRefusedByLayerAndParameter) {
  ASSERT_NO_FATAL_FAILURE(TrainSmallBase());
  v1::JobSpec wide = SmallJobFromBase();
  wide.mutable_model()->mutable_gpt()->set_width(32);
  EXPECT_THAT(
      LoadAllFirstWeights(wide, files_).status(),
      StatusIs(kInvalid, AllOf(HasSubstr(directory_), HasSubstr("tensor wte.weight F32 [256, 16]"),
                               HasSubstr("expected [256, 32]"), HasSubstr("in layer embedding"))));
  v1::JobSpec deep = SmallJobFromBase();
  deep.mutable_model()->mutable_gpt()->set_layers(3);
  EXPECT_THAT(LoadAllFirstWeights(deep, files_).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(absl::StrCat(directory_, ": has no tensor h.2.")),
                             HasSubstr("which layer h.2.attention reads"))));
  v1::JobSpec tied = SmallJobFromBase();
  tied.mutable_model()->mutable_gpt()->set_tied_head(true);
  EXPECT_THAT(DigestsOfPretrained(tied, files_),
              StatusIs(kInvalid, HasSubstr("tensor lm_head.weight")));
  v1::JobSpec shallow = SmallJobFromBase();
  shallow.mutable_model()->mutable_gpt()->set_layers(1);
  EXPECT_THAT(DigestsOfPretrained(shallow, files_),
              StatusIs(kInvalid, AllOf(HasSubstr("tensor h.1."),
                                       HasSubstr("describe the model as the checkpoint's job"))));
}

TEST_F(PretrainedCheckpoint, DirectoryOfCheckpoints_IsToldWhichToName) {
  ASSERT_NO_FATAL_FAILURE(TrainSmallBase());
  v1::JobSpec spec = SmallJobFromBase();
  spec.mutable_model()->mutable_pretrained()->set_directory(kCheckpointRoot);
  EXPECT_THAT(
      DigestsOfPretrained(spec, files_),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr(absl::StrCat("such as ", directory_))));
}

TEST_F(PretrainedCheckpoint, ADamagedFile_IsFoundWhereTheJobIsHandedIn) {
  ASSERT_NO_FATAL_FAILURE(TrainSmallBase());
  const auto weights = std::find_if(
      manifest_.files.begin(), manifest_.files.end(),
      [](const CheckpointFile& file) { return absl::StartsWith(file.name, kWeightsPrefix); });
  ASSERT_NE(weights, manifest_.files.end());
  const std::string path = JoinPath(directory_, weights->name);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(std::string content, files_.Read(path, int64_t{1} << 30));
  content.back() = static_cast<char>(content.back() ^ 1);
  ASSERT_THAT(files_.WriteDurably(path, {content}), IsOk());
  EXPECT_THAT(
      DigestsOfPretrained(SmallJobFromBase(), files_),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path), HasSubstr("was changed"))));
}

}  // namespace
}  // namespace penstock
