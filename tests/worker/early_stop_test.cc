// Jobs that end where validations no longer improve: all workers at one cut, as the serial reference does.
#include "job/early_stop.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/defaults.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

TEST(EarlyStop, Ends_AfterValidationsInARowThatAreNoBetter) {
  EarlyStop stop(2);
  EXPECT_FALSE(stop.Ends(3.0));
  EXPECT_FALSE(stop.Ends(3.0));  // no better: 1
  EXPECT_FALSE(stop.Ends(2.0));
  EXPECT_FALSE(stop.Ends(2.5));  // 1
  EXPECT_FALSE(stop.Over());
  EXPECT_TRUE(stop.Ends(2.0));  // 2
  EXPECT_TRUE(stop.Over());
  EXPECT_EQ(stop.course().best, 2.0);
  EarlyStop goes_on(2, {.best = 2.0, .since_best = 1});
  EXPECT_TRUE(goes_on.Ends(2.25));
  EarlyStop never(0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(never.Ends(1.0));
  EXPECT_EQ(never.course().since_best, 99);
}

// A rate so high that validations get worse.
v1::JobSpec RisingJob(const std::string& method, int stop_after) {
  v1::JobSpec spec = SmallJob(method);
  spec.mutable_training()->set_steps(40);
  spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.3);
  spec.mutable_validation()->set_every_steps(2);
  spec.mutable_validation()->set_batches(1);
  if (stop_after > 0) spec.mutable_validation()->set_stop_after(stop_after);
  spec.mutable_training()->mutable_clip()->set_layer_norm(0.2);
  FillDefaults(spec);
  return spec;
}

class EarlyStopOfRuns : public ::testing::Test {
 protected:
  EarlyStopOfRuns() { AddTestText(files_); }
  MemoryFiles files_;
};

TEST_F(EarlyStopOfRuns, EveryMethod_EndsWhereTheReferenceDoes) {
  int early = 0;
  for (const char* method :
       {"1f1b", "gpipe", "zb-v", "pipedream", "paci", "nesterov", "local-sgd", "roundpipe"}) {
    v1::JobSpec spec = RisingJob(method, 3);
    if (method == std::string("roundpipe") || method == std::string("local-sgd")) {
      spec.mutable_training()->set_microbatches(6);
      spec.mutable_training()->set_batch(12);
    }
    const std::vector<LayerRange> layers =
        EvenSplit(kLayers, method == std::string("zb-v") ? 6 : 3);
    SCOPED_TRACE(method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = layers, .delay_seed = 5}, files_));
    ExpectSameTraining(cluster, serial);
    EXPECT_EQ(cluster.steps.size(), 2 * cluster.validations.size());
    early += cluster.steps.size() < 40;
  }
  EXPECT_GE(early, 4) << "nothing is tested where jobs go on to their end";
}

TEST_F(EarlyStopOfRuns, EndsWithACheckpointAndSaysSo) {
  v1::JobSpec spec = RisingJob("1f1b", 3);
  spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
  TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
  const int64_t last = cluster.Steps().back().step;
  ASSERT_LT(last, 40);
  for (int worker = 0; worker < cluster.size(); ++worker) {
    int64_t saved = -1;
    for (const v1::RunEvent& event : cluster.events(worker)) {
      if (event.has_layers_saved()) saved = event.layers_saved().step();
      if (!event.has_run_done()) continue;
      EXPECT_EQ(event.run_done().step(), last);
      EXPECT_TRUE(event.run_done().stopped_early());
    }
    EXPECT_EQ(saved, last) << "worker " << worker;
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(last));
  // From there another run of the same job has nothing left to do.
  const auto over = [](v1::PrepareRunRequest& request) {
    request.set_best_validation_loss(1.0);
    request.set_validations_since_best(3);
  };
  TestCluster again({.spec = spec,
                     .layers = EvenSplit(kLayers, 2),
                     .first_step = last,
                     .checkpoint = directory,
                     .edit_request = over},
                    files_);
  ASSERT_THAT(again.prepared(), IsOk());
  again.Start();
  for (const absl::Status& status : again.Join()) ASSERT_THAT(status, IsOk());
  EXPECT_TRUE(again.Steps().empty());
  EXPECT_EQ(again.WeightsSha256(), cluster.WeightsSha256());
}

// What went before counts: a run that goes on from a checkpoint ends where the whole one does.
TEST_F(EarlyStopOfRuns, ResumedWithItsCourse_EndsWhereItWouldHave) {
  v1::JobSpec spec = RisingJob("1f1b", 3);
  spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
  spec.mutable_checkpoint()->set_every_steps(2);
  TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
  const int64_t last = cluster.Steps().back().step;
  ASSERT_GT(last, 4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(last - 2));
  EarlyStop stop(3);
  for (const ReferenceResult::Validation& validation : cluster.Validations()) {
    if (validation.step <= last - 2) stop.Ends(validation.evaluation.loss);
  }
  const auto with_course = [&](v1::PrepareRunRequest& request) {
    request.set_best_validation_loss(*stop.course().best);
    request.set_validations_since_best(stop.course().since_best);
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                TrainCluster({.spec = spec,
                                              .layers = EvenSplit(kLayers, 2),
                                              .first_step = last - 2,
                                              .checkpoint = directory,
                                              .edit_request = with_course},
                                             files_));
  EXPECT_EQ(resumed.steps.size(), 2u);
  EXPECT_EQ(resumed.weights_sha256, cluster.WeightsSha256());
}

}  // namespace
}  // namespace penstock
