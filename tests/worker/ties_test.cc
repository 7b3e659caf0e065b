// Parameters that any layers share, through pipelines of workers: wherever the model is cut, training gives the bits of
// the serial reference, with every way to clip, with replicas and recomputation, and from a checkpoint of another cut.
#include "job/run/ties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/backend.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One block four times, as in ALBERT: three layers each.
std::string Albert() {
  std::string yaml = R"(
  layers:
    - input: {tokens: {i32: [8]}, targets: {i32: [8]}}
    - embedding: {of: tokens, vocabulary: 256, width: 6, name: table}
)";
  for (int block = 0; block < 4; ++block) {
    const auto op = [&](const char* kind, const char* settings, const char* name) {
      absl::StrAppend(&yaml, "    - ", kind, ": {", settings, "name: ", name, block);
      if (block > 0) absl::StrAppend(&yaml, ", weights_of: ", name, 0);
      absl::StrAppend(&yaml, "}\n");
    };
    op("layer_norm", "width: 6, ", "norm");
    op("linear", "outputs: 9, ", "up");
    absl::StrAppend(&yaml, "    - gelu\n");
    op("linear", "outputs: 6, ", "down");
    const std::string before = block == 0 ? "table" : absl::StrCat("sum", block - 1);
    absl::StrAppend(&yaml, "    - add: {of: [down", block, ", ", before, "], name: sum", block,
                    "}\n");
  }
  return yaml +
         "    - linear: {outputs: 256, name: logits}\n    - cross_entropy: {targets: targets}\n";
}

// A table that the layer before the last one reads, too, another weight that two layers share inside that span, and a
// third one that a block uses twice and a layer behind it once.
constexpr char kTwoTables[] = R"(
  layers:
    - input: {tokens: {i32: [8]}, targets: {i32: [8]}}
    - embedding: {of: tokens, vocabulary: 256, width: 6, name: table}
    - linear: {outputs: 6, name: one}
    - tanh
    - block: {name: twice, layers: [{linear: {outputs: 6, name: a}}, tanh, {linear: {outputs: 6, name: b, weights_of: a}}]}
    - linear: {outputs: 6, name: own}
    - linear: {outputs: 6, name: again, weights_of: twice.a}
    - tanh
    - linear: {outputs: 6, name: two, weights_of: one}
    - linear: {outputs: 256, bias: false, name: scores, weights_of: table}
    - linear: {outputs: 256, name: scaled}
    - cross_entropy: {targets: targets}
)";

v1::JobSpec JobOf(const std::string& model, const std::string& method) {
  const absl::StatusOr<v1::JobSpec> spec =
      ParseJobYaml(absl::StrCat("name: ties\nmodel:", model, R"(
data: {text: {path: /data/text.txt}}
training:
  steps: 3
  batch: 8
  microbatches: 4
  optimizer: {adamw: {learning_rate: 0.01}}
  seed: 5
validation: {every_steps: 3, batches: 1}
pipeline: {method: )",
                                method, "}\n"),
                   "job.yaml");
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(v1::JobSpec());
}

void SetClip(const std::string& kind, v1::JobSpec& spec) {
  auto& clip = *spec.mutable_training()->mutable_clip();
  if (kind == "global") clip.set_global_norm(0.3);
  if (kind == "layer") clip.set_layer_norm(0.05);
  if (kind == "none") spec.mutable_training()->clear_clip();
}

class Ties : public ::testing::TestWithParam<std::string> {
 protected:
  Ties() { AddTestText(files_); }

  void ExpectEqual(const v1::JobSpec& spec, const std::vector<LayerRange>& layers) {
    std::vector<int> counts;
    for (const LayerRange& range : layers) counts.push_back(range.count);
    SCOPED_TRACE(absl::StrCat(spec.pipeline().method(), ", layers ", absl::StrJoin(counts, " ")));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = layers}, files_));
    ExpectSameTraining(cluster, serial);
  }

  MemoryFiles files_;
  std::mt19937 random_{11};
};

