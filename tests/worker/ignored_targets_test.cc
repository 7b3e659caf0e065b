// Whole trainings with losses that ignore targets. (Every method and cut: models_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "job/model_graph.h"
#include "job/yaml/yaml.h"
#include "schedule/topology.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

// Of two targets a sample; all seven classes are drawn.
constexpr char kIgnoringModel[] = R"(
  layers:
    - input: {tokens: {i32: [2]}, targets: TARGETS}
    - embedding: {of: tokens, vocabulary: 5, width: 6}
    - linear: {outputs: 6}
    - tanh
    - linear: {outputs: 7}
    - cross_entropy: {targets: targetsIGNORE}
)";

struct IgnoringText {
  const char* targets = "{i32: [2]}";
  const char* ignore = ", ignore: 1";
};

v1::JobSpec IgnoringJob(const std::string& method, int64_t microbatches, int64_t batch,
                        const IgnoringText& text = {}) {
  const std::string model =
      absl::StrReplaceAll(kIgnoringModel, {{"TARGETS", text.targets}, {"IGNORE", text.ignore}});
  const absl::StatusOr<v1::JobSpec> spec =
      ParseJobYaml(absl::StrCat("name: ignoring\nmodel:", model, R"(
data: {synthetic: {}}
training:
  steps: 3
  batch: )",
                                batch, "\n  microbatches: ", microbatches, R"(
  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}}
  seed: 5
validation: {every_steps: 2, batches: 2}
pipeline: {method: )",
                                method, "}\n"),
                   "job.yaml");
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(v1::JobSpec());
}

class IgnoredTargets : public ::testing::Test {
 protected:
  Trained Serially(const v1::JobSpec& spec) {
    return Serially(spec, EvenSplit(ChainOf(spec).size(), 1));
  }
  Trained Serially(const v1::JobSpec& spec, const std::vector<LayerRange>& layers) {
    const absl::StatusOr<Trained> trained = TrainSerially(spec, layers, {}, files_);
    EXPECT_THAT(trained, IsOk());
    return trained.value_or(Trained());
  }

  MemoryFiles files_;
};

// Heads with logits of their own, whose family says nothing of ignored targets.
TEST_F(IgnoredTargets, OfAFamilysHead_AreTheSerialReferenceHoweverABatchIsCut) {
  for (const char* const model :
       {"gpt: {layers: 2, width: 8, heads: 2, context: 4, vocabulary: 3, tied_head: false}",
        "llama: {layers: 2, width: 8, heads: 2, hidden: 12, context: 4, vocabulary: 3}"}) {
    SCOPED_TRACE(model);
    const auto job = [&](int microbatches, const char* ignored) {
      v1::JobSpec spec = IgnoringJob("1f1b", microbatches, 8);
      const absl::StatusOr<v1::JobSpec> of_family =
          ParseJobYaml(absl::StrCat("name: family\nmodel: {", model, ignored, R"(}
data: {synthetic: {}}
training: {steps: 3, batch: 8, microbatches: 1, optimizer: {sgd: {learning_rate: 0.1}}}
)"),
                       "job.yaml");
      EXPECT_THAT(of_family, IsOk());
      *spec.mutable_model() = of_family->model();
      return spec;
    };
    const v1::JobSpec spec = job(4, ", ignored_target: 1");
    const std::vector<LayerRange> layers = EvenSplit(ChainOf(spec).size(), 2);
    const absl::StatusOr<Trained> cluster =
        TrainCluster({.spec = spec, .layers = layers, .delay_seed = 3}, files_);
    ASSERT_THAT(cluster, IsOk());
    const Trained serial = Serially(spec, layers);
    ExpectSameTraining(*cluster, serial);
    const Trained whole = Serially(job(1, ", ignored_target: 1"));
    const Trained counting_all = Serially(job(1, ""));
    for (size_t step = 0; step < whole.steps.size(); ++step) {
      EXPECT_NEAR(serial.steps[step].loss, whole.steps[step].loss, 2e-6) << step;
      EXPECT_GT(std::abs(serial.steps[step].loss - counting_all.steps[step].loss), 1e-5) << step;
    }
  }
}

// The job says it of any loss over classes, as the loss itself may.
TEST_F(IgnoredTargets, SmoothLabelsOfTheJob_AreThoseOfTheLoss) {
  v1::JobSpec of_job = IgnoringJob("1f1b", 2, 8);
  of_job.mutable_model()->set_label_smoothing(0.25);
  const v1::JobSpec of_loss =
      IgnoringJob("1f1b", 2, 8, {.ignore = ", ignore: 1, label_smoothing: 0.25"});
  const Trained smooth = Serially(of_job);
  ExpectSameTraining(smooth, Serially(of_loss));
  EXPECT_NE(smooth.steps.back().loss, Serially(IgnoringJob("1f1b", 2, 8)).steps.back().loss);
}

