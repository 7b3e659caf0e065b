#include "planner/job/expected_time.h"

#include <gmock/gmock.h>

#include <limits>

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JudgedCandidate Judged(const std::string& method, int stages, double step_s,
                       const UpdatePattern& pattern) {
  JudgedCandidate judged;
  judged.candidate = {.method = method, .stages = stages, .microbatches = 8};
  judged.step_s = step_s;
  judged.pattern = pattern;
  return judged;
}

JudgedCandidate Drains(const std::string& method, double step_s) {
  return Judged(method, 4, step_s, {.method = method});
}

JudgedCandidate IsLate(int stages, double step_s, double delay) {
  return Judged("pipedream", stages, step_s,
                {.method = "pipedream", .synchronous = false, .delay = delay});
}

ExpectedChoice Choose(const std::vector<JudgedCandidate>& candidates, std::vector<int> eligible,
                      bool one_method, const std::vector<ObservedRun>& runs = {}) {
  return ChooseByExpectedTime({.candidates = candidates}, eligible, StepsToLoss(runs), "setup", 1,
                              one_method);
}

TEST(ChooseByExpectedTime, StepsCountBesideTheStep) {
  const double factor = StepsToLoss({}).Predict(IsLate(4, 1, 9).pattern, "setup", 1).expected();
  ASSERT_GT(factor, 1.01);
  // A hundredth on either side of where both take as long.
  const auto chosen = [&](double step_s) {
    return Choose({Drains("1f1b", factor), IsLate(4, step_s, 9)}, {0, 1}, false).candidate;
  };
  EXPECT_EQ(chosen(0.99), 1);
  EXPECT_EQ(chosen(1.01), 0);
}

TEST(ChooseByExpectedTime, CandidatesThatAreNotEligible_TakeForever) {
  const ExpectedChoice choice = Choose({Drains("gpipe", 1), Drains("1f1b", 2)}, {1}, false);
  EXPECT_EQ(choice.candidate, 1);
  EXPECT_DOUBLE_EQ(choice.SecondsOf(1), 2);
  EXPECT_EQ(choice.SecondsOf(0), std::numeric_limits<double>::infinity());
}

TEST(ChooseByExpectedTime, Reason_NamesTheBestThatTrainsOtherwise) {
  EXPECT_EQ(Choose({Drains("gpipe", 2), Drains("1f1b", 1)}, {0, 1}, false).reason,
            "the expected time to the same loss: 1 s a step; no job of this kind has run")
      << "both drain";
  EXPECT_THAT(
      Choose({Drains("1f1b", 1), Drains("gpipe", 2), IsLate(4, 3, 9)}, {0, 1, 2}, false).reason,
      HasSubstr("1 s a step, against pipedream, 4 stages, 8 microbatches with 3 s a step"));
  // Numbers of stages of one method differ by their delays.
  const std::vector<JudgedCandidate> stages = {IsLate(4, 1, 0.6), IsLate(2, 2, 0.3)};
  EXPECT_THAT(Choose(stages, {0, 1}, true).reason, HasSubstr("against pipedream, 2 stages"));
  EXPECT_THAT(Choose(stages, {0, 1}, false).reason, Not(HasSubstr("against")));
}

TEST(ChooseByExpectedTime, Reason_CountsTheLateRunsThatToldIt) {
  const ObservedRun run = {.setup = "setup",
                           .steps = 100,
                           .pattern = IsLate(4, 1, 2).pattern,
                           .curve = {.points = {{10, 5}, {100, 2}}}};
  EXPECT_THAT(Choose({Drains("1f1b", 1)}, {0}, false, {run}).reason,
              HasSubstr("; 1 run of such jobs told it"));
  EXPECT_THAT(Choose({Drains("1f1b", 1)}, {0}, false, {run, run}).reason,
              HasSubstr("; 2 runs of such jobs told it"));
}

}  // namespace
}  // namespace penstock
