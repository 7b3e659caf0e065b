// Models other than the GPT through pipelines of workers: every method, random cuts, replicas and recomputation give the
// bits of the serial reference. Three of the models exist only as YAML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

struct TestModel {
  const char* name;
  const char* yaml;  // of the job's key `model`
};

// Skips over several layers, as U-Net has them: two values cross most cuts, and three some.
constexpr char kUNet[] = R"(
  layers:
    - input: {image: {u8: [8, 8, 3]}, label: {i32: []}}
    - image: {of: image}
    - conv2d: {channels: 6, kernel: 3, padding: 1, name: outer}
    - relu
    - max_pool: {kernel: 2, stride: 2}
    - conv2d: {channels: 8, kernel: 3, padding: 1, name: inner}
    - batch_norm
    - relu: {name: inner_out}
    - conv2d: {channels: 8, kernel: 3, padding: 1, name: bottom}
    - relu: {name: bottom_out}
    - concat: {of: [bottom_out, inner_out], name: up}
    - conv2d: {channels: 4, kernel: 1, name: mix}
    - group_norm: {groups: 2, name: mixed}
    - max_pool: {of: outer, kernel: 2, stride: 2, name: outer_small}
    - concat: {of: [mixed, outer_small], name: all}
    - flatten
    - linear: {outputs: 10}
    - cross_entropy: {targets: label}
)";

// Four branches of one value, as in GoogLeNet.
constexpr char kInception[] = R"(
  layers:
    - input: {image: {u8: [8, 8, 3]}, label: {i32: []}}
    - image: {of: image}
    - conv2d: {channels: 8, kernel: 3, padding: 1, name: stem}
    - relu: {name: x}
    - conv2d: {of: x, channels: 4, kernel: 1, name: one}
    - conv2d: {of: x, channels: 3, kernel: 1, name: three_in}
    - relu
    - conv2d: {channels: 6, kernel: 3, padding: 1, name: three}
    - conv2d: {of: x, channels: 2, kernel: 1, name: five_in}
    - conv2d: {channels: 4, kernel: 5, padding: 2, name: five}
    - max_pool: {of: x, kernel: 3, stride: 1, padding: 1, name: pooled}
    - conv2d: {channels: 2, kernel: 1, name: pool}
    - concat: {of: [one, three, five, pool], name: together}
    - lrn: {size: 3}
    - dropout: {probability: 0.25}
    - avg_pool: {global: true}
    - flatten
    - linear: {outputs: 10}
    - cross_entropy: {targets: label, label_smoothing: 0.1}
)";

// Two towers that meet: the second's data is read in the middle of the pipeline.
constexpr char kTowers[] = R"(
  layers:
    - input: {left: {f32: [6]}, right: {f32: [5]}, wanted: {f32: [4]}}
    - linear: {of: left, outputs: 7, name: left_in}
    - tanh: {name: left_out}
    - linear: {of: right, outputs: 7, name: right_in}
    - silu: {name: right_out}
    - mul: {of: [left_out, right_out], name: product}
    - add: {of: [product, left_out, right_out], name: sum}
    - rms_norm
    - linear: {outputs: 9}
    - gelu
    - linear: {outputs: 4, name: answer}
    - mse: {of: [answer, wanted]}
)";

constexpr char kTiedAwdLm[] = R"(
  awd_lm: {layers: 3, hidden: 9, embedding: 6, context: 5, vocabulary: 19, carried: true}
)";

