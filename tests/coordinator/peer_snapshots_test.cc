// Jobs that go on from snapshots in the memory of their workers.
#include "coordinator/peer_snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/ends.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Without a checkpoint directory; a cut, and so a snapshot, every 4 steps.
v1::JobSpec KeptJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec = SmallJob(steps, stages);
  spec.mutable_validation()->set_every_steps(4);
  spec.mutable_validation()->set_batches(1);
  return spec;
}

SimulatedClusterOptions Attached(int workers) {
  return {.workers = workers, .delay_ms_min = 5, .delay_ms_max = 5, .attached = true};
}

std::string TrainTo(int64_t step, const v1::JobSpec& spec, SimulatedCluster& cluster) {
  const std::string job = cluster.Submit(spec);
  EXPECT_TRUE(cluster.RunUntil([&] { return cluster.Summary(job).step() == step; }));
  return job;
}

void ExpectSucceeded(SimulatedCluster& cluster, const std::string& job, int attempts) {
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED)
      << cluster.Summary(job).error() << cluster.transcript();
  EXPECT_EQ(cluster.Saved(job).result().attempts_size(), attempts);
  EXPECT_EQ(cluster.Saved(job).snapshots_size(), 0) << "nobody needs them any more";
  ExpectCleanEnd(cluster);
}

TEST(PeerSnapshots, KilledWorker_TheJobGoesOnFromTheLastCutWithoutADirectory) {
  for (int killed = 0; killed < 3; ++killed) {
    SimulatedCluster cluster(Attached(3));
    const std::string job = TrainTo(10, KeptJob(20, 3), cluster);
    cluster.Kill(killed);
    cluster.RunFor(100);
    cluster.Restart(killed);
    ExpectSucceeded(cluster, job, 2);
    const v1::JobResult& result = cluster.Saved(job).result();
    EXPECT_EQ(result.attempts(1).first_step(), 8);
    EXPECT_EQ(result.steps_redone(), result.attempts(0).last_step() - 8);
    EXPECT_EQ(result.snapshot_step(), 16);
    EXPECT_THAT(cluster.Logs(job),
                Contains(HasSubstr("after step 8 from the snapshot in its workers' memory")));
  }
}

TEST(PeerSnapshots, KilledAtAnyMoment_TheJobSucceeds) {
  for (int64_t kill_ms = 150; kill_ms < 2400; kill_ms += 13) {
    SCOPED_TRACE(kill_ms);
    SimulatedCluster cluster(Attached(3));
    const std::string job = cluster.Submit(KeptJob(20, 3));
    cluster.RunFor(kill_ms);
    cluster.Kill(1);
    cluster.RunFor(100);
    cluster.Restart(1);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
    ExpectCleanEnd(cluster);
  }
}

TEST(PeerSnapshots, EverySteps_AreLaterThanTheCheckpointOnDisk) {
  SimulatedCluster cluster(Attached(3));
  v1::JobSpec spec = SmallJob(20, 3);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(8);
  spec.mutable_recovery()->set_snapshot_every_steps(1);
  const std::string job = TrainTo(11, spec, cluster);
  cluster.Kill(1);
  cluster.RunFor(100);
  cluster.Restart(1);
  ExpectSucceeded(cluster, job, 2);
  EXPECT_GE(cluster.Saved(job).result().attempts(1).first_step(), 10);
  EXPECT_THAT(cluster.Saved(job).result().checkpoint(), HasSubstr("20"));
}

TEST(PeerSnapshots, CheckpointOnDiskThatIsLater_IsTaken) {
  SimulatedCluster cluster(Attached(3));
  v1::JobSpec spec = SmallJob(20, 3);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(4);
  spec.mutable_recovery()->set_snapshot_every_steps(3);
  const std::string job = TrainTo(8, spec, cluster);
  cluster.RunFor(60);  // it is committed, and step 9 is not done
  cluster.Kill(1);
  cluster.RunFor(100);
  cluster.Restart(1);
  ExpectSucceeded(cluster, job, 2);
  EXPECT_EQ(cluster.Saved(job).result().attempts(1).first_step(), 8);
}

