// A worker that becomes slow: when it is named, and what becomes of its layers.
#include "coordinator/straggler_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "tests/coordinator/simulated_cluster.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr int64_t kNsPerSecond = 1'000'000'000;

// Stages by worker; each has two layers.
v1::Plan PlanOf(const std::vector<std::vector<int32_t>>& stages) {
  std::map<int32_t, v1::StageAssignment> by_stage;
  for (size_t worker = 0; worker < stages.size(); ++worker) {
    for (const int32_t stage : stages[worker]) {
      v1::StageAssignment& assigned = by_stage[stage];
      assigned.set_stage(stage);
      assigned.set_worker_index(static_cast<int32_t>(worker));
      assigned.set_worker(absl::StrCat("w", worker));
      assigned.set_first_layer(2 * stage);
      assigned.set_layers(2);
    }
  }
  v1::Plan plan;
  for (const auto& [stage, assigned] : by_stage) *plan.add_stages() = assigned;
  return plan;
}

// A run whose workers report every 5 s, after a number of passes of each kind and stage.
class WatchedRun {
 public:
  explicit WatchedRun(const v1::Plan& plan) { Begin(plan); }

  // An attempt begins: the workers' counts begin again.
  void Begin(const v1::Plan& plan) {
    plan_ = plan;
    totals_.clear();
    watch_.Begin(plan);
    Window({});  // the first reports are where the first window begins
  }

  // Goes on by `seconds` of passes that take this many ms, by worker; of one that is left out there are none. Returns the
  // news, "w1 is slow" or "w1 is back".
  std::vector<std::string> Window(const std::vector<double>& pass_ms, int64_t passes = 100,
                                  double seconds = 5.0) {
    now_ns_ += static_cast<int64_t>(seconds * static_cast<double>(kNsPerSecond));
    std::vector<StageReports> reports;
    for (const v1::StageAssignment& stage : plan_.stages()) {
      const auto worker = static_cast<size_t>(stage.worker_index());
      Totals& totals = totals_[stage.stage()];
      if (worker < pass_ms.size() && pass_ms[worker] > 0) {
        totals.passes += passes;
        totals.seconds += 1e-3 * static_cast<double>(passes) * pass_ms[worker];
      }
      reports.resize(std::max(reports.size(), worker + 1));
      v1::StageReport& report = *reports[worker].Add();
      report.set_stage(stage.stage());
      // A backward takes twice as long as a forward. Updates are not looked at.
      for (const auto& [action, times] : {std::pair{"F", 1.0}, {"I", 2.0}, {"W", 2.0}}) {
        v1::ActionTime& time = *report.add_actions();
        time.set_action(action);
        time.set_count(totals.passes);
        time.set_seconds(times * totals.seconds);
      }
      v1::ActionTime& update = *report.add_actions();
      update.set_action("UPDATE");
      update.set_count(totals.passes);
      update.set_seconds(static_cast<double>(totals.passes * totals.passes));
    }
    std::vector<std::string> news;
    for (const StragglerWatch::News& turn : watch_.OnReports(reports, {.monotonic_ns = now_ns_})) {
      news.push_back(absl::StrCat("w", turn.worker, turn.is_slow ? " is slow" : " is back"));
      text_ = turn.text;
    }
    return news;
  }

  // Windows without news.
  void Windows(int windows, const std::vector<double>& pass_ms) {
    for (int i = 0; i < windows; ++i) ASSERT_THAT(Window(pass_ms), IsEmpty()) << i;
  }

  StragglerWatch& watch() { return watch_; }
  // Of the last news.
  const std::string& text() const { return text_; }

 private:
  struct Totals {
    int64_t passes = 0;
    double seconds = 0;
  };
  StragglerWatch watch_;
  v1::Plan plan_;
  std::map<int32_t, Totals> totals_;  // by stage
  int64_t now_ns_ = 0;
  std::string text_;
};