constexpr TestModel kModels[] = {
    {"cifar_resnet", "\n  cifar_resnet: {depth: 14, width: 4, image: {size: 8, classes: 10}}\n"},
    {"vgg", "\n  vgg: {depth: 11, batch_norm: true, hidden: 16, image: {size: 32, classes: 4}}\n"},
    {"lstm_lm", "\n  lstm_lm: {layers: 3, hidden: 6, embedding: 5, context: 4, vocabulary: 17}\n"},
    {"lstm_lm_carried",
     "\n  lstm_lm: {layers: 2, hidden: 6, context: 4, vocabulary: 17, carried: true}\n"},
    {"awd_lm",
     "\n  awd_lm: {hidden: 9, embedding: 6, context: 5, vocabulary: 19, tied: false, carried: "
     "true}\n"},
    {"gnmt", "\n  gnmt: {layers: 6, hidden: 5, vocabulary: 13, source_time: 6, target_time: 4}\n"},
    {"gnmt_shared",
     "\n  gnmt: {layers: 4, hidden: 4, vocabulary: 11, source_time: 3, target_time: 5, "
     "shared_embedding: true}\n"},
    {"s2vt",
     "\n  s2vt: {vocabulary: 15, frames: 4, words: 3, features: 7, hidden: 6, embedding: 5}\n"},
    {"unet", kUNet},
    {"inception", kInception},
    {"towers", kTowers},
};

v1::JobSpec JobOf(const TestModel& model, const std::string& method) {
  const absl::StatusOr<v1::JobSpec> spec =
      ParseJobYaml(absl::StrCat("name: model\nmodel:", model.yaml, R"(
data: {synthetic: {}}
training:
  steps: 3
  batch: 8
  microbatches: 4
  optimizer: {sgd: {learning_rate: 0.01, momentum: 0.9, nesterov: true}}
  seed: 3
validation: {every_steps: 2, batches: 1}
pipeline: {method: )",
                                method, "}\n"),
                   "job.yaml");
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(v1::JobSpec());
}

std::vector<LayerRange> RandomSplit(int layers, int stages, std::mt19937& random) {
  std::vector<int> counts(stages, 1);
  for (int left = layers - stages; left > 0; --left) ++counts[random() % stages];
  return Split(counts);
}

class Models : public ::testing::TestWithParam<TestModel> {
 protected:
  void ExpectEqual(const v1::JobSpec& spec, const std::vector<LayerRange>& layers) {
    std::vector<int> counts;
    for (const LayerRange& range : layers) counts.push_back(range.count);
    SCOPED_TRACE(absl::StrCat(spec.pipeline().method(), ", layers ", absl::StrJoin(counts, " ")));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = layers}, files_));
    ExpectSameTraining(cluster, serial);
  }

  int LayersOf(const v1::JobSpec& spec) { return ChainOf(spec).size(); }

  MemoryFiles files_;
  std::mt19937 random_{7};
};

TEST_P(Models, EveryMethodOnFourWorkers_GivesTheReferencesBits) {
  for (const char* method : {"1f1b", "gpipe", "zb-h1", "pipedream", "pipedream-2bw", "paci",
                             "nesterov", "pipemare", "spectrain"}) {
    v1::JobSpec spec = JobOf(GetParam(), method);
    ExpectEqual(spec, RandomSplit(LayersOf(spec), 4, random_));
  }
}

TEST_P(Models, RandomCuts_ChangeNoBit) {
  for (const char* method : {"1f1b", "zb-h1"}) {
    const v1::JobSpec spec = JobOf(GetParam(), method);
    const int layers = LayersOf(spec);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, EvenSplit(layers, 1), {}, files_));
    for (int cut = 0; cut < 10; ++cut) {
      const int stages = 2 + static_cast<int>(random_() % std::min(layers - 1, 5));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained cluster,
          TrainCluster({.spec = spec, .layers = RandomSplit(layers, stages, random_)}, files_));
      ExpectSameTraining(cluster, serial);
    }
  }
}

TEST_P(Models, InBf16_RandomCutsChangeNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  spec.mutable_training()->set_precision("bf16");
  const int layers = LayersOf(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                TrainSerially(spec, EvenSplit(layers, 1), {}, files_));
  for (int cut = 0; cut < 5; ++cut) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = RandomSplit(layers, 3, random_)}, files_));
    ExpectSameTraining(cluster, serial);
  }
}

TEST_P(Models, Recomputation_ChangesNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  const std::vector<LayerRange> layers = RandomSplit(LayersOf(spec), 3, random_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
  spec.mutable_pipeline()->set_recompute("all");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                TrainCluster({.spec = spec, .layers = layers}, files_));
  ExpectSameTraining(cluster, serial);
}

