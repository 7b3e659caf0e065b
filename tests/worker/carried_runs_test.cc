// Models whose LSTMs carry their state from step to step, through pipelines of workers: every method, replicas,
// recomputation, validation and going on from a checkpoint give the bits of the serial reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Layers: embedding, LSTM with dropout, LSTM, output. The training part has 246 bytes, of which a step's 8 samples read 3
// windows of 8 each: an epoch is 3 steps. Stages in the middle read no port.
constexpr char kCarriedJob[] = R"(
name: carried
model:
  layers:
    - input: {tokens: {i32: [8]}, targets: {i32: [8]}}
    - embedding: {of: tokens, vocabulary: 256, width: 6, deviation: 0.5}
    - lstm: {hidden: 7, carried: true, weight_drop: 0.2, name: lower}
    - dropout: {probability: 0.1}
    - lstm: {hidden: 5, carried: true, name: upper}
    - linear: {outputs: 256}
    - cross_entropy: {targets: targets}
data: {text: {path: /data/text.txt, order: contiguous, validation_fraction: 0.97}}
training:
  steps: 8
  batch: 8
  microbatches: 4
  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}}
  seed: 3
validation: {every_steps: 2, batches: 3}
checkpoint: {directory: /checkpoints, every_steps: 4}
pipeline: {method: METHOD}
)";

v1::JobSpec CarriedJob(const std::string& method, const std::string& yaml = kCarriedJob) {
  const absl::StatusOr<v1::JobSpec> spec =
      ParseJobYaml(absl::StrReplaceAll(yaml, {{"METHOD", method}}), "job.yaml");
  EXPECT_THAT(spec, IsOk());
  return spec.value_or(v1::JobSpec());
}

class CarriedRuns : public ::testing::Test {
 protected:
  CarriedRuns() { AddTestText(files_); }

  void ExpectEqual(const v1::JobSpec& spec, const std::vector<int>& layers) {
    SCOPED_TRACE(spec.pipeline().ShortDebugString());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, SplitInto(layers), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster, TrainCluster({.spec = spec, .layers = SplitInto(layers)}, files_));
    ExpectSameTraining(cluster, serial);
  }

  MemoryFiles files_;
};

TEST_F(CarriedRuns, EveryMethodOnFourWorkers_GivesTheReferencesBits) {
  for (const char* method : {"1f1b", "gpipe", "zb-h1", "zb-h2", "pipedream", "pipedream-2bw",
                             "paci", "nesterov", "pipemare", "spectrain", "rpd"}) {
    ExpectEqual(CarriedJob(method), {1, 1, 1, 1});
  }
}

TEST_F(CarriedRuns, TwoStagesOnEachWorker_GiveTheReferencesBits) {
  for (const char* method : {"interleaved-1f1b", "looped-bfs", "dualpipe-v", "zb-v"}) {
    ExpectEqual(CarriedJob(method), {1, 1, 1, 1});
  }
}

TEST_F(CarriedRuns, InBf16_GiveTheReferencesBits) {
  v1::JobSpec spec = CarriedJob("1f1b");
  spec.mutable_training()->set_precision("bf16");
  ExpectEqual(spec, {1, 2, 1});
}

TEST_F(CarriedRuns, Recomputation_ChangesNoBit) {
  for (const char* method : {"1f1b", "zb-h1", "pipedream", "paci"}) {
    v1::JobSpec spec = CarriedJob(method);
    spec.mutable_pipeline()->set_recompute("all");
    ExpectEqual(spec, {1, 2, 1});
  }
}

TEST_F(CarriedRuns, Replicas_GiveTheReferencesBits) {
  for (const char* method : {"1f1b", "pipedream", "paci", "spectrain"}) {
    for (const std::vector<int>& replicas :
         {std::vector<int>{2, 2}, {1, 4}, {4, 1}, {2, 1}, {2, 4}}) {
      v1::JobSpec spec = CarriedJob(method);
      for (const int of_stage : replicas) spec.mutable_pipeline()->add_replicas(of_stage);
      ExpectEqual(spec, {2, 2});
    }
  }
  ExpectEqual(CarriedJob("local-sgd"), {2, 2});
}

