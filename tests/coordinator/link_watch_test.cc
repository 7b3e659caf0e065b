// Links between two workers that carry nothing, while both reach the coordinator.
#include "coordinator/link_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/effects.h"
#include "tests/coordinator/simulated_cluster.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSilentMs = LinkWatch::kLimitMs;

HeartbeatLog HeardAt(const std::vector<int64_t>& times_ms) {
  HeartbeatLog log;
  for (const int64_t time_ms : times_ms) log.OnHeartbeat(time_ms * kNsPerMs);
  return log;
}

bool IsDead(const std::vector<int64_t>& reporter_ms, const std::vector<int64_t>& peer_ms,
            int64_t silent_ms, int64_t now_ms) {
  return LinkWatch::IsDead(HeardAt(reporter_ms), HeardAt(peer_ms), silent_ms, now_ms * kNsPerMs);
}

TEST(LinkWatch, BothAreHeard_TheLinkIsDead) {
  EXPECT_TRUE(IsDead({9000, 9500, 10000}, {8700, 9200, 9700}, kSilentMs, 10000));
  EXPECT_FALSE(IsDead({9000, 9500, 10000}, {8700, 9200, 9700}, kSilentMs - 1, 10000));
  EXPECT_FALSE(IsDead({9000, 9500, 10000}, {7900, 9200, 9700}, kSilentMs, 10000))
      << "one of the peer's heartbeats came before it fell silent";
}

// Its heartbeats stay away, and one comes when it goes on.
TEST(LinkWatch, PeerIsOrWasFrozen_SaysNothing) {
  EXPECT_FALSE(IsDead({9000, 9500, 10000}, {6500, 7000, 7500}, 2500, 10000));
  EXPECT_FALSE(IsDead({9000, 9500, 10000}, {6500, 7000, 9990}, 2500, 10000));
}

// It believes that all others were silent.
TEST(LinkWatch, ReporterWasFrozen_SaysNothing) {
  EXPECT_FALSE(IsDead({6000, 6500, 10000}, {9000, 9500, 10000}, 3500, 10000));
}

TEST(LinkWatch, AbsurdTimes_OverflowNothing) {
  EXPECT_FALSE(IsDead({1, 2, 3}, {1, 2, 3}, INT64_MIN, 4));
  EXPECT_TRUE(IsDead({1, 2, 3}, {1, 2, 3}, INT64_MAX, 4));
}

std::vector<std::string> Placed(int64_t count, const std::set<PlacePair>& pairs,
                                const DeadLinks& dead, int64_t now_ns = 0) {
  std::vector<std::string> names;
  for (const WorkerOffer& worker :
       PlaceApart({{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}}, count, pairs, dead,
                  now_ns)) {
    names.push_back(worker.name);
  }
  return names;
}

TEST(PlaceApart, AnotherOrderOrASpare_IsTakenWhereALinkIsDead) {
  const std::set<PlacePair> chain = {{0, 1}, {1, 2}};
  const std::set<PlacePair> all = {{0, 1}, {0, 2}, {1, 2}};
  DeadLinks dead;
  EXPECT_THAT(Placed(3, chain, dead), ElementsAre("a", "b", "c"));
  dead.OnDead("b", "a", 0);
  EXPECT_THAT(Placed(3, chain, dead), ElementsAre("a", "c", "b"));
  EXPECT_THAT(Placed(3, all, dead), ElementsAre("a", "c", "d"));
  EXPECT_THAT(Placed(2, {{0, 1}}, dead), ElementsAre("a", "c"));
  EXPECT_THAT(Placed(3, chain, dead, DeadLinks::kWhileMs * kNsPerMs), ElementsAre("a", "b", "c"))
      << "it is tried again after a while";
}