TEST_P(Ties, CutAnywhere_ChangesNoBit) {
  for (const char* clip : {"none", "global", "layer"}) {
    for (const char* method : {"1f1b", "zb-h1", "gpipe"}) {
      v1::JobSpec spec = JobOf(GetParam(), method);
      SetClip(clip, spec);
      const int layers = ChainOf(spec).size();
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained whole,
                                    TrainSerially(spec, EvenSplit(layers, 1), {}, files_));
      for (int cut = 0; cut < 4; ++cut) {
        const std::vector<LayerRange> split = RandomSplit(layers, 4, random_);
        SCOPED_TRACE(absl::StrCat(clip, " ", method, ", first layers ", split[1].first, " ",
                                  split[2].first, " ", split[3].first));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                      TrainCluster({.spec = spec, .layers = split}, files_));
        ExpectSameTraining(cluster, whole);
      }
    }
  }
}

// Several stages of the sum are on one worker.
TEST_P(Ties, SeveralStagesOnAWorker_ChangeNoBit) {
  for (const char* clip : {"none", "global", "layer"}) {
    for (const char* method : {"interleaved-1f1b", "zb-v", "dualpipe-v"}) {
      v1::JobSpec spec = JobOf(GetParam(), method);
      spec.mutable_training()->set_batch(16);
      spec.mutable_training()->set_microbatches(8);
      SetClip(clip, spec);
      const int layers = ChainOf(spec).size();
      for (const int stages : {4, 8}) ExpectEqual(spec, RandomSplit(layers, stages, random_));
    }
  }
}

TEST_P(Ties, ThereAndBack_ChangesNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "roundpipe");
  spec.mutable_pipeline()->set_stages(4);
  spec.mutable_pipeline()->set_workers(4);
  spec.mutable_training()->set_batch(16);
  spec.mutable_training()->set_microbatches(8);
  SetClip("layer", spec);
  ExpectEqual(spec, RandomSplit(ChainOf(spec).size(), 4, random_));
}

TEST_P(Ties, ReplicasOfTheModel_ChangeNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "local-sgd");
  spec.mutable_pipeline()->set_local_steps(2);
  for (const char* clip : {"none", "layer"}) {
    SetClip(clip, spec);
    ExpectEqual(spec, RandomSplit(ChainOf(spec).size(), 4, random_));
  }
}

TEST_P(Ties, ReplicasOfStages_ChangeNoBit) {
  for (const std::vector<int32_t>& replicas :
       {std::vector<int32_t>{2, 1, 1}, {1, 2, 1}, {2, 1, 2}, {2, 2, 2}, {1, 4, 2}}) {
    for (const char* clip : {"none", "global", "layer"}) {
      v1::JobSpec spec = JobOf(GetParam(), "1f1b");
      SetClip(clip, spec);
      for (const int32_t count : replicas) spec.mutable_pipeline()->add_replicas(count);
      ExpectEqual(spec, RandomSplit(ChainOf(spec).size(), 3, random_));
    }
  }
}

TEST_P(Ties, Recomputation_ChangesNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  const std::vector<LayerRange> split = RandomSplit(ChainOf(spec).size(), 4, random_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, split, {}, files_));
  spec.mutable_pipeline()->set_recompute("all");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                TrainCluster({.spec = spec, .layers = split}, files_));
  ExpectSameTraining(cluster, serial);
}

TEST_P(Ties, InBf16_CutAnywhere_ChangesNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  spec.mutable_training()->set_precision("bf16");
  spec.mutable_training()->set_rounding("stochastic");
  const int layers = ChainOf(spec).size();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained whole,
                                TrainSerially(spec, EvenSplit(layers, 1), {}, files_));
  for (int cut = 0; cut < 3; ++cut) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = RandomSplit(layers, 4, random_)}, files_));
    ExpectSameTraining(cluster, whole);
  }
}