TEST_F(CarriedRuns, NumberOfReplicas_ChangesLossesByRoundingAlone) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained one,
                                TrainSerially(CarriedJob("1f1b"), SplitInto({4}), {}, files_));
  v1::JobSpec spec = CarriedJob("1f1b");
  spec.mutable_pipeline()->add_replicas(4);
  spec.mutable_pipeline()->add_replicas(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained four,
                                TrainCluster({.spec = spec, .layers = SplitInto({2, 2})}, files_));
  for (size_t step = 0; step < one.steps.size(); ++step) {
    EXPECT_NEAR(four.steps[step].loss, one.steps[step].loss, 1e-5);
  }
  for (size_t i = 0; i < one.validations.size(); ++i) {
    EXPECT_NEAR(four.validations[i].evaluation.loss, one.validations[i].evaluation.loss, 1e-5);
  }
}

TEST_F(CarriedRuns, InRecordedOrder_AreReplayed) {
  for (const char* method : {"1f1b", "pipedream", "paci"}) {
    v1::JobSpec spec = CarriedJob(method);
    spec.mutable_pipeline()->set_order("recorded");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = SplitInto({1, 2, 1}), .delay_seed = 5}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained serial, TrainSerially(spec, SplitInto({1, 2, 1}), {}, files_, cluster.order));
    ExpectSameTraining(cluster, serial);
  }
}

// With one window in an epoch every sample starts afresh, in training and in validation.
TEST_F(CarriedRuns, EpochsOfOneWindow_TrainAsIfNothingWereCarried) {
  const std::string text = TestText().substr(0, 140);
  ASSERT_THAT(files_.WriteDurably(kTextPath, {absl::string_view(text)}), IsOk());
  const std::string yaml =
      absl::StrReplaceAll(kCarriedJob, {{"validation_fraction: 0.97", "validation_fraction: 0.5"}});
  const v1::JobSpec spec = CarriedJob("1f1b", yaml);
  const v1::JobSpec fresh =
      CarriedJob("1f1b", absl::StrReplaceAll(yaml, {{"carried: true", "carried: false"}}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained with,
                                TrainSerially(spec, SplitInto({4}), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained without,
                                TrainSerially(fresh, SplitInto({4}), {}, files_));
  ASSERT_EQ(with.steps.size(), without.steps.size());
  for (size_t step = 0; step < with.steps.size(); ++step) {
    EXPECT_EQ(with.steps[step].loss, without.steps[step].loss);
  }
  EXPECT_EQ(with.validations, without.validations);
}

TEST_F(CarriedRuns, WhatIsCarried_ReachesTheSecondStepOfAnEpochAndNotTheFirst) {
  // Weights that hardly move, and validations of one step.
  const auto still = [](const std::string& yaml) {
    v1::JobSpec spec =
        CarriedJob("1f1b", absl::StrReplaceAll(yaml, {{"batches: 3", "batches: 1"}}));
    spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1e-9);
    return spec;
  };
  const v1::JobSpec carried = still(kCarriedJob);
  const v1::JobSpec fresh =
      still(absl::StrReplaceAll(kCarriedJob, {{"carried: true", "carried: false"}}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained without,
                                TrainSerially(fresh, SplitInto({4}), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained with,
                                TrainSerially(carried, SplitInto({4}), {}, files_));
  for (size_t step = 0; step < with.steps.size(); ++step) {
    const bool begins = step % 3 == 0;
    const double apart = std::abs(with.steps[step].loss - without.steps[step].loss);
    EXPECT_EQ(apart < 1e-6, begins) << "step " << step << ": " << apart;
  }
  for (size_t i = 0; i < with.validations.size(); ++i) {
    EXPECT_NEAR(with.validations[i].evaluation.loss, without.validations[i].evaluation.loss, 1e-5);
  }
}

TEST_F(CarriedRuns, FromACheckpointInTheMiddleOfAnEpoch_OnOtherWorkers_GoOnAsIfNotStopped) {
  const auto replicated = [](std::vector<int> replicas) {
    v1::JobSpec spec = CarriedJob("1f1b");
    for (const int of_stage : replicas) spec.mutable_pipeline()->add_replicas(of_stage);
    return spec;
  };
  struct Place {
    v1::JobSpec spec;
    std::vector<int> layers;
  };
  const std::vector<Place> places = {{CarriedJob("1f1b"), {4}},
                                     {CarriedJob("1f1b"), {1, 1, 1, 1}},
                                     {replicated({2, 2}), {2, 2}},
                                     {replicated({4, 1}), {2, 2}}};
  for (const Place& saver : places) {
    TestCluster cluster({.spec = saver.spec, .layers = SplitInto(saver.layers)}, files_);
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(4));
    for (const Place& loader : places) {
      SCOPED_TRACE(absl::StrCat(saver.spec.pipeline().ShortDebugString(), " -> ",
                                loader.spec.pipeline().ShortDebugString()));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                    TrainCluster({.spec = loader.spec,
                                                  .layers = SplitInto(loader.layers),
                                                  .first_step = 4,
                                                  .checkpoint = directory},
                                                 files_));
      ASSERT_EQ(resumed.steps.size(), 4u);
      // Replicas add their gradients up in another order.
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(resumed.steps[i].loss, cluster.Steps()[4 + i].loss, 1e-5);
      }
      if (&loader == &saver) {
        EXPECT_EQ(resumed.weights_sha256, cluster.WeightsSha256());
      }
    }
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(CarriedRuns, PipeDreamFromACheckpoint_GoesOnAsIfNotStopped) {
  const v1::JobSpec spec = CarriedJob("pipedream");
  TestCluster cluster({.spec = spec, .layers = SplitInto({1, 2, 1})}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(4));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Trained resumed,
      TrainCluster(
          {.spec = spec, .layers = SplitInto({1, 2, 1}), .first_step = 4, .checkpoint = directory},
          files_));
  EXPECT_EQ(resumed.weights_sha256, cluster.WeightsSha256());
  EXPECT_EQ(resumed.steps.back().loss, cluster.Steps().back().loss);
}

TEST_F(CarriedRuns, FromACheckpointOfAnotherBatch_AreRefused) {
  const v1::JobSpec spec = CarriedJob("1f1b");
  TestCluster cluster({.spec = spec, .layers = SplitInto({2, 2})}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(4));
  v1::JobSpec other = spec;
  other.mutable_training()->set_batch(4);
  EXPECT_THAT(
      TrainCluster(
          {.spec = other, .layers = SplitInto({2, 2}), .first_step = 4, .checkpoint = directory},
          files_),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training.batch is 8")));
  // In other microbatches the samples of a step are the same.
  v1::JobSpec halves = spec;
  halves.mutable_training()->set_microbatches(2);
  EXPECT_THAT(
      TrainCluster(
          {.spec = halves, .layers = SplitInto({2, 2}), .first_step = 4, .checkpoint = directory},
          files_),
      IsOk());
}

TEST_F(CarriedRuns, Memory_IsAsPredicted) {
  for (const bool recomputes : {false, true}) {
    v1::JobSpec spec = CarriedJob("1f1b");
    if (recomputes) spec.mutable_pipeline()->set_recompute("all");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = SplitInto({4})}, files_));
    for (const v1::StageReport& report : cluster.reports) {
      EXPECT_EQ(report.peak_memory_bytes(), report.predicted_memory_bytes());
      EXPECT_EQ(report.allocations_steady(), 0);
    }
  }
}