TEST(PlaceApart, NoOrderDoes_LeavesThemAsTheyAre) {
  DeadLinks dead;
  for (const char* other : {"b", "c", "d"}) dead.OnDead("a", other, 0);
  EXPECT_THAT(Placed(4, {{0, 1}, {1, 2}, {2, 3}}, dead), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(Placed(3, {{0, 1}, {1, 2}}, dead), ElementsAre("b", "c", "d"));
}

// Submits the job, and returns its ID once it trains.
std::string Running(SimulatedCluster& cluster, const v1::JobSpec& spec) {
  cluster.RunFor(10);
  std::string job = cluster.Submit(spec);
  EXPECT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  return job;
}

// Runs a job of `stages` stages, and cuts the link between its first two workers in it.
v1::GetJobResponse RunWithDeadLink(int workers, int stages, int64_t cut_ms) {
  SimulatedCluster cluster({.workers = workers, .attached = true});
  const std::string job = Running(cluster, SavedJob(100, stages));
  cluster.RunFor(1000);
  cluster.CutLink(0, 1);
  const int64_t since_ms = cluster.now().unix_ms;
  cluster.RunFor(cut_ms);
  cluster.MendLink(0, 1);
  EXPECT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_THAT(cluster.violations(), IsEmpty());
  v1::GetJobResponse saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(saved.result().steps(), 100);
  for (const v1::Attempt& attempt : saved.result().attempts()) {
    EXPECT_EQ(attempt.worker(), "") << "no worker is to blame for a link";
    if (attempt.cause() == v1::ATTEMPT_CAUSE_UNSPECIFIED) continue;
    EXPECT_EQ(attempt.cause(), v1::ATTEMPT_CAUSE_UNREACHABLE);
    EXPECT_THAT(attempt.message(),
                AllOf(HasSubstr("the link between workers"), HasSubstr("is dead")));
  }
  const v1::Attempt& first = saved.result().attempts(0);
  EXPECT_LE(first.detected_ms() - since_ms, 3000);
  if (stages < workers || stages > 2) {
    EXPECT_LE(first.resumed_ms() - since_ms, 4000);
  }
  return saved;
}

TEST(DeadLink, Spare_TakesThePlaceOfOneOfTheTwo) {
  const v1::GetJobResponse job = RunWithDeadLink(3, 2, /*cut_ms=*/60'000);
  EXPECT_EQ(job.result().attempts_size(), 2);
  EXPECT_THAT(WorkersOf(job), ElementsAre("w0", "w2"));
}

TEST(DeadLink, ThreeStages_AreNoNeighboursAnyMore) {
  const v1::GetJobResponse job = RunWithDeadLink(3, 3, /*cut_ms=*/60'000);
  EXPECT_EQ(job.result().attempts_size(), 2);
  EXPECT_THAT(WorkersOf(job), ElementsAre("w0", "w2", "w1"));
}

TEST(DeadLink, NobodyElse_TheJobGoesOnWhenItIsMended) {
  const v1::GetJobResponse job = RunWithDeadLink(2, 2, /*cut_ms=*/20'000);
  EXPECT_GE(job.result().attempts_size(), 2);
  EXPECT_THAT(WorkersOf(job), ElementsAre("w0", "w1"));
}

// The coordinator hears a worker that takes no calls, so that it does not answer when it is asked to stop.
TEST(DeadLink, OfAWorkerThatTakesNoCalls_SpareTakesItsPlaceAtOnce) {
  SimulatedCluster cluster({.workers = 3, .attached = true});
  const std::string job = Running(cluster, SavedJob(100, 2));
  cluster.RunFor(1000);
  cluster.CutLink(0, 1);
  cluster.Deafen(1);
  const int64_t since_ms = cluster.now().unix_ms;
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::GetJobResponse saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(saved.result().attempts_size(), 2);
  EXPECT_THAT(WorkersOf(saved), ElementsAre("w0", "w2"));
  EXPECT_LE(saved.result().attempts(0).resumed_ms() - since_ms, 4000);
}

TEST(DeadLink, ForASecond_EndsNoAttempt) {
  SimulatedCluster cluster({.workers = 2, .attached = true});
  const std::string job = Running(cluster, SavedJob(100, 2));
  cluster.CutLink(0, 1);
  cluster.RunFor(1500);
  cluster.MendLink(0, 1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Saved(job).result().attempts_size(), 1);
}

// Its streams may come back in time, and end the run themselves if they do not.
TEST(DeadLink, JobThatDoesNotRecover_WaitsForTheLink) {
  SimulatedCluster cluster({.workers = 2, .attached = true});
  const std::string job = Running(cluster, SmallJob(100, 2));
  cluster.CutLink(0, 1);
  cluster.RunFor(4000);
  cluster.MendLink(0, 1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace penstock
