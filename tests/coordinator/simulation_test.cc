// Random histories: losses, duplicates, delays, crashes, restarts, freezes and cancels, by seed; and
// again with kills of the coordinator, and with reports that come late, twice and in disorder.
// After every event the invariants hold, and in the end every job is over and nobody trains any
// more. Whatever becomes of workers, a job with a checkpoint directory succeeds, unless it is cancelled, its checkpoints
// cannot be written, or it cannot be planned.
//
// PENSTOCK_SEED=N runs one seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/coordinator/simulated_cluster.h"

namespace penstock {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  std::map<v1::JobState, int> states;
  int64_t replans = 0;
  int64_t recoveries = 0;
  int64_t growths = 0;
  std::string transcript;
};

Outcome RunHistory(uint64_t seed, bool kills_coordinator) {
  RandomStream random(seed, 7);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random.Below(bound)); };
  SimulatedClusterOptions options{.seed = seed,
                                  .workers = static_cast<int>(1 + below(5)),
                                  .step_ms = 20 + below(100),
                                  .delay_ms_min = 1,
                                  .delay_ms_max = 1 + below(40),
                                  .loss_percent = static_cast<int>(below(15)),
                                  .duplicate_percent = static_cast<int>(below(20)),
                                  .commit_failure_percent = static_cast<int>(below(30)),
                                  .attached = seed % 4 != 0,
                                  .devices = {"cpu", "gpu"}};
  if (below(2) == 0) {  // one worker is slower than the others
    options.pass_ms.assign(options.workers, 1);
    options.pass_ms[below(options.workers)] = 2 + below(3);
  }
  if (kills_coordinator) {
    options.replay_percent = 10;
    options.overtaken_percent = 20;
  }
  SimulatedCluster cluster(options);
  std::vector<std::string> jobs;
  std::set<std::string> cancelled;
  // The jobs go on with fewer workers soon, and grow back when one returns.
  const bool grows = options.workers > 1 && below(8) == 0;
  const int64_t job_count = grows ? 1 + below(2) : 1 + below(4);
  for (int64_t i = 0; i < job_count; ++i) {
    // 0: as many as are free
    const int64_t stages = grows ? options.workers : below(4) == 0 ? 0 : 1 + below(options.workers);
    v1::JobSpec spec = SmallJob(1 + below(30), static_cast<int32_t>(stages));
    if (below(3) == 0) spec.mutable_planning()->set_split("measured");
    if (below(2) == 0) {
      constexpr const char* kDirectories[] = {"/a", "/a/", "/b", "/a/../b"};
      spec.mutable_checkpoint()->set_directory(kDirectories[below(4)]);
      spec.mutable_checkpoint()->set_every_steps(below(6));
      // There are few faults, but all may come before the first step.
      spec.mutable_recovery()->set_no_progress_max(50);
      spec.mutable_recovery()->set_restarts_max(50);
    }
    if (grows) {
      spec.mutable_checkpoint()->set_directory(i == 0 ? "/a" : "/b");
      spec.mutable_checkpoint()->set_every_steps(5 + below(20));
      spec.mutable_recovery()->set_wait_seconds(1 + below(3));
      spec.mutable_training()->set_steps(150 + below(200));
    }
    if (stages > 1 && spec.checkpoint().every_steps() > 0 && below(2) == 0) {
      PredictOnEqualWorkers(spec, 1e-3 * static_cast<double>(options.step_ms));
      spec.mutable_training()->set_steps(20 + below(30));
      spec.mutable_feedback()->set_drift_steps(1 + below(4));
      spec.mutable_feedback()->set_replan("auto");
    }
    const bool profiles = below(4) == 0;
    cluster.At(below(3000), [&cluster, &jobs, spec, profiles] {
      jobs.push_back(profiles ? cluster.SubmitProfile(spec, SmallProfile()) : cluster.Submit(spec));
    });
  }
  const int64_t faults = grows ? 1 + below(3) : below(4);
  for (int64_t i = 0; i < faults; ++i) {
    const int worker = static_cast<int>(below(options.workers));
    const int64_t at = below(8000);
    switch (grows && i == 0 ? 0 : below(7)) {
      case 0:
        cluster.At(at, [&cluster, worker] { cluster.Kill(worker); });
        cluster.At(at + (grows ? 6000 : 100) + below(6000),
                   [&cluster, worker] { cluster.Restart(worker); });
        break;
      case 1:
        cluster.At(at, [&cluster, worker] { cluster.Freeze(worker); });
        cluster.At(at + 100 + below(20000), [&cluster, worker] { cluster.Restart(worker); });
        break;
      case 2:
        cluster.At(at, [&cluster, worker] { cluster.FailRunIfTraining(worker, "went wrong"); });
        break;
      case 3:
      case 4:
      case 5:
        cluster.At(at / 2, [&cluster, worker] { cluster.Leave(worker); });
        cluster.At(at + 100 + below(20000), [&cluster, worker] { cluster.Restart(worker); });
        break;
      default:
        cluster.At(at, [&cluster, &jobs, &cancelled] {
          if (!jobs.empty()) {
            cancelled.insert(jobs.back());
            (void)cluster.coordinator().CancelJob(jobs.back(), cluster.now());
            cluster.PerformEffects();
          }
        });
    }
  }
  // A stream that breaks is no reason to lose a worker that lives.
  RandomStream breaks(seed, 8);
  for (uint64_t i = 0; i < 3; ++i) {
    const int worker = static_cast<int>(breaks.Below(options.workers));
    cluster.At(static_cast<int64_t>(breaks.Below(8000)),
               [&cluster, worker] { cluster.BreakStream(worker); });
  }
  const int64_t kills = kills_coordinator ? 1 + below(3) : 0;
  for (int64_t i = 0; i < kills; ++i) {
    const int64_t clock_ms = 3'600'000 * (below(3) - 1);
    const bool after_writing = below(2) == 0;
    cluster.At(below(8000), [&cluster, clock_ms, after_writing] {
      cluster.MoveWallClock(clock_ms);
      if (after_writing) return cluster.RestartCoordinatorAfterWriting();
      cluster.RestartCoordinator();
    });
  }
  cluster.RunFor(10'000);
  EXPECT_TRUE(cluster.RunUntilOver(1'000'000)) << cluster.transcript();
  cluster.RunFor(5'000);

  Outcome outcome;
  for (const std::string& job : jobs) {
    const v1::JobSummary summary = cluster.Summary(job);
    ++outcome.states[summary.state()];
    if (summary.state() == v1::JOB_STATE_FAILED && IsSaved(cluster.Saved(job)) &&
        cancelled.count(job) == 0) {
      EXPECT_THAT(summary.error(), AnyOf(HasSubstr("saved"), HasSubstr("cannot be planned"),
                                         HasSubstr("recovery.wait_seconds")))
          << job << "\n"
          << cluster.transcript();
    }
    outcome.recoveries += cluster.Saved(job).result().recoveries();
    outcome.replans += cluster.Saved(job).result().feedback().replans();
    outcome.growths += cluster.Saved(job).result().growths();
  }
  EXPECT_THAT(cluster.violations(), IsEmpty()) << cluster.transcript();
  EXPECT_THAT(cluster.StillTraining(), IsEmpty()) << cluster.transcript();
  EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty()) << cluster.transcript();
  for (const auto& [run, count] : cluster.starts()) {
    EXPECT_EQ(count, 1) << "worker " << run.first << " started " << run.second << " twice";
  }
  outcome.transcript = cluster.transcript();
  return outcome;
}