TEST(PeerSnapshots, WorkerAndItsPeerKilled_TheJobFailsAndSaysWhatWouldHaveHelped) {
  SimulatedCluster cluster(Attached(3));
  const std::string job = TrainTo(10, KeptJob(20, 3), cluster);
  cluster.Kill(0);
  cluster.Kill(1);
  cluster.RunFor(100);
  cluster.Restart(0);
  cluster.Restart(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  ExpectCleanEnd(cluster);
}

TEST(PeerSnapshots, WorkerAndItsPeerKilled_OneThatSaysAutoBeginsAgain) {
  SimulatedCluster cluster(Attached(3));
  v1::JobSpec spec = KeptJob(20, 3);
  spec.mutable_recovery()->set_mode("auto");
  const std::string job = TrainTo(10, spec, cluster);
  cluster.Kill(0);
  cluster.Kill(1);
  cluster.RunFor(100);
  cluster.Restart(0);
  cluster.Restart(1);
  ExpectSucceeded(cluster, job, 2);
  EXPECT_EQ(cluster.Saved(job).result().attempts(1).first_step(), 0);
}

TEST(PeerSnapshots, SecondWorkerKilledBeforeItGoesOn_TheSnapshotThatIsLeftServes) {
  SimulatedCluster cluster(Attached(5));
  const std::string job = TrainTo(10, KeptJob(20, 4), cluster);
  cluster.Kill(0);  // w1 has its layers, w0 had those of w3
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RECOVERING));
  cluster.RunFor(7);
  cluster.Kill(2);
  cluster.RunFor(100);
  cluster.Restart(0);
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED)
      << cluster.Summary(job).error() << cluster.transcript();
}

TEST(PeerSnapshots, CoordinatorRestartedAndAWorkerKilled_TheJobGoesOnFromItsSnapshot) {
  SimulatedCluster cluster(Attached(3));
  const std::string job = TrainTo(10, KeptJob(20, 3), cluster);
  cluster.RestartCoordinator();
  cluster.Kill(2);
  cluster.RunFor(100);
  cluster.Restart(2);
  ExpectSucceeded(cluster, job, 2);
  EXPECT_EQ(cluster.Saved(job).result().attempts(1).first_step(), 8);
}

TEST(PeerSnapshots, CoordinatorRestartedBeforeTheFirstSnapshot_TheJobBeginsAgain) {
  SimulatedCluster cluster(Attached(3));
  const std::string job = TrainTo(3, KeptJob(20, 3), cluster);
  cluster.Kill(1);
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RECOVERING));
  cluster.RunFor(20);
  cluster.RestartCoordinator();
  cluster.RunFor(50);
  cluster.Restart(1);
  ExpectSucceeded(cluster, job, 2);
  EXPECT_EQ(cluster.Saved(job).result().attempts(1).first_step(), 0);
}

TEST(PeerSnapshots, HolderThatDiedWithTheCoordinatorAndStaysAway_CountsNoMore) {
  SimulatedCluster cluster(Attached(5));
  v1::JobSpec spec = KeptJob(20, 3);
  spec.mutable_recovery()->set_mode("auto");
  const std::string job = TrainTo(10, spec, cluster);
  cluster.Kill(3);
  cluster.Kill(4);
  cluster.Kill(0);
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RECOVERING));
  cluster.RunFor(50);
  cluster.Kill(1);  // which has the copy of what w0 had
  cluster.RestartCoordinator();
  cluster.RunFor(50);
  for (const int worker : {0, 3, 4}) cluster.Restart(worker);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED)
      << cluster.Summary(job).error() << cluster.transcript();
  EXPECT_EQ(cluster.Saved(job).result().attempts().rbegin()->first_step(), 0)
      << "nobody has all layers";
}

TEST(PeerSnapshots, WorkersThatKeepNone_TheJobFailsOnceThereShouldBeOne) {
  for (const int64_t step : {6, 10}) {
    SimulatedCluster cluster(Attached(3));
    cluster.keeps_snapshots = false;
    const std::string job = TrainTo(step, KeptJob(20, 3), cluster);
    cluster.Kill(1);
    cluster.RunFor(100);
    cluster.Restart(1);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_EQ(cluster.Summary(job).state(),
              step < 8 ? v1::JOB_STATE_SUCCEEDED : v1::JOB_STATE_FAILED);
  }
}