TEST(StragglerWatch, OneSlow_IsNamedAfterTwoWindowsAndIsBackAfterSix) {
  WatchedRun run(PlanOf({{0}, {1}, {2}}));
  run.Windows(5, {10, 20, 30});
  EXPECT_THAT(run.Window({10, 100, 33}), IsEmpty()) << "one window says nothing";
  EXPECT_THAT(run.Window({10, 100, 33}), ElementsAre("w1 is slow"));
  // F of 100 ms, I and W of 200.
  EXPECT_EQ(run.text(),
            "is slow: a pass takes 167 ms in the mean, 5.00 times as long as before; those of the "
            "other workers take 1.00 to 1.10 times as long");
  EXPECT_THAT(run.watch().SlowRatios(),
              ElementsAre(Pair("w0", DoubleNear(1.0, 1e-9)), Pair("w1", DoubleNear(5.0, 1e-9)),
                          Pair("w2", DoubleNear(1.1, 1e-9))));
  run.Windows(200, {10, 100, 30});
  run.Windows(5, {10, 22, 30});
  EXPECT_THAT(run.Window({10, 22, 30}), ElementsAre("w1 is back"));
  EXPECT_EQ(run.text(),
            "is no longer slow: a pass takes 36.7 ms in the mean, 1.10 times as long as "
            "before");
}

TEST(StragglerWatch, AllSlow_NobodyIsNamed) {
  WatchedRun run(PlanOf({{0}, {1}, {2}}));
  run.Windows(5, {10, 20, 30});
  run.Windows(50, {30, 66, 81});
  // Beside all others, one is.
  EXPECT_THAT(run.Window({30, 66, 900}), IsEmpty());
  EXPECT_THAT(run.Window({30, 66, 900}), ElementsAre("w2 is slow"));
}

TEST(StragglerWatch, TwoOfThreeSlow_BothAreNamed) {
  WatchedRun run(PlanOf({{0}, {1}, {2}}));
  run.Windows(5, {10, 20, 30});
  run.Windows(1, {10, 100, 150});
  EXPECT_THAT(run.Window({10, 100, 150}), ElementsAre("w1 is slow", "w2 is slow"));
}

TEST(StragglerWatch, WorkerThatTrainsAlone_IsHeldAgainstItself) {
  WatchedRun run(PlanOf({{0, 1}}));
  run.Windows(5, {10});
  run.Windows(1, {16});
  EXPECT_THAT(run.Window({16}), ElementsAre("w0 is slow"));
  EXPECT_THAT(run.text(), Not(HasSubstr("other")));
}

TEST(StragglerWatch, SpikesOfOneWindow_SayNothing) {
  WatchedRun run(PlanOf({{0}, {1}}));
  run.Windows(5, {10, 20});
  for (int i = 0; i < 50; ++i) {
    run.Windows(1, {10, 400});
    run.Windows(1, {10, 20});
  }
}

TEST(StragglerWatch, SwingsAboutABound_AreToldOnce) {
  WatchedRun run(PlanOf({{0}, {1}}));
  run.Windows(10, {10, 20});
  run.Windows(1, {10, 31});
  EXPECT_THAT(run.Window({10, 31}), ElementsAre("w1 is slow"));
  for (int i = 0; i < 50; ++i) run.Windows(1, {10, i % 2 == 0 ? 29.0 : 31.0});
  for (int i = 0; i < 50; ++i) run.Windows(1, {10, i % 2 == 0 ? 24.0 : 26.0});
  for (int i = 0; i < 50; ++i) run.Windows(1, {10, i % 6 == 0 ? 100.0 : 20.0});
}

TEST(StragglerWatch, LittleByLittle_IsWhatItTakesBefore) {
  WatchedRun run(PlanOf({{0}, {1}}));
  double pass_ms = 20;
  for (int i = 0; i < 2000; ++i, pass_ms *= 1.001) run.Windows(1, {10, pass_ms});
}

TEST(StragglerWatch, SeveralStages_CountTogether) {
  WatchedRun run(PlanOf({{0, 3}, {1, 2}}));
  run.Windows(5, {10, 20});
  run.Windows(1, {51, 20});
  EXPECT_THAT(run.Window({51, 20}), ElementsAre("w0 is slow"));
  EXPECT_THAT(run.text(), HasSubstr("5.10 times"));
}

