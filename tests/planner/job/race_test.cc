#include "planner/job/race.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Losses that fall like a power of the steps; counts what was asked of it.
class Falling {
 public:
  Falling(double exponent, int64_t steps_max = 1 << 20)
      : exponent_(exponent), steps_max_(steps_max) {}
  absl::StatusOr<std::vector<double>> TrainTo(int64_t steps) {
    EXPECT_GE(steps, trained);
    trained = std::min(steps, steps_max_);
    if (fails_after > 0 && trained > fails_after) {
      return absl::FailedPreconditionError("the loss is not finite");
    }
    std::vector<double> losses;
    for (int64_t step = 1; step <= trained; ++step) losses.push_back(LossAfter(step));
    return losses;
  }
  Racer With(double step_s) {
    return {.step_s = step_s, .train_to = [this](int64_t steps) { return TrainTo(steps); }};
  }
  double LossAfter(int64_t step) const { return std::pow(static_cast<double>(step), -exponent_); }

  int64_t trained = 0;
  int64_t fails_after = 0;

 private:
  const double exponent_;
  const int64_t steps_max_;
};

TEST(RunRace, SlowerStepsThatLearnMore_Win) {
  Falling fast(0.3);
  Falling wise(0.6);
  Falling slow(0.3);
  const RaceResult result =
      RunRace({fast.With(1.0), wise.With(1.5), slow.With(4.0)}, {.first_s = 60, .longest_s = 960});
  ASSERT_TRUE(result.winner.has_value());
  EXPECT_EQ(*result.winner, 1);
  // The slow one leaves after the first round, the fast one after the second.
  EXPECT_EQ(slow.trained, 15);
  EXPECT_EQ(fast.trained, 120);
  // Nobody was left to race a third round against.
  EXPECT_EQ(wise.trained, 160);
  EXPECT_EQ(result.racers[0].rounds, 2);
  EXPECT_EQ(result.racers[2].rounds, 1);
}