TEST_P(Ties, ResumedAtAnotherCut_IsBitEqual) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  spec.mutable_training()->set_steps(4);
  spec.mutable_checkpoint()->set_every_steps(2);
  spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
  SetClip("layer", spec);
  const int layers = ChainOf(spec).size();
  TestCluster saver({.spec = spec, .layers = RandomSplit(layers, 3, random_)}, files_);
  ASSERT_THAT(saver.prepared(), IsOk());
  saver.Start();
  for (const absl::Status& status : saver.Join()) ASSERT_THAT(status, IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, saver.CommitCheckpoint(2));
  for (const int stages : {1, 2, 4, 5}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                  TrainCluster({.spec = spec,
                                                .layers = RandomSplit(layers, stages, random_),
                                                .first_step = 2,
                                                .checkpoint = directory},
                                               files_));
    EXPECT_EQ(resumed.weights_sha256, saver.WeightsSha256()) << stages << " stages";
    EXPECT_EQ(resumed.steps.back().loss, saver.Steps().back().loss);
  }
}

TEST_P(Ties, Untied_TrainsAnywhereByAMethodThatUpdatesEachStageByItself) {
  v1::JobSpec spec = JobOf(GetParam(), "pipedream");
  spec.mutable_model()->set_untie(true);
  for (const char* method : {"pipedream", "pipedream-2bw", "paci"}) {
    spec.mutable_pipeline()->set_method(method);
    ExpectEqual(spec, RandomSplit(ChainOf(spec).size(), 4, random_));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Ties, ::testing::Values(Albert(), kTwoTables), [](const auto& info) {
  return std::string(info.index == 0 ? "albert" : "two_tables");
});

// The layers are table, one, twice, own, again, two, scores and scaled.
class TwoTables : public Ties {};

TEST_F(TwoTables, UsesOnOneStage_TrainByAMethodThatUpdatesEachStageByItself) {
  // The last layer alone shares nothing.
  for (const char* method : {"pipedream", "pipedream-2bw", "paci", "nesterov"}) {
    ExpectEqual(JobOf(kTwoTables, method), SplitInto({7, 1}));
  }
}

TEST_F(TwoTables, UsesOnTwoStages_AreRefusedWithWhatWouldDo) {
  v1::JobSpec spec = JobOf(kTwoTables, "pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ResolvedJob job, ResolveJob(spec));
  EXPECT_THAT(CheckStages(job, 2), IsOk());
  EXPECT_THAT(CheckStages(job, 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("must not share weights for pipedream with 3 stages"),
                             HasSubstr("table.weight, which layers table and scores use"),
                             HasSubstr("2 stages would do"), HasSubstr("model.untie: true"))));
  EXPECT_THAT(PlacesToCut(job), ElementsAre(true, false, false, false, false, false, false, true));
  for (const int32_t count : {4, 4}) spec.mutable_pipeline()->add_stage_layers(count);
  spec.mutable_pipeline()->set_stages(2);
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("pipedream updates every stage by itself"),
                             HasSubstr("stages 0 and 1 cannot share table.weight"),
                             HasSubstr("keep layers 0 to 6 on one stage (pipeline.stage_layers)"),
                             HasSubstr("model.untie: true"))));
  spec.mutable_model()->set_untie(true);
  EXPECT_THAT(ResolveJob(spec), IsOk());
}

TEST_F(TwoTables, Groups_AreThePartsThatShare) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(JobOf(kTwoTables, "1f1b")));
  const auto groups_of = [&](std::vector<int> counts) {
    std::vector<std::string> texts;
    for (const TieGroup& group : TieGroupsOf(job.model, SplitInto(counts))) {
      std::string text = absl::StrJoin(group.parts, ",");
      for (const auto& [tie, sum] : group.sums) {
        absl::StrAppend(&text, " ", job.model.ties[tie].parameters[0].name, ":",
                        absl::StrJoin(sum.parts, ","), sum.exchanges ? " at once" : "");
      }
      texts.push_back(text);
    }
    return texts;
  };
  EXPECT_THAT(groups_of({8}), ElementsAre());
  EXPECT_THAT(groups_of({7, 1}), ElementsAre());
  // The block uses its weight twice, so that the part before it in the sum cannot add up alone.
  EXPECT_THAT(
      groups_of({3, 2, 3}),
      ElementsAre("0,2 table.weight:0,2 at once one.weight:0,2 at once", "0,1 twice.a.weight:0,1"));
  EXPECT_THAT(groups_of({1, 1, 1, 1, 1, 1, 1, 1}),
              ElementsAre("0,6 table.weight:0,6 at once", "1,5 one.weight:1,5 at once",
                          "2,4 twice.a.weight:2,4"));
}