TEST(StragglerWatch, FewPasses_MakeAWindowOnlyTogether) {
  WatchedRun run(PlanOf({{0}, {1}}));
  for (int i = 0; i < 8; ++i) ASSERT_THAT(run.Window({1000, 1000}, /*passes=*/1), IsEmpty());
  // Three kinds of pass in 5 s are too few. Of six there are enough.
  EXPECT_THAT(run.Window({1000, 5000}, 1), IsEmpty());
  EXPECT_THAT(run.Window({1000, 5000}, 1), IsEmpty());
  EXPECT_THAT(run.Window({1000, 5000}, 1), IsEmpty());
  EXPECT_THAT(run.Window({1000, 5000}, 1), ElementsAre("w1 is slow"));
  // Answers that come too early, and workers that wait or do not answer.
  WatchedRun early(PlanOf({{0}, {1}}));
  early.Windows(5, {10, 20});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(early.Window({10, 100}, 100, 2.0), IsEmpty());
  for (int i = 0; i < 10; ++i) EXPECT_THAT(early.Window({10}), IsEmpty());
  EXPECT_THAT(early.Window({10, 100}), ElementsAre("w1 is slow"));
}

TEST(StragglerWatch, WorkerThatJoins_IsJudgedOnceItHasShownWhatItTakes) {
  WatchedRun run(PlanOf({{0}, {1}}));
  run.Windows(5, {10, 20});
  run.Begin(PlanOf({{0}, {1}, {2}}));
  EXPECT_THAT(run.watch().SlowRatios(),
              ElementsAre(Pair("w0", 1.0), Pair("w1", 1.0), Pair("w2", 1.0)));
  run.Windows(3, {10, 20, 30});
  run.Windows(1, {10, 20, 90});
  EXPECT_THAT(run.Window({10, 20, 90}), ElementsAre("w2 is slow"));
}

TEST(StragglerWatch, AnotherAttemptOnTheSameStages_GoesOn) {
  WatchedRun run(PlanOf({{0}, {1}}));
  run.Windows(5, {10, 20});
  run.Begin(PlanOf({{0}, {1}}));
  run.Windows(1, {10, 100});
  EXPECT_THAT(run.Window({10, 100}), ElementsAre("w1 is slow"));
  run.Begin(PlanOf({{0}, {1}}));
  run.Windows(5, {10, 20});
  EXPECT_THAT(run.Window({10, 20}), ElementsAre("w1 is back"));
}

// Its layers were moved, so what its passes take now is not what they took. It was five times as slow.
TEST(StragglerWatch, SlowWorkerWithOtherLayers_IsToldWhenItIsBack) {
  WatchedRun run(PlanOf({{0}, {1}}));
  run.Windows(5, {10, 20});
  run.Windows(1, {10, 100});
  EXPECT_THAT(run.Window({10, 100}), ElementsAre("w1 is slow"));
  v1::Plan plan = PlanOf({{0}, {1}});
  plan.mutable_stages(0)->set_layers(3);
  plan.mutable_stages(1)->set_first_layer(3);
  plan.mutable_stages(1)->set_layers(1);
  run.Begin(plan);
  run.Windows(20, {15, 50});
  EXPECT_THAT(run.watch().SlowRatios(), Contains(Pair("w1", DoubleNear(5.0, 1e-9))));
  run.Windows(5, {15, 10});
  EXPECT_THAT(run.Window({15, 10}), ElementsAre("w1 is back"));
  run.Windows(20, {15, 10});
  run.Windows(1, {15, 50});
  EXPECT_THAT(run.Window({15, 50}), ElementsAre("w1 is slow"));
}

TEST(StragglerWatch, Recent_HasTheTimesSinceTheLastWindowBegan) {
  WatchedRun run(PlanOf({{0}, {1}}));
  run.Windows(5, {10, 20});
  run.Window({10, 100});
  run.Window({10, 100});
  const StageReports recent = run.watch().Recent();
  ASSERT_EQ(recent.size(), 2);
  EXPECT_NEAR(recent[0].actions(0).median_seconds(), 0.010, 1e-9);
  EXPECT_NEAR(recent[1].actions(0).median_seconds(), 0.100, 1e-9);
  EXPECT_NEAR(recent[1].actions(1).median_seconds(), 0.200, 1e-9);
}