// Returns what `count` histories came to, all together; with PENSTOCK_SEED, one.
Outcome RunHistories(uint64_t count, bool kills_coordinator) {
  uint64_t first = 0;
  if (const char* seed = std::getenv("PENSTOCK_SEED"); seed != nullptr) {
    first = std::strtoull(seed, nullptr, 10);
    count = 1;
  }
  Outcome all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "PENSTOCK_SEED=" << seed);
    const Outcome outcome = RunHistory(seed, kills_coordinator);
    for (const auto& [state, jobs] : outcome.states) {
      all.states[state] += jobs;
    }
    all.replans += outcome.replans;
    all.recoveries += outcome.recoveries;
    all.growths += outcome.growths;
    if (testing::Test::HasFailure()) {
      break;
    }
  }
  return all;
}

// tests/simulation has many more, of a whole cluster.
constexpr uint64_t kHistories = 500;

bool RunsOneSeed() { return std::getenv("PENSTOCK_SEED") != nullptr; }

TEST(Simulation, RandomHistories_EndWithEveryJobOver) {
  Outcome all = RunHistories(kHistories, /*kills_coordinator=*/false);
  if (RunsOneSeed()) return;
  // The histories reach every way to end.
  EXPECT_GT(all.states[v1::JOB_STATE_SUCCEEDED], 125);
  EXPECT_GT(all.states[v1::JOB_STATE_FAILED], 25);
  EXPECT_GT(all.states[v1::JOB_STATE_CANCELLED], 12);
  EXPECT_GT(all.replans, 12);
  EXPECT_GT(all.recoveries, 12);
  EXPECT_GT(all.growths, 5);
}

TEST(Simulation, RandomHistoriesWithKillsOfTheCoordinator_EndWithEveryJobOver) {
  Outcome all = RunHistories(kHistories, /*kills_coordinator=*/true);
  if (RunsOneSeed()) return;
  EXPECT_GT(all.states[v1::JOB_STATE_SUCCEEDED], 125);
  EXPECT_GT(all.states[v1::JOB_STATE_FAILED], 25);
  EXPECT_GT(all.states[v1::JOB_STATE_CANCELLED], 5);
  EXPECT_GT(all.recoveries, 12);
  EXPECT_GT(all.growths, 5);
}

TEST(Simulation, SameSeed_HasTheSameHistory) {
  for (const uint64_t seed : {1, 17, 99}) {
    for (const bool kills : {false, true}) {
      EXPECT_EQ(RunHistory(seed, kills).transcript, RunHistory(seed, kills).transcript);
    }
  }
}

}  // namespace
}  // namespace penstock