TEST(Untied, EveryCopy_StartsAsTheSharedParameterDoes) {
  for (const std::string& yaml : {Albert(), std::string(kTwoTables)}) {
    v1::JobSpec spec = JobOf(yaml, "1f1b");
    const auto weights_of = [&] {
      const ModelGraph model = ChainOf(spec);
      const auto backend = MakeCpuBackend(1).value();
      const auto stage =
          Stage::Create(*backend, model, {.layers = {0, model.size()}, .seed = 5}).value();
      stage->InitializeWeights();
      std::map<std::string, std::vector<float>> weights;
      for (int layer = 0; layer < model.size(); ++layer) {
        for (const NamedArray& array : stage->LayerWeights(layer)) {
          weights[array.name] = array.values;
        }
      }
      return weights;
    };
    const auto tied = weights_of();
    spec.mutable_model()->set_untie(true);
    const ModelGraph model = ChainOf(spec);
    EXPECT_FALSE(model.tied());
    const auto untied = weights_of();
    int copies = 0;
    for (const LayerSpec& layer : model.layers) {
      for (const ParameterSpec& parameter : layer.parameters) {
        const bool is_copy = !parameter.initial_as.empty();
        copies += is_copy ? 1 : 0;
        EXPECT_EQ(untied.at(parameter.name),
                  tied.at(is_copy ? parameter.initial_as : parameter.name))
            << parameter.name;
      }
    }
    EXPECT_EQ(untied.size(), tied.size() + copies);
    EXPECT_GT(copies, 0);
  }
}

// y = w^n x with n uses of w, and a squared error: the gradient is n times one use's, which is g w^(n - 1) x.
TEST(TiedGradients, OfTwoAndThreeUses_AreTheSumThatCalculusGives) {
  struct Case {
    int uses;
    float target;
    float gradient;
  };
  for (const auto& [uses, target, gradient] : {Case{2, 10.0f, 48.0f}, Case{3, 20.0f, 288.0f}}) {
    GraphBuilder builder("layers");
    builder.AddPort({"x", {DType::kF32, {1}}});
    builder.AddPort({"target", {DType::kF32, {1}}});
    for (int use = 0; use < uses; ++use) {
      const std::string name = absl::StrCat("w", use);
      builder.BeginLayer(name);
      builder.Add({.name = name,
                   .op = "linear",
                   .attributes = {{"outputs", int64_t{1}}, {"bias", false}},
                   .inputs = {use == 0 ? "x" : absl::StrCat("w", use - 1)},
                   .weights_of = use == 0 ? "" : "w0"});
    }
    builder.Add({.name = "loss", .op = "mse", .inputs = {absl::StrCat("w", uses - 1), "target"}});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto stage,
                                  Stage::Create(*backend, model, {.layers = {0, uses}}));
    for (int layer = 0; layer < uses; ++layer) {
      const NamedArray weight = {.name = "w0.weight", .shape = {1, 1}, .values = {2.0f}};
      ASSERT_THAT(stage->LoadLayerWeights(layer, {weight}), IsOk());
    }
    std::vector<Tensor> ports;
    for (const float value : {3.0f, target}) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          ports.emplace_back(),
          stage->PortToDevice(
              static_cast<int>(ports.size()),
              absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&value), sizeof(value))));
    }
    const MicrobatchId id(0);
    ASSERT_THAT(stage->Forward(id, 0, 0, Tensor(), ports), IsOk());
    ASSERT_THAT(stage->BackwardInput(id, 0, Tensor(), 1.0f), IsOk());
    ASSERT_THAT(stage->BackwardWeight(id), IsOk());
    stage->CombineUses();
    EXPECT_THAT(stage->LayerGradients(0)[0].values, ElementsAre(gradient)) << uses << " uses";
    stage->CombineUses();
    EXPECT_THAT(stage->LayerGradients(0)[0].values, ElementsAre(gradient)) << "once an update";
  }
}

}  // namespace
}  // namespace penstock