TEST(StragglerWatch, ReportsThatCannotBe_BeginAgain) {
  StragglerWatch watch;
  watch.Begin(PlanOf({{0}}));
  int64_t now_ns = 0;
  const auto report = [&](int64_t count, double seconds) {
    std::vector<StageReports> reports(1);
    v1::ActionTime& time = *reports[0].Add()->add_actions();
    time.set_action("F");
    time.set_count(count);
    time.set_seconds(seconds);
    now_ns += 5 * kNsPerSecond;
    return watch.OnReports(reports, {.monotonic_ns = now_ns}).size();
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(report(100 * i, i), 0u);
  EXPECT_EQ(report(0, 0), 0u) << "its counts went back";
  EXPECT_EQ(report(100, std::numeric_limits<double>::quiet_NaN()), 0u);
  EXPECT_EQ(report(200, std::numeric_limits<double>::infinity()), 0u);
  EXPECT_EQ(report(300, -1), 0u);
  EXPECT_EQ(report(400, 0), 0u);
  EXPECT_EQ(report(500, 1), 0u);
  EXPECT_DOUBLE_EQ(watch.SlowRatios()["w0"], 1.0);
}

// Means of windows that lie 30 % apart from each other.
TEST(StragglerWatch, ManyRunsOfNoise_NameNobody) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, 1);
    const auto noisy = [&](double ms) { return ms * (0.85 + 0.003 * random.Below(101)); };
    WatchedRun run(PlanOf({{0}, {1}, {2}, {3}}));
    for (int i = 0; i < 200; ++i) {
      ASSERT_THAT(run.Window({noisy(10), noisy(20), noisy(30), noisy(40)}), IsEmpty()) << seed;
    }
  }
}

// ------------------------------------------------------------------------------------ whole jobs

// 7 layers on three workers, split 2-2-3; a pass takes 1 ms a layer, so a step of 4 microbatches 36 ms.
v1::JobSpec WatchedJob(int64_t steps) {
  v1::JobSpec spec = SmallJob(steps, 3);
  for (const int layers : {2, 2, 3}) spec.mutable_pipeline()->add_stage_layers(layers);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  return spec;
}

