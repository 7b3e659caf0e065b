// Dialogues: what coordinator and workers say to each other in the cases that matter, as text. Each
// golden file is meant to be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "job/profile/cluster_profile.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

void ExpectDialogue(SimulatedCluster& cluster, const std::string& name) {
  EXPECT_THAT(cluster.violations(), IsEmpty());
  EXPECT_THAT(cluster.StillTraining(), IsEmpty());
  ExpectEqualsGolden(absl::StrCat("coordinator/", name, ".txt"), cluster.transcript());
}

v1::JobSpec CheckpointedJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec = SmallJob(steps, stages);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(2);
  return spec;
}

TEST(Dialogue, Profile_OfTwoKindsOfDevices_SucceedsAndTheNextKnowsTheLayers) {
  SimulatedCluster cluster({.workers = 3, .devices = {"gpu", "cpu"}});
  cluster.RunFor(10);
  v1::ProfileSpec profile = SmallProfile();
  profile.set_workers(3);
  const std::string first = cluster.SubmitProfile(SmallJob(4, 2), profile);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const std::string second = cluster.SubmitProfile(SmallJob(4, 2), profile);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  for (const std::string& job : {first, second}) {
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_THAT(CheckClusterProfile(cluster.Saved(job).profile()), IsOk());
  }
  ExpectDialogue(cluster, "profile");
}

TEST(Dialogue, Job_WithCheckpoints_Succeeds) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(CheckpointedJob(4, 2));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::JobResult& result = cluster.Saved(job).result();
  EXPECT_EQ(result.steps(), 4);
  EXPECT_EQ(result.tokens(), 4 * 128);
  EXPECT_EQ(result.checkpoint(), "/ckpt/step-4");
  EXPECT_EQ(result.weights_sha256().size(), 64u);
  ASSERT_EQ(cluster.commits().size(), 2u);
  EXPECT_EQ(cluster.commits()[1].weights_sha256, result.weights_sha256());
  EXPECT_EQ(cluster.commits()[0].step, 2);
  EXPECT_EQ(cluster.commits()[0].updates, 2);
  ExpectDialogue(cluster, "succeeds");
}

// Stage 0 updates once for 2 of the 4 microbatches of a step, stage 1 after each.
TEST(Dialogue, ReplicasOfStages_TheCheckpointCountsUpdatesByLayer) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  v1::JobSpec spec = CheckpointedJob(4, 2);
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_pipeline()->add_replicas(2);
  spec.mutable_pipeline()->add_replicas(1);
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().stages(), 2);
  EXPECT_EQ(cluster.Saved(job).result().steps(), 4) << "as the worker of the last stage tells";
  ASSERT_EQ(cluster.commits().size(), 2u);
  const Manifest& first = cluster.commits()[0];
  const int32_t layers = cluster.Saved(job).plan().stages(0).layers();
  ASSERT_EQ(first.layer_updates.size(), 7u);
  for (int layer = 0; layer < 7; ++layer) {
    EXPECT_EQ(first.UpdatesOf(layer), layer < layers ? 4 : 8) << "layer " << layer;
  }
}

TEST(Dialogue, WorkerKilled_JobFailsWithItsName) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(100, 3));
  cluster.At(450, [&] { cluster.Kill(2); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("worker w2 (stage 2)"));
  EXPECT_LT(cluster.now().monotonic_ns, 5'000 * kNsPerMs) << "fails within seconds";
  ExpectDialogue(cluster, "worker_killed");
}

TEST(Dialogue, WorkerOfASavedJobKilled_AnotherTakesItsPlace) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(CheckpointedJob(6, 2));
  cluster.At(560, [&] { cluster.Kill(1); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().recoveries(), 1);
  ExpectDialogue(cluster, "recovers");
}

TEST(Dialogue, WorkerFrozen_IsLostByItsHeartbeat) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(100, 2));
  cluster.At(450, [&] { cluster.Freeze(1); });
  cluster.RunFor(30'000);
  EXPECT_THAT(cluster.Summary(job).error(),
              HasSubstr("worker w1 (stage 1): was lost: no heartbeat"));
}