TEST(LossOfNoClasses, KeysOfClasses_AreRefusedWithTheirValues) {
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(R"(name: numbers
model:
  layers:
    - input: {a: {f32: [2]}, b: {f32: [2]}}
    - linear: {outputs: 2}
    - mse: {targets: b}
data: {synthetic: {}}
training: {steps: 1, batch: 1, microbatches: 1, optimizer: {sgd: {learning_rate: 0.1}}}
)",
                                                        "job.yaml");
  ASSERT_THAT(spec, IsOk());
  v1::ModelSpec smooth = spec->model();
  smooth.set_label_smoothing(0.25);
  EXPECT_THAT(
      BuildModel(smooth),
      StatusIs(absl::StatusCode::kInvalidArgument,
               ::testing::HasSubstr(
                   "model.label_smoothing: is 0.25, but mse (mse) is no loss over classes")));
  v1::ModelSpec ignoring = spec->model();
  ignoring.set_ignored_target(-100);
  EXPECT_THAT(
      BuildModel(ignoring),
      StatusIs(absl::StatusCode::kInvalidArgument,
               ::testing::HasSubstr(
                   "model.ignored_target: is -100, but mse (mse) is no loss over classes")));
}

// A mean of means would give others: of 16 samples' 32 targets, a seventh is ignored.
TEST_F(IgnoredTargets, HoweverABatchIsCut_AStepIsTheSame) {
  const Trained whole = Serially(IgnoringJob("1f1b", 1, 16));
  ASSERT_EQ(whole.steps.size(), 3u);
  for (const int microbatches : {2, 4, 8, 16}) {
    const Trained cut = Serially(IgnoringJob("1f1b", microbatches, 16));
    for (size_t step = 0; step < whole.steps.size(); ++step) {
      EXPECT_NEAR(cut.steps[step].loss, whole.steps[step].loss, 2e-6)
          << microbatches << " microbatches, step " << step;
    }
  }
}

TEST_F(IgnoredTargets, ReplicasOfAnyNumbers_AreTheSerialReference) {
  for (const char* method : {"1f1b", "pipedream", "nesterov-no-stash", "spectrain", "paci"}) {
    for (const std::vector<int32_t>& replicas :
         {std::vector<int32_t>{2, 2}, {4}, {1, 3}, {3, 1}, {2, 3}, {2, 1, 3}}) {
      SCOPED_TRACE(absl::StrCat(method, " ", absl::StrJoin(replicas, ",")));
      const int64_t microbatches = 2 * CycleOf(replicas);
      // One sample each, of which a quarter has no valid target.
      v1::JobSpec spec =
          IgnoringJob(method, microbatches, microbatches, {.targets = "{i32: [2], ids: 2}"});
      spec.mutable_pipeline()->mutable_replicas()->Assign(replicas.begin(), replicas.end());
      const std::vector<LayerRange> layers =
          EvenSplit(ChainOf(spec).size(), static_cast<int>(replicas.size()));
      const absl::StatusOr<Trained> cluster =
          TrainCluster({.spec = spec, .layers = layers, .delay_seed = 3}, files_);
      ASSERT_THAT(cluster, IsOk());
      ExpectSameTraining(*cluster, Serially(spec, layers));
      if (std::string(method) != "pipedream") continue;
      // Shares of a step are added up, and then those of a round of replicas averaged.
      spec.mutable_pipeline()->set_synchronous_steps(1);
      const absl::StatusOr<Trained> begun =
          TrainCluster({.spec = spec, .layers = layers, .delay_seed = 3}, files_);
      ASSERT_THAT(begun, IsOk());
      ExpectSameTraining(*begun, Serially(spec, layers));
    }
  }
}

TEST_F(IgnoredTargets, ThatAreAll_GiveALossOfZeroAndNoGradient) {
  v1::JobSpec spec =
      IgnoringJob("1f1b", 4, 4, {.targets = "{i32: [2], ids: 1}", .ignore = ", ignore: 0"});
  const Trained trained = Serially(spec);
  for (const StepResult& step : trained.steps) EXPECT_EQ(step.loss, 0.0);
  ASSERT_FALSE(trained.validations.empty());
  for (const ReferenceResult::Validation& validation : trained.validations) {
    EXPECT_EQ(validation.evaluation.loss, 0.0);
    EXPECT_THAT(validation.evaluation.metrics,
                testing::ElementsAre(MetricValue{"accuracy", 0.0}, MetricValue{"top5", 0.0}));
  }
  spec.mutable_training()->set_steps(1);
  EXPECT_EQ(Serially(spec).weights_sha256, trained.weights_sha256);
}

}  // namespace
}  // namespace penstock