TEST(TiedModels, WithAMethodThatUpdatesEachStageByItself_AreRefusedByName) {
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(R"(
name: tied
model:
  layers:
    - input: {tokens: {i32: [8]}, targets: {i32: [8]}}
    - embedding: {of: tokens, vocabulary: 256, width: 6, name: table}
    - linear: {outputs: 6, name: middle}
    - linear: {outputs: 256, bias: false, weights_of: table, name: logits}
    - cross_entropy: {targets: targets}
data: {text: {path: /data/text.txt}}
training: {steps: 2, batch: 4, microbatches: 2, optimizer: {sgd: {learning_rate: 0.1}}}
pipeline: {method: 1f1b}
)",
                                                        "job.yaml");
  ASSERT_THAT(spec, IsOk());
  MemoryFiles files;
  AddTestText(files);
  // Drained at every step, both uses get the sum of the two gradients.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained whole, TrainSerially(*spec, Split({3}), {}, files));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cut,
                                TrainCluster({.spec = *spec, .layers = Split({1, 2})}, files));
  ExpectSameTraining(cut, whole);
  v1::JobSpec asynchronous = *spec;
  asynchronous.mutable_pipeline()->set_method("pipedream");
  const absl::StatusOr<ResolvedJob> job = ResolveJob(asynchronous);
  ASSERT_THAT(job, IsOk());
  EXPECT_THAT(CheckStages(*job, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::AllOf(testing::HasSubstr("must not share weights for pipedream"),
                                      testing::HasSubstr("table.weight"))));
}

// The table of a tied AWD-LSTM is read by the first layer and the last one, with rows dropped in the first alone.
TEST(TiedModels, AwdLm_DrainedAtEveryStep_GivesTheReferencesBits) {
  const TestModel model = {"awd_lm", kTiedAwdLm};
  MemoryFiles files;
  std::mt19937 random(5);
  const int layers = ChainOf(JobOf(model, "1f1b")).size();
  for (const char* method : {"1f1b", "gpipe", "zb-h1"}) {
    const v1::JobSpec spec = JobOf(model, method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained whole,
                                  TrainSerially(spec, Split({layers}), {}, files));
    for (int stages = 2; stages <= 4; ++stages) {
      SCOPED_TRACE(absl::StrCat(method, ", stages ", stages));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained cut,
          TrainCluster({.spec = spec, .layers = RandomSplit(layers, stages, random)}, files));
      ExpectSameTraining(cut, whole);
    }
  }
}

TEST(TiedModels, AwdLmWithAMethodThatUpdatesEachStageByItself_IsRefusedByItsTable) {
  for (const char* method : {"pipedream", "pipedream-2bw", "paci", "nesterov"}) {
    const absl::StatusOr<ResolvedJob> job = ResolveJob(JobOf({"awd_lm", kTiedAwdLm}, method));
    ASSERT_THAT(job, IsOk());
    EXPECT_THAT(
        CheckStages(*job, 4),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            testing::AllOf(testing::HasSubstr(absl::StrCat("must not share weights for ", method)),
                           testing::HasSubstr("encoder.weight"))));
  }
}

// Running statistics are those of each replica, and at every cut the mean of all.
TEST_P(Models, ReplicasOfStages_GiveTheReferencesBits) {
  for (const char* method : {"1f1b", "pipedream"}) {
    for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {1, 4}, {2, 2}}) {
      v1::JobSpec spec = JobOf(GetParam(), method);
      for (const int of_stage : replicas) spec.mutable_pipeline()->add_replicas(of_stage);
      ExpectEqual(spec, RandomSplit(LayersOf(spec), 2, random_));
    }
  }
}

TEST_P(Models, ReplicasOfTheModel_GiveTheReferencesBits) {
  v1::JobSpec spec = JobOf(GetParam(), "local-sgd");
  ExpectEqual(spec, RandomSplit(LayersOf(spec), 2, random_));
}

INSTANTIATE_TEST_SUITE_P(All, Models, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