// On two workers, split 3-4: a step of 48 ms.
v1::JobSpec PredictedJob(const std::string& replan) {
  v1::JobSpec spec = SmallJob(20'000, 2);
  for (const int layers : {3, 4}) spec.mutable_pipeline()->add_stage_layers(layers);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(10'000);
  PredictOnEqualWorkers(spec, 0.048);
  spec.mutable_feedback()->set_replan(replan);
  return spec;
}

std::vector<std::string> OfSlowness(std::vector<std::string> logs) {
  std::erase_if(logs,
                [](const std::string& log) { return log.find(" slow") == std::string::npos; });
  return logs;
}

TEST(Straggler, BecomesSlow_IsNamedWithin30SecondsAndToldWhenItIsBack) {
  for (int slow = 0; slow < 3; ++slow) {
    SimulatedCluster cluster({.workers = 3, .pass_ms = {1, 1, 1}});
    cluster.RunFor(10);
    const std::string job = cluster.Submit(WatchedJob(20'000));
    cluster.RunFor(60'000);
    EXPECT_THAT(cluster.Logs(job), IsEmpty());
    cluster.SetPassMs(slow, 5);
    cluster.RunFor(30'000);
    EXPECT_THAT(OfSlowness(cluster.Logs(job)),
                ElementsAre(AllOf(
                    HasSubstr(absl::StrCat("worker w", slow, " (stage ", slow, ") is slow")),
                    HasSubstr("5.00 times as long as before"), HasSubstr("1.00 to 1.00 times"))));
    cluster.RunFor(30'000);
    cluster.SetPassMs(slow, 1);
    cluster.RunFor(45'000);
    EXPECT_THAT(
        OfSlowness(cluster.Logs(job)),
        ElementsAre(HasSubstr("is slow"), HasSubstr(absl::StrCat("worker w", slow, " (stage ", slow,
                                                                 ") is no longer slow"))));
    EXPECT_THAT(cluster.violations(), IsEmpty());
  }
}

// A job that recovers knows what its workers took before.
TEST(Straggler, BecomesSlowSoonAfterARecovery_IsNamed) {
  SimulatedCluster cluster({.workers = 3, .pass_ms = {1, 1, 1}});
  cluster.RunFor(10);
  v1::JobSpec spec = WatchedJob(4000);
  spec.mutable_checkpoint()->set_every_steps(100);
  const std::string job = cluster.Submit(spec);
  cluster.RunFor(60'000);
  cluster.FailRun(1, "a bit flipped");
  ASSERT_TRUE(cluster.RunUntil([&] { return cluster.Saved(job).epoch() > 1; }));
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  cluster.SetPassMs(2, 5);
  cluster.RunFor(30'000);
  EXPECT_THAT(OfSlowness(cluster.Logs(job)), ElementsAre(HasSubstr("worker w2 (stage 2) is slow")));
}

// No cut is near, and what the workers have told is enough.
TEST(Straggler, ReplanAuto_LayersAreMovedAndComeBack) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 1}});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(PredictedJob("auto"));
  cluster.RunFor(60'000);
  cluster.SetPassMs(1, 5);
  cluster.RunFor(30'000);
  EXPECT_THAT(cluster.Saved(job).spec().pipeline().stage_layers(), ElementsAre(6, 1))
      << absl::StrJoin(cluster.Logs(job), "\n");
  EXPECT_EQ(cluster.Saved(job).result().feedback().replans(), 1);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RUNNING);
  cluster.RunFor(60'000);
  cluster.SetPassMs(1, 1);
  cluster.RunFor(45'000);
  EXPECT_THAT(OfSlowness(cluster.Logs(job)),
              ElementsAre(HasSubstr("worker w1 (stage 1) is slow"),
                          HasSubstr("worker w1 (stage 1) is no longer slow")));
  EXPECT_EQ(cluster.Saved(job).result().feedback().replans(), 2)
      << absl::StrJoin(cluster.Logs(job), "\n");
  EXPECT_GT(cluster.Saved(job).spec().pipeline().stage_layers(1), 2);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(Straggler, ReplanNever_LayersStay) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 1}});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(PredictedJob("never"));
  cluster.RunFor(60'000);
  cluster.SetPassMs(1, 5);
  cluster.RunFor(60'000);
  EXPECT_THAT(OfSlowness(cluster.Logs(job)), ElementsAre(HasSubstr("worker w1 (stage 1) is slow")));
  EXPECT_EQ(cluster.Saved(job).result().feedback().replans(), 0);
}

TEST(Straggler, ManySeedsOfJitter_NameNobody) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedCluster cluster({.seed = seed,
                              .workers = 3,
                              .delay_ms_max = 50,
                              .loss_percent = 5,
                              .pass_ms = {1, 2, 1},
                              .pass_jitter_percent = 60,
                              .checks = false});
    const std::string job = cluster.Submit(WatchedJob(2000));
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << seed;
    EXPECT_THAT(OfSlowness(cluster.Logs(job)), IsEmpty()) << seed;
  }
}

TEST(Straggler, ManySeedsOfJitter_TheSlowOneIsNamed) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedCluster cluster({.seed = seed,
                              .workers = 3,
                              .delay_ms_max = 50,
                              .loss_percent = 5,
                              .pass_ms = {1, 2, 1},
                              .pass_jitter_percent = 60,
                              .checks = false});
    const std::string job = cluster.Submit(WatchedJob(20'000));
    cluster.RunFor(60'000 + 100 * static_cast<int64_t>(seed));
    const int slow = static_cast<int>(seed % 3);
    cluster.SetPassMs(slow, slow == 1 ? 10 : 5);
    cluster.RunFor(30'000);
    EXPECT_THAT(
        OfSlowness(cluster.Logs(job)),
        ElementsAre(HasSubstr(absl::StrCat("worker w", slow, " (stage ", slow, ") is slow"))))
        << seed;
  }
}

TEST(Straggler, WorkersThatTellNoTimes_AreNotNamed) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(WatchedJob(600));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.Logs(job), IsEmpty());
}

// A worker that tells of another's stage makes nobody slow.
TEST(Straggler, ReportsOfStagesOfOthers_CountForNothing) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 1}});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(PredictedJob("auto"));
  cluster.RunFor(60'000);
  v1::StageReport report;
  report.set_stage(0);
  v1::ActionTime& time = *report.add_actions();
  time.set_action("F");
  for (int i = 1; i <= 5; ++i) {
    time.set_count(1'000'000 * i);
    time.set_seconds(1e9 * i);
    PassesGathered gathered = {.epoch = cluster.Saved(job).epoch(), .stages = {{}, {}, {}}};
    for (int worker = 1; worker < 3; ++worker) *gathered.stages[worker].Add() = report;
    cluster.RunFor(6000);
    cluster.coordinator().OnAnswer(job, gathered, cluster.now());
    cluster.PerformEffects();
  }
  EXPECT_THAT(cluster.Logs(job), IsEmpty());
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

}  // namespace
}  // namespace penstock