TEST(RunRace, LossToReach_IsTimedByTheStepsOfEach) {
  Falling quick(0.5);
  Falling heavy(1.0);
  const RaceResult result = RunRace({quick.With(1.0), heavy.With(8.0)},
                                    {.first_s = 100, .longest_s = 10'000, .until_loss = 0.1});
  // 0.1 takes the one 100 steps and more, the other 10 and more.
  ASSERT_TRUE(result.winner.has_value());
  EXPECT_EQ(*result.winner, 1);
  ASSERT_TRUE(result.racers[1].reached_s.has_value());
  EXPECT_GE(*result.racers[1].reached_s, 80.0);
  EXPECT_LE(*result.racers[1].reached_s, 100.0);
}

TEST(RunRace, NobodyReachesTheLoss_TheNearestWins) {
  Falling one(0.2);
  Falling two(0.3);
  const RaceResult result =
      RunRace({one.With(1.0), two.With(1.0)}, {.first_s = 10, .longest_s = 80, .until_loss = 1e-9});
  EXPECT_EQ(*result.winner, 1);
  EXPECT_FALSE(result.racers[1].reached_s.has_value());
  EXPECT_EQ(two.trained, 80);
}

TEST(RunRace, Failures_LeaveAndAllOfThemLeaveNoWinner) {
  Falling good(0.1);
  Falling bad(0.9);
  bad.fails_after = 5;
  const RaceOptions options = {.first_s = 10, .longest_s = 40};
  const RaceResult result = RunRace({bad.With(1.0), good.With(1.0)}, options);
  EXPECT_EQ(*result.winner, 1);
  EXPECT_THAT(result.racers[0].failed, HasSubstr("not finite"));
  EXPECT_FALSE(RunRace({bad.With(1.0)}, options).winner.has_value());
}

TEST(RunRace, LossError_IsThatOfTheMeanOfTheLastLosses) {
  const auto given = [](int64_t) { return std::vector<double>{9, 9, 9, 9, 1, 3, 1, 3}; };
  const RaceResult result =
      RunRace({{.step_s = 1, .train_to = given}}, {.first_s = 8, .longest_s = 8});
  EXPECT_DOUBLE_EQ(result.racers[0].loss, 2.0);
  // A deviation of sqrt(4 / 3) over sqrt(4).
  EXPECT_DOUBLE_EQ(result.racers[0].loss_error, std::sqrt(1.0 / 3.0));
}

TEST(RunRace, TimeThatIsOver_LetsWhoWasAheadWin) {
  Falling slow(0.1);
  Falling fast(0.5);
  Falling other(0.2);
  const std::vector<Racer> racers = {slow.With(1.0), fast.With(1.0), other.With(1.0)};
  int rounds = 0;
  const auto progress = [&](int round, int, int) { rounds = round; };
  const RaceResult second = RunRace(racers, {.first_s = 10,
                                             .longest_s = 1000,
                                             .is_over = [&] { return rounds == 1; },
                                             .progress = progress});
  EXPECT_FALSE(second.in_time);
  EXPECT_EQ(second.winner, 1);
  EXPECT_EQ(second.racers[1].rounds, 1);
  const RaceResult first =
      RunRace(racers, {.first_s = 2000, .longest_s = 2000, .is_over = [] { return true; }});
  EXPECT_FALSE(first.in_time);
  EXPECT_EQ(first.winner, 0);
}

TEST(RunRace, WhoIsOut_IsTold) {
  Falling first(0.5);
  Falling last(0.1);
  std::vector<int> left(2);
  std::vector<Racer> racers = {first.With(1.0), last.With(1.0)};
  for (size_t i = 0; i < racers.size(); ++i) racers[i].leave = [&left, i] { ++left[i]; };
  RunRace(racers, {.first_s = 10, .longest_s = 40});
  EXPECT_THAT(left, ElementsAre(0, 1));
}

TEST(RunRace, JobThatEnds_IsNotAskedForMore) {
  Falling brief(0.5, /*steps_max=*/30);
  Falling other(0.4, /*steps_max=*/30);
  const RaceResult result = RunRace({brief.With(1.0), other.With(1.0)},
                                    {.first_s = 20, .longest_s = 1'000, .until_loss = 1e-9});
  EXPECT_EQ(*result.winner, 0);
  EXPECT_EQ(result.racers[0].steps, 30);
}

TEST(RoundsOf, FirstAndLongest_FollowStepsWarmUpAndTheJobsLength) {
  JudgedCandidate fastest;
  fastest.step_s = 0.5;
  fastest.spec.mutable_training()->set_steps(400);
  EXPECT_EQ(RoundsOf(fastest).first_s, 10);    // 20 steps
  EXPECT_EQ(RoundsOf(fastest).longest_s, 50);  // 100 steps, a quarter of the job
  EXPECT_EQ(RoundsOf(fastest, 8).first_s, 4);  // no longer than the longest
  EXPECT_EQ(RoundsOf(fastest, 8).longest_s, 4);
  fastest.spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(30);
  EXPECT_EQ(RoundsOf(fastest).first_s, 45);  // three warm-ups
}

JudgedCandidate Running(const std::string& method) {
  JudgedCandidate judged;
  judged.candidate.method = method;
  return judged;
}

TEST(CandidatesToRace, ThoseThatTrainAlike_RaceOnce) {
  JobPlan plan;
  for (const char* method : {"paci", "zb-h2", "paci", "1f1b", "local-sgd", "rpd", "pipedream"}) {
    plan.candidates.push_back(Running(method));
  }
  plan.candidates[0].rejected = "too large";
  // With replicas a stage updates less often: another way to train.
  plan.candidates.push_back(Running("pipedream"));
  plan.candidates.back().candidate.replicas = {2, 2};
  EXPECT_THAT(CandidatesToRace(plan, /*with_drawn=*/false), ElementsAre(1, 2, 4, 6, 7));
  EXPECT_THAT(CandidatesToRace(plan, /*with_drawn=*/true), ElementsAre(1, 2, 4, 5, 6, 7));
}

}  // namespace
}  // namespace penstock