TEST(Dialogue, WorkerWithTwoStages_IsNamedWithBoth) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = SmallJob(100, 4);
  spec.mutable_pipeline()->set_method("zb-v");
  const std::string job = cluster.Submit(spec);
  cluster.At(450, [&] { cluster.FailRun(1, "the loss of step 3 is not finite"); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).error(),
            "worker w1 (stages 1, 2): the loss of step 3 is not finite");
}

TEST(Dialogue, LossNotFinite_StopsAllOthers) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(100, 3));
  cluster.At(450, [&] { cluster.FailRun(1, "the loss of step 3 is not finite"); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).error(), "worker w1 (stage 1): the loss of step 3 is not finite");
  ExpectDialogue(cluster, "loss_not_finite");
}

TEST(Dialogue, Cancel_DrainsAtTheLargestHeldStep) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = CheckpointedJob(100, 2);
  spec.mutable_checkpoint()->set_every_steps(50);
  const std::string job = cluster.Submit(spec);
  cluster.At(450, [&] {
    ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
    cluster.PerformEffects();
  });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(cluster.Summary(job).reason(), "cancelled by the user");
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.extra_cuts_size(), 1);
  EXPECT_EQ(result.extra_cuts(0), result.steps());
  ASSERT_EQ(cluster.commits().size(), 1u);
  EXPECT_EQ(cluster.commits()[0].extra_cuts, std::vector<int64_t>{result.steps()});
  ExpectDialogue(cluster, "cancelled");
}

TEST(Dialogue, SlowerThanPredicted_DrainsSavesAndGoesOnWithAnotherSplit) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  v1::JobSpec spec = CheckpointedJob(12, 2);
  spec.mutable_pipeline()->add_stage_layers(3);
  spec.mutable_pipeline()->add_stage_layers(4);
  PredictOnEqualWorkers(spec, 0.057);
  spec.mutable_feedback()->set_drift_steps(2);
  spec.mutable_feedback()->set_replan("auto");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().feedback().replans(), 1);
  ExpectDialogue(cluster, "replanned");
}

TEST(Dialogue, SecondJob_WaitsForWorkersAndThenRuns) {
  SimulatedCluster cluster({.workers = 2});
  const std::string early = cluster.Submit(SmallJob(2, 2));
  EXPECT_EQ(cluster.Summary(early).reason(), "waits for workers: needs 2, the cluster has 0");
  cluster.RunFor(10);
  const std::string second = cluster.Submit(SmallJob(2, 1));
  EXPECT_EQ(cluster.Summary(second).reason(), "waits for workers: needs 1, 0 of 2 are free");
  const std::string too_large = cluster.Submit(SmallJob(2, 3));
  const std::string third = cluster.Submit(SmallJob(2, 1));
  EXPECT_EQ(cluster.Summary(third).reason(), absl::StrCat("waits behind job ", second));
  cluster.RunFor(5000);
  EXPECT_EQ(cluster.Summary(third).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(too_large).reason(), "waits for workers: needs 3, the cluster has 2");
  ExpectDialogue(cluster, "queue");
}

TEST(Dialogue, Resume_GoesOnAfterTheCheckpoint) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  // The steps before were made by a method that updates several times in a step.
  cluster.found_start = FoundStart{.checkpoint = "/ckpt/step-2",
                                   .step = 2,
                                   .updates = 16,
                                   .extra_cuts = {1},
                                   .notes = {"passed over /ckpt/step-3: layer 0 is damaged"}};
  v1::JobSpec spec = CheckpointedJob(4, 2);
  spec.mutable_checkpoint()->set_resume("latest");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().tokens(), 2 * 128);
  EXPECT_EQ(cluster.commits().back().extra_cuts, std::vector<int64_t>{1});
  EXPECT_EQ(cluster.commits().back().updates, 16 + 2);
  ExpectDialogue(cluster, "resumed");
}

}  // namespace
}  // namespace penstock