TEST_F(CarriedRuns, WhereNothingCanBeCarried_AreRefusedByName) {
  const auto refused = [](v1::JobSpec spec) { return ResolveJob(spec).status(); };
  v1::JobSpec random = CarriedJob("1f1b");
  random.mutable_data()->mutable_text()->set_order("random");
  EXPECT_THAT(refused(random),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("data.text.order: is random, but lower (lstm, carried)"),
                             HasSubstr("use contiguous"))));
  v1::JobSpec records = CarriedJob("1f1b");
  records.mutable_data()->mutable_records()->set_path("/records");
  records.mutable_data()->mutable_records()->set_order("sequential");
  records.mutable_data()->mutable_records()->set_validation_fraction(0.1);
  EXPECT_THAT(refused(records), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("data.records"), HasSubstr("lower"),
                                               HasSubstr("order contiguous"))));
  v1::JobSpec round = CarriedJob("roundpipe");
  round.mutable_pipeline()->set_stages(2);
  round.mutable_pipeline()->set_workers(2);
  EXPECT_THAT(refused(round),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("pipeline.method: roundpipe"), HasSubstr("lower (lstm)"),
                             HasSubstr("leave carried out"))));
  v1::JobSpec replicas = CarriedJob("1f1b");
  replicas.mutable_pipeline()->add_replicas(3);
  replicas.mutable_pipeline()->add_replicas(1);
  EXPECT_THAT(refused(replicas), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("training.microbatches: is 4")));
}

}  // namespace
}  // namespace penstock