TEST(PeerSnapshots, WithoutCutsBeforeTheEnd_TheJobFailsAsItHasNone) {
  SimulatedCluster cluster(Attached(3));
  const std::string job = TrainTo(3, SmallJob(20, 3), cluster);
  cluster.Kill(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
}

TEST(PeerSnapshots, WithRecoveryOff_TheJobFails) {
  SimulatedCluster cluster(Attached(3));
  v1::JobSpec spec = KeptJob(20, 3);
  spec.mutable_recovery()->set_mode("off");
  const std::string job = TrainTo(10, spec, cluster);
  cluster.Kill(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
}

TEST(PeerSnapshots, Heartbeat_IsToldWhichSnapshotsAreNeeded) {
  SimulatedCluster cluster(Attached(3));
  const std::string job = TrainTo(10, KeptJob(20, 3), cluster);
  v1::HeartbeatRequest request;
  request.add_snapshot_jobs(job);
  request.add_snapshot_jobs("nobody-1");
  const v1::HeartbeatResponse response = cluster.coordinator().AnswerTo(request);
  ASSERT_EQ(response.kept_size(), 1);
  EXPECT_EQ(response.kept(0).job_id(), job);
  EXPECT_THAT(response.kept(0).first_directory(), HasSubstr("-000000000008"));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.coordinator().AnswerTo(request).kept_size(), 0);
}

// ------------------------------------------------------------------------------- the state machine

v1::LayersKept KeptBy(int32_t layer, int64_t step, const std::string& copy = "") {
  v1::LayersKept kept;
  kept.mutable_layers()->set_step(step);
  kept.mutable_layers()->add_layers()->set_layer(layer);
  if (!copy.empty()) {
    kept.mutable_copy()->set_worker(copy);
    kept.mutable_copy()->set_incarnation(1);
  }
  return kept;
}

class Book : public ::testing::Test {
 protected:
  Book() {
    snapshots_.BeginAttempt({{.name = "a", .incarnation = 1}, {.name = "b", .incarnation = 1}}, 5);
  }

  void Keep(int64_t step) {
    EXPECT_FALSE(snapshots_.OnKept(0, KeptBy(0, step, "b")).has_value());
    ASSERT_TRUE(snapshots_.OnKept(1, KeptBy(1, step, "a")).has_value());
    Manifest manifest;
    manifest.step = step;
    snapshots_.Add("job", manifest);
  }
  int64_t LatestStep() const {
    return snapshots_.Latest() == nullptr ? -1 : snapshots_.Latest()->start.step;
  }

  PeerSnapshots snapshots_;
};

TEST_F(Book, CountsOnceAllWorkersHaveTold) {
  EXPECT_EQ(LatestStep(), -1);
  Keep(4);
  EXPECT_EQ(LatestStep(), 4);
  EXPECT_FALSE(snapshots_.OnKept(0, KeptBy(0, 8, "b")).has_value());
  EXPECT_FALSE(snapshots_.OnKept(0, KeptBy(0, 8, "b")).has_value()) << "told twice by one";
  EXPECT_EQ(LatestStep(), 4);
  EXPECT_THAT(snapshots_.TakeSettled(), ElementsAre(4));
  EXPECT_FALSE(snapshots_.OnKept(1, KeptBy(1, 4, "a")).has_value()) << "it is over";
  EXPECT_THAT(snapshots_.TakeSettled(), ElementsAre(4));
}

TEST_F(Book, LossOfAHolder_LeavesWhatItsPeerHas) {
  Keep(4);
  snapshots_.OnGone("a", 2);
  snapshots_.OnRegistered("a", 1);
  EXPECT_EQ(snapshots_.Latest()->where.parts(0).holders_size(), 2) << "it was another process";
  snapshots_.OnRegistered("a", 2);
  ASSERT_EQ(LatestStep(), 4);
  EXPECT_EQ(snapshots_.Latest()->where.parts(0).holders(0).worker(), "b");
  snapshots_.OnGone("b", 1);
  EXPECT_EQ(LatestStep(), -1);
}

TEST_F(Book, PartThatIsNotCopied_IsLostWithItsWorker) {
  EXPECT_FALSE(snapshots_.OnKept(0, KeptBy(0, 4)).has_value());
  ASSERT_TRUE(snapshots_.OnKept(1, KeptBy(1, 4, "a")).has_value());
  Manifest manifest;
  manifest.step = 4;
  snapshots_.Add("job", manifest);
  snapshots_.OnGone("b", 1);
  EXPECT_EQ(LatestStep(), 4);
  snapshots_.OnGone("a", 1);
  EXPECT_EQ(LatestStep(), -1);
}

TEST_F(Book, CopyOnAWorkerThatIsNotOfTheRun_DoesNotCount) {
  EXPECT_FALSE(snapshots_.OnKept(0, KeptBy(0, 4, "somebody")).has_value());
  const auto complete = snapshots_.OnKept(1, KeptBy(1, 4, "a"));
  ASSERT_TRUE(complete.has_value());
  EXPECT_EQ(complete->layers.size(), 2u);
  Manifest manifest;
  manifest.step = 4;
  snapshots_.Add("job", manifest);
  EXPECT_EQ(snapshots_.Latest()->where.parts(0).holders_size(), 1);
  EXPECT_EQ(snapshots_.Latest()->where.parts(1).holders_size(), 2);
}

TEST_F(Book, AWorkerThatTellsOfManySteps_TakesNoMoreMemory) {
  for (int64_t step = 1; step <= 1000; ++step) {
    EXPECT_FALSE(snapshots_.OnKept(0, KeptBy(0, step, "b")).has_value());
  }
  EXPECT_EQ(snapshots_.TakeSettled().size(), 997u);
  EXPECT_FALSE(snapshots_.OnKept(1, KeptBy(1, 1, "a")).has_value()) << "the worker has it no more";
  EXPECT_TRUE(snapshots_.OnKept(1, KeptBy(1, 1000, "a")).has_value());
}

TEST_F(Book, NeededFrom_TheLatestThatIsStored) {
  Keep(4);
  EXPECT_EQ(snapshots_.FirstNeeded(), "");
  snapshots_.OnStored();
  EXPECT_EQ(snapshots_.FirstNeeded(), "") << "it was not saved";
  snapshots_.OnSaved();
  Keep(8);
  EXPECT_EQ(snapshots_.FirstNeeded(), "");
  snapshots_.OnStored();
  EXPECT_THAT(snapshots_.FirstNeeded(), HasSubstr("-000000000004"))
      << "a later process has no other";
  snapshots_.OnSaved();
  snapshots_.OnStored();
  EXPECT_THAT(snapshots_.FirstNeeded(), HasSubstr("-000000000008"));
}

TEST_F(Book, NeededFrom_AnEarlierOneIfTheStoredOneIsLost) {
  Keep(4);
  EXPECT_FALSE(snapshots_.OnKept(0, KeptBy(0, 8)).has_value());
  ASSERT_TRUE(snapshots_.OnKept(1, KeptBy(1, 8, "a")).has_value());
  Manifest manifest;
  manifest.step = 8;
  snapshots_.Add("job", manifest);
  snapshots_.OnSaved();
  snapshots_.OnStored();
  EXPECT_THAT(snapshots_.FirstNeeded(), HasSubstr("-000000000008"));
  snapshots_.OnGone("a", 1);
  EXPECT_EQ(LatestStep(), 4);
  EXPECT_THAT(snapshots_.FirstNeeded(), HasSubstr("-000000000004"));
}

TEST_F(Book, RecordBringsThemBack) {
  Keep(4);
  Keep(8);
  Keep(12);
  snapshots_.Drop(snapshots_.Latest()->where.directory());
  v1::GetJobResponse record;
  snapshots_.WriteTo(record);
  ASSERT_EQ(record.snapshots_size(), 1);
  EXPECT_EQ(record.snapshots(0).epoch(), 5);
  PeerSnapshots later;
  later.TakeOver(record);
  EXPECT_EQ(later.FirstNeeded(), record.snapshots(0).directory());
}

}  // namespace
}  // namespace penstock
