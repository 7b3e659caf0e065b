// Jobs that have lost workers and go on with as many again.
#include "coordinator/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;

// --------------------------------------------------------------------------------------- the policy

struct EndedAttempt {
  v1::AttemptCause cause;
  int64_t detected_ms;
  int64_t resumed_ms;
  std::string worker = "";
  bool ends_to_grow = false;
};

std::optional<int64_t> GrowsFrom(const std::vector<EndedAttempt>& past) {
  google::protobuf::RepeatedPtrField<v1::Attempt> attempts;
  for (const EndedAttempt& one : past) {
    v1::Attempt& attempt = *attempts.Add();
    attempt.set_cause(one.cause);
    attempt.set_detected_ms(one.detected_ms);
    attempt.set_resumed_ms(one.resumed_ms);
    attempt.set_worker(one.worker);
    attempt.set_ends_to_grow(one.ends_to_grow);
  }
  attempts.Add();  // under way
  return GrowsFromMs(attempts);
}

TEST(GrowsFromMs, AfterALoss_AtOnce) {
  EXPECT_THAT(GrowsFrom({}), Optional(0));
  EXPECT_THAT(GrowsFrom({{v1::ATTEMPT_CAUSE_WORKER_LOST, 1000, 2000}}), Optional(0));
}

TEST(GrowsFromMs, AfterALossSoonAfterAGrowth_WaitsForLongerEachTimeAndThenStays) {
  constexpr v1::AttemptCause kGrew = v1::ATTEMPT_CAUSE_GREW;
  constexpr v1::AttemptCause kLost = v1::ATTEMPT_CAUSE_WORKER_LOST;
  EXPECT_THAT(GrowsFrom({{kGrew, 10'000, 11'000}, {kLost, 70'999, 72'000}}), Optional(130'999));
  EXPECT_THAT(GrowsFrom({{kGrew, 10'000, 11'000}, {kLost, 71'000, 72'000}}), Optional(0))
      << "it has trained for a minute";
  // It did not come to train.
  EXPECT_THAT(GrowsFrom({{kGrew, 10'000, 300'000}, {kLost, 200'000, 300'000}}), Optional(260'000));
  std::vector<EndedAttempt> past = {{kGrew, 10'000, 11'000}, {kLost, 12'000, 13'000}};
  past.insert(past.end(), {{kGrew, 100'000, 101'000}, {kLost, 102'000, 103'000}});
  EXPECT_THAT(GrowsFrom(past), Optional(222'000));
  std::vector<EndedAttempt> good = past;
  good.insert(good.end(), {{kGrew, 300'000, 301'000}, {kLost, 400'000, 401'000}});
  EXPECT_THAT(GrowsFrom(good), Optional(0)) << "the last was good";
  past.insert(past.end(), {{kGrew, 300'000, 301'000}, {kLost, 302'000, 303'000}});
  EXPECT_EQ(GrowsFrom(past), std::nullopt);
}

TEST(GrowsFromMs, AfterADrainForItThatFailed_Waits) {
  for (const v1::AttemptCause cause : {v1::ATTEMPT_CAUSE_NOT_SAVED, v1::ATTEMPT_CAUSE_STALLED}) {
    EXPECT_THAT(GrowsFrom({{cause, 1000, 2000, "", /*ends_to_grow=*/true}}), Optional(61'000));
    EXPECT_THAT(GrowsFrom({{cause, 1000, 2000}}), Optional(0)) << "it drained for another reason";
  }
}

TEST(GrowsFromMs, AfterAWorkerThatWasToJoinIsGone_Waits) {
  constexpr v1::AttemptCause kGrew = v1::ATTEMPT_CAUSE_GREW;
  EXPECT_THAT(GrowsFrom({{kGrew, 1000, 2000, "w2", true}}), Optional(61'000));
  // A loss soon after that is not one of a job that has grown.
  EXPECT_THAT(GrowsFrom({{kGrew, 1000, 2000, "w2", true},
                         {v1::ATTEMPT_CAUSE_WORKER_LOST, 3000, 4000, "w1"}}),
              Optional(61'000));
}

TEST(GrowsFromMs, AttemptThatEndsInGoodOrder_SaysNothing) {
  EXPECT_THAT(
      GrowsFrom({{v1::ATTEMPT_CAUSE_GREW, 1000, 2000}, {v1::ATTEMPT_CAUSE_LEFT, 3000, 4000}}),
      Optional(0));
}

TEST(IsTimeToHold, JustBeforeTheNextCutOfItsOwn) {
  const std::vector<int64_t> own = {100, 200, 300};
  const GrowthCuts cuts{.own = own, .steps = 300, .step_s = 0.1};
  EXPECT_FALSE(IsTimeToHold(cuts, 0));
  EXPECT_FALSE(IsTimeToHold(cuts, 88));
  EXPECT_TRUE(IsTimeToHold(cuts, 89)) << "11 steps: a second, and the one under way";
  EXPECT_TRUE(IsTimeToHold(cuts, 99));
  EXPECT_FALSE(IsTimeToHold(cuts, 100));
  EXPECT_EQ(CutToGrow(cuts, 90), 100);
  EXPECT_EQ(CutToGrow(cuts, 100), 100);
  EXPECT_EQ(CutToGrow(cuts, 101), 101) << "it was missed";
}

TEST(LeadMs, IsTheTimeOfTheStepsFromTheHoldToTheCut) {
  EXPECT_EQ(LeadMs({.step_s = 0.1}), 1100);
  EXPECT_EQ(LeadMs({.step_s = 70}), 140'000);
}

TEST(IsTimeToHold, NoCutOfItsOwnWithinTenMinutes_Now) {
  const std::vector<int64_t> own = {100, 1000};
  EXPECT_TRUE(IsTimeToHold({.own = own, .steps = 1000, .step_s = 10}, 10));
  EXPECT_FALSE(IsTimeToHold({.own = own, .steps = 1000, .step_s = 10}, 50));
  EXPECT_TRUE(IsTimeToHold({.own = own, .steps = 1000, .step_s = 0.1}, 200)) << "there is none";
}

TEST(IsTimeToHold, TooLittleIsLeft_Never) {
  const std::vector<int64_t> own = {100, 140};
  EXPECT_FALSE(IsTimeToHold({.own = own, .steps = 140, .step_s = 0.1}, 95));
  EXPECT_FALSE(IsTimeToHold({.own = own, .steps = 140, .step_s = 0.1}, 101));
  EXPECT_TRUE(IsTimeToHold({.own = own, .steps = 140, .step_s = 0.2}, 95));
}

std::vector<WorkerOffer> OffersOf(const std::vector<std::string>& names) {
  std::vector<WorkerOffer> offers;
  for (const std::string& name : names) offers.push_back({.name = name});
  return offers;
}

std::vector<std::string> OfferNames(const std::vector<WorkerOffer>& offers) {
  std::vector<std::string> names;
  for (const WorkerOffer& offer : offers) names.push_back(offer.name);
  return names;
}

TEST(ChooseToJoin, ThoseThatHadAPlace_ComeFirst) {
  const std::vector<std::string> places = {"w0", "w2"};
  EXPECT_THAT(OfferNames(ChooseToJoin(places, OffersOf({"w1", "w2", "w3"}), 2)),
              ElementsAre("w2", "w1"));
  EXPECT_THAT(OfferNames(ChooseToJoin(places, OffersOf({"w1"}), 2)), ElementsAre("w1"));
}

TEST(InPlaces, KeepsPlacesAndFillsTheOthers) {
  const std::vector<std::string> places = {"w0", "w1", "w2"};
  EXPECT_THAT(OfferNames(InPlaces(places, OffersOf({"w2", "w9", "w0"}))),
              ElementsAre("w0", "w9", "w2"));
  EXPECT_THAT(OfferNames(InPlaces(places, OffersOf({"w2", "w9"}))), ElementsAre("w2", "w9"))
      << "there is no third place";
}

// ---------------------------------------------------------------------------------- in a cluster

std::vector<v1::AttemptCause> CausesOf(const v1::GetJobResponse& job) {
  std::vector<v1::AttemptCause> causes;
  for (const v1::Attempt& attempt : job.result().attempts()) causes.push_back(attempt.cause());
  return causes;
}

// Saved every 20 steps of 0.1 s, and goes on with fewer workers after 2 s.
v1::JobSpec GrowingJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec = SmallJob(steps, stages);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(20);
  spec.mutable_recovery()->set_wait_seconds(2);
  return spec;
}

void ExpectGoodEnd(SimulatedCluster& cluster, const std::string& job, int64_t steps) {
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
  std::vector<int64_t> expected(steps);
  std::iota(expected.begin(), expected.end(), int64_t{1});
  std::vector<int64_t> curve;
  for (const v1::LossPoint& point : cluster.Saved(job).result().losses()) {
    curve.push_back(point.step());
  }
  EXPECT_EQ(curve, expected);
  EXPECT_EQ(cluster.Saved(job).result().tokens(), steps * 128);
  cluster.RunFor(5000);
  EXPECT_THAT(cluster.violations(), IsEmpty()) << cluster.transcript();
  EXPECT_THAT(cluster.StillTraining(), IsEmpty()) << cluster.transcript();
  EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty()) << cluster.transcript();
}

// Three workers, of which the last is killed; the job goes on with two.
struct Shrunk {
  explicit Shrunk(v1::JobSpec spec, SimulatedClusterOptions options = {.workers = 3})
      : cluster(std::move(options)) {
    cluster.RunFor(4000);  // settled
    job = cluster.Submit(spec);
    cluster.RunFor(3000);
    cluster.Kill(2);
    cluster.RunFor(5000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(cluster.Saved(job).plan().stages_size(), 2);
  }

  SimulatedCluster cluster;
  std::string job;
};

TEST(Growth, WorkerIsBack_TheJobGoesOnWithAsManyFromItsNextCut) {
  for (const int32_t stages : {3, 0}) {  // 0: as many as there are workers
    SCOPED_TRACE(stages);
    v1::JobSpec spec = GrowingJob(300, stages);
    if (stages > 0) {
      for (const int layers : {1, 2, 4}) spec.mutable_pipeline()->add_stage_layers(layers);
      PredictOnEqualWorkers(spec, 0.1);
    }
    Shrunk shrunk(spec);
    SimulatedCluster& cluster = shrunk.cluster;
    EXPECT_EQ(cluster.Saved(shrunk.job).full_crew().workers_size(), 3);
    EXPECT_FALSE(cluster.Saved(shrunk.job).spec().has_prediction());
    cluster.Restart(2);
    cluster.RunFor(4000);
    const v1::GetJobResponse& saved = cluster.Saved(shrunk.job);
    EXPECT_THAT(WorkersOf(saved), ElementsAre("w0", "w1", "w2"));
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    ExpectGoodEnd(cluster, shrunk.job, 300);
    EXPECT_THAT(CausesOf(saved), ElementsAre(v1::ATTEMPT_CAUSE_WORKER_LOST, v1::ATTEMPT_CAUSE_GREW,
                                             v1::ATTEMPT_CAUSE_UNSPECIFIED));
    const v1::Attempt& fewer = saved.result().attempts(1);
    EXPECT_EQ(fewer.last_step() % 20, 0);
    EXPECT_EQ(fewer.steps_redone(), 0);
    EXPECT_EQ(fewer.message(), "goes on with 3 workers again");
    EXPECT_LT(fewer.resumed_ms() - fewer.detected_ms(), 100);
    EXPECT_EQ(saved.result().growths(), 1);
    EXPECT_EQ(saved.result().recoveries(), 1);
    EXPECT_EQ(saved.result().extra_cuts_size(), 0) << "it ended at a cut of its own";
    EXPECT_THAT(cluster.Logs(shrunk.job),
                Contains("goes on with 3 workers again instead of 2, from its next cut"));
    if (stages > 0) {
      EXPECT_THAT(saved.spec().pipeline().stage_layers(), ElementsAre(1, 2, 4));
      EXPECT_TRUE(saved.spec().has_prediction());
    }
  }
}

TEST(Growth, OtherJobWaits_ItComesFirst) {
  Shrunk shrunk(GrowingJob(400, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  const std::string other = cluster.Submit(SmallJob(100, 1));
  cluster.Restart(2);
  cluster.RunFor(6000);
  EXPECT_EQ(cluster.Summary(other).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  cluster.RunFor(10'000);
  EXPECT_EQ(cluster.Summary(other).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 3);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ExpectGoodEnd(cluster, shrunk.job, 400);
}

// The other waits for more workers than are free, so that none is taken from it.
TEST(Growth, OtherJobWaitsForMore_TheJobStaysAsItIs) {
  Shrunk shrunk(GrowingJob(200, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  const std::string other = cluster.Submit(SmallJob(10, 2));
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  EXPECT_EQ(cluster.Summary(other).state(), v1::JOB_STATE_SUCCEEDED);
  ExpectGoodEnd(cluster, shrunk.job, 200);
}

TEST(Growth, WorkerThatWasToBlameTwice_IsNoReasonToGrow) {
  Shrunk shrunk(GrowingJob(1500, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  cluster.Restart(2);
  ASSERT_TRUE(
      cluster.RunUntil([&] { return cluster.Saved(shrunk.job).plan().stages_size() == 3; }));
  cluster.RunFor(3000);
  cluster.Kill(2);
  cluster.RunFor(4000);
  ASSERT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  cluster.Restart(2);
  cluster.RunFor(90'000);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  EXPECT_EQ(cluster.Saved(shrunk.job).result().growths(), 1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ExpectGoodEnd(cluster, shrunk.job, 1500);
}

// A worker that was to blame twice is no reason to grow; another is, after the pause.
TEST(Growth, LostAgainSoonAfter_AnotherWorkerJoinsAfterAWhile) {
  Shrunk shrunk(GrowingJob(1500, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  cluster.Restart(2);
  ASSERT_TRUE(
      cluster.RunUntil([&] { return cluster.Saved(shrunk.job).plan().stages_size() == 3; }));
  cluster.RunFor(3000);
  cluster.Kill(1);
  cluster.RunFor(4000);
  ASSERT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  cluster.Restart(1);
  cluster.RunFor(50'000);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  cluster.RunFor(10'000);
  EXPECT_THAT(WorkersOf(cluster.Saved(shrunk.job)), ElementsAre("w0", "w1", "w2"));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ExpectGoodEnd(cluster, shrunk.job, 1500);
}

// What is wrong with a worker that joins does not cost the job more than a start.
TEST(Growth, WorkerThatJoinsCannotPrepare_TheJobGoesOnWithoutIt) {
  Shrunk shrunk(GrowingJob(300, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  cluster.cannot_prepare[2] = absl::NotFoundError("a.txt is not there");
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  ExpectGoodEnd(cluster, shrunk.job, 300);
  const v1::GetJobResponse& saved = cluster.Saved(shrunk.job);
  EXPECT_THAT(CausesOf(saved),
              ElementsAre(v1::ATTEMPT_CAUSE_WORKER_LOST, v1::ATTEMPT_CAUSE_GREW,
                          v1::ATTEMPT_CAUSE_RUN_FAILED, v1::ATTEMPT_CAUSE_UNSPECIFIED));
  EXPECT_THAT(WorkersOf(saved), ElementsAre("w0", "w1"));
  const v1::Attempt& failed = saved.result().attempts(2);
  EXPECT_LT(failed.resumed_ms() - failed.detected_ms(), 1500) << "it did not wait for a third";
  EXPECT_THAT(cluster.Logs(shrunk.job),
              Contains("goes back to 2 workers, for no step was done with more"));
}

TEST(Growth, WorkerThatIsToJoinIsLostOrLeavesMeanwhile_TheJobGoesOnAsItWas) {
  for (const bool leaves : {false, true}) {
    SCOPED_TRACE(leaves);
    Shrunk shrunk(GrowingJob(300, 3), {.workers = 3, .attached = true});
    SimulatedCluster& cluster = shrunk.cluster;
    cluster.Restart(2);
    ASSERT_TRUE(cluster.RunUntil([&] {
      const std::vector<std::string> logs = cluster.Logs(shrunk.job);
      return std::any_of(logs.begin(), logs.end(), [](const std::string& log) {
        return log.find("from its next cut") != std::string::npos;
      });
    }));
    leaves ? cluster.Leave(2) : cluster.Kill(2);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    ExpectGoodEnd(cluster, shrunk.job, 300);
    EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
    const v1::JobResult& result = cluster.Saved(shrunk.job).result();
    EXPECT_EQ(result.growths(), 0);
    EXPECT_EQ(result.attempts(1).cause(), v1::ATTEMPT_CAUSE_GREW);
    EXPECT_EQ(result.attempts(1).worker(), "w2");
    EXPECT_THAT(result.attempts(1).message(), HasSubstr("worker w2 was to join and is gone"));
  }
}

// It would drain at each cut for a worker that never stays.
TEST(Growth, WorkerThatComesAndGoes_IsNoReasonToDrainAgain) {
  Shrunk shrunk(GrowingJob(900, 3), {.workers = 3, .attached = true});
  SimulatedCluster& cluster = shrunk.cluster;
  for (int64_t ms = 12'500; ms < 60'000; ms += 4000) {
    cluster.At(ms, [&] { cluster.Restart(2); });
    cluster.At(ms + 900, [&] { cluster.Kill(2); });
  }
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  ExpectGoodEnd(cluster, shrunk.job, 900);
  EXPECT_LE(cluster.Saved(shrunk.job).result().attempts_size(), 4);
}

// What several that join say of the job is said of them.
TEST(Growth, TwoThatJoinCannotPrepare_TheJobGoesOnWithoutThem) {
  SimulatedCluster cluster({.workers = 4});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(GrowingJob(300, 4));
  cluster.RunFor(3000);
  cluster.Kill(2);
  cluster.Kill(3);
  cluster.RunFor(7000);
  ASSERT_EQ(cluster.Saved(job).plan().stages_size(), 2);
  for (const int worker : {2, 3}) {
    cluster.cannot_prepare[worker] = absl::NotFoundError("a.txt is not there");
    cluster.Restart(worker);
  }
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  ExpectGoodEnd(cluster, job, 300);
  EXPECT_EQ(cluster.Saved(job).result().growths(), 0);
  EXPECT_THAT(CausesOf(cluster.Saved(job)), Contains(v1::ATTEMPT_CAUSE_GREW));
  EXPECT_THAT(cluster.Logs(job),
              Contains("goes back to 2 workers, for no step was done with more"));
}

// Its failures end it, and a worker that joins may fail.
TEST(Growth, JobThatDoesNotRecover_StaysAsItIs) {
  SimulatedClusterOptions options{.workers = 3};
  options.limits.run.return_timeout_ms = 5000;
  SimulatedCluster cluster(options);
  cluster.RunFor(4000);
  v1::JobSpec spec = GrowingJob(300, 0);
  spec.mutable_recovery()->set_mode("off");
  const std::string job = cluster.Submit(spec);
  cluster.RunFor(2000);
  cluster.Leave(2);
  cluster.RunFor(10'000);
  ASSERT_EQ(cluster.Saved(job).plan().stages_size(), 2);
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).plan().stages_size(), 2);
}

// The workers are held two steps before the cut, which is longer than a drain may take.
TEST(Growth, LongSteps_TheDrainHasTimeForThem) {
  SimulatedCluster cluster({.workers = 3, .step_ms = 70'000});
  cluster.RunFor(10);
  v1::JobSpec spec = GrowingJob(30, 3);
  spec.mutable_checkpoint()->set_every_steps(5);
  const std::string job = cluster.Submit(spec);
  cluster.RunFor(400'000);
  cluster.Kill(2);
  cluster.RunFor(10'000);
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilOver(10'000'000));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(CausesOf(cluster.Saved(job)),
              ElementsAre(v1::ATTEMPT_CAUSE_WORKER_LOST, v1::ATTEMPT_CAUSE_GREW,
                          v1::ATTEMPT_CAUSE_UNSPECIFIED));
}

// What it did since its last checkpoint would be lost.
TEST(Growth, CheckpointsCannotBeSavedForAWhile_TheJobWaitsUntilTheyCan) {
  Shrunk shrunk(GrowingJob(600, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  cluster.disk_full = true;
  cluster.RunFor(4000);
  cluster.Restart(2);
  cluster.RunFor(10'000);
  EXPECT_EQ(cluster.Summary(shrunk.job).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cluster.Saved(shrunk.job).result().attempts_size(), 2);
  cluster.disk_full = false;
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ExpectGoodEnd(cluster, shrunk.job, 600);
  EXPECT_THAT(CausesOf(cluster.Saved(shrunk.job)),
              ElementsAre(v1::ATTEMPT_CAUSE_WORKER_LOST, v1::ATTEMPT_CAUSE_GREW,
                          v1::ATTEMPT_CAUSE_UNSPECIFIED));
}

TEST(Growth, CheckpointCannotBeSaved_TheJobGoesOnAsItWasAndWaits) {
  Shrunk shrunk(GrowingJob(900, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  cluster.disk_full = true;
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilState(shrunk.job, v1::JOB_STATE_RECOVERING));
  cluster.disk_full = false;
  cluster.RunFor(30'000);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  EXPECT_THAT(cluster.Saved(shrunk.job).result().attempts(1).message(),
              AllOf(HasSubstr("drained for more workers"), HasSubstr("No space left")));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ExpectGoodEnd(cluster, shrunk.job, 900);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 3);
}

TEST(Growth, CoordinatorIsRestarted_TheJobStillGrows) {
  Shrunk shrunk(GrowingJob(400, 3));
  SimulatedCluster& cluster = shrunk.cluster;
  cluster.RestartCoordinator();
  cluster.RunFor(8000);
  ASSERT_EQ(cluster.Summary(shrunk.job).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 2);
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  ExpectGoodEnd(cluster, shrunk.job, 400);
  EXPECT_EQ(cluster.Saved(shrunk.job).plan().stages_size(), 3);
}

TEST(Growth, CancelledAtAnyMoment_EndsAndFreesItsWorkers) {
  for (int64_t after_ms = 0; after_ms < 4000; after_ms += 50) {
    SCOPED_TRACE(after_ms);
    Shrunk shrunk(GrowingJob(300, 3), {.workers = 3, .delay_ms_min = 5, .delay_ms_max = 5});
    SimulatedCluster& cluster = shrunk.cluster;
    cluster.Restart(2);
    cluster.RunFor(after_ms);
    ASSERT_THAT(cluster.coordinator().CancelJob(shrunk.job, cluster.now()), IsOk());
    cluster.PerformEffects();
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    cluster.RunFor(1000);
    EXPECT_EQ(cluster.Summary(shrunk.job).state(), v1::JOB_STATE_CANCELLED);
    EXPECT_THAT(cluster.StillTraining(), IsEmpty());
    EXPECT_THAT(cluster.violations(), IsEmpty());
    EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty());
  }
}

TEST(Growth, AnyWorkerKilledOrTheCoordinatorAtAnyMoment_TheJobSucceeds) {
  for (int victim = 0; victim < 4; ++victim) {  // 3: the coordinator
    for (int64_t after_ms = 0; after_ms < 4000; after_ms += 110) {
      SCOPED_TRACE(testing::Message() << victim << " after " << after_ms << " ms");
      Shrunk shrunk(GrowingJob(300, 3), {.workers = 3, .delay_ms_min = 5, .delay_ms_max = 5});
      SimulatedCluster& cluster = shrunk.cluster;
      cluster.Restart(2);
      cluster.RunFor(after_ms);
      victim < 3 ? cluster.Kill(victim) : cluster.RestartCoordinator();
      cluster.RunFor(5000);
      if (victim < 3) cluster.Restart(victim);
      ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
      ExpectGoodEnd(cluster, shrunk.job, 300);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Another number of stages is another training with it.
TEST(Growth, MethodWithLateGradients_StaysAsItIs) {
  SimulatedClusterOptions options{.workers = 3};
  options.limits.run.return_timeout_ms = 5000;
  SimulatedCluster cluster(options);
  cluster.RunFor(4000);
  v1::JobSpec spec = GrowingJob(300, 0);
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  const std::string job = cluster.Submit(spec);
  cluster.RunFor(2000);
  cluster.Leave(2);
  cluster.RunFor(10'000);
  ASSERT_EQ(cluster.Saved(job).plan().stages_size(), 2);
  cluster.Restart(2);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Saved(job).plan().stages_size(), 2);
  EXPECT_THAT(cluster.Logs(job), Not(Contains(HasSubstr("workers again"))));
  ExpectGoodEnd(cluster, job, 300);
}

}  // namespace
}  // namespace penstock
