// The studies from end to end, at sizes that take a second.
#include "studies/theory/studies.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr ProblemSize kSmallStudy = {.rows = 60, .width = 32};

// Announces honestly, and stops after so many calls.
class CountingContext : public SerialContext {
 public:
  explicit CountingContext(int64_t calls_max = 1'000'000) : calls_max_(calls_max) {}
  absl::Status ForEach(int64_t count, const std::function<void(int64_t)>& body) override {
    if (calls_ + count > calls_max_) return absl::CancelledError("stopped");
    calls_ += count;
    return SerialContext::ForEach(count, body);
  }
  void Announce(const std::string&, int64_t calls_in_all) override { announced_ = calls_in_all; }

  void ExpectAllCallsWereAnnounced() const { EXPECT_EQ(calls_, announced_); }

 private:
  const int64_t calls_max_;
  int64_t calls_ = 0;
  int64_t announced_ = 0;
};

void ExpectComplete(const absl::StatusOr<StudyResult>& result, size_t rows, size_t charts) {
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->table.rows.size(), rows);
  for (const std::vector<StudyCell>& row : result->table.rows) {
    EXPECT_EQ(row.size(), result->table.columns.size());
  }
  ASSERT_EQ(result->charts.size(), charts);
  for (const StudyChart& chart : result->charts) EXPECT_FALSE(chart.chart.lines.empty());
  EXPECT_FALSE(result->findings.empty());
}

double Number(const StudyResult& result, size_t row, const std::string& column) {
  const auto& columns = result.table.columns;
  const size_t index = std::find(columns.begin(), columns.end(), column) - columns.begin();
  return std::get<double>(result.table.rows[row].at(index));
}

TEST(DelayStudyTest, AllClosedForms_Hold) {
  CountingContext context;
  const auto result = RunDelayStudy({.stages = {1, 2, 3, 4, 9, 24}}, context);
  ExpectComplete(result, 6, 1);
  context.ExpectAllCallsWereAnnounced();
  for (const Finding& finding : result->findings) {
    EXPECT_TRUE(finding.agrees) << finding.claim << ": " << finding.evidence;
  }
}

TEST(QuadraticStudyTest, MoreDelay_IsWorse) {
  CountingContext context;
  const auto result = RunQuadraticStudy({.seeds = 2,
                                         .stages = 4,
                                         .epochs = 20,
                                         .rows = 60,
                                         .batch = 10,
                                         .widths = {8, 32},
                                         .deltas = {14, 400}},
                                        context);
  ExpectComplete(result, 6, 2);
  context.ExpectAllCallsWereAnnounced();
  EXPECT_LT(Number(*result, 1, "final_mean"), 0.1 * Number(*result, 2, "final_mean"));
  EXPECT_TRUE(result->findings[0].agrees) << result->findings[0].evidence;
}

TEST(QuadraticStudyTest, SameSeeds_SameResult) {
  SerialContext context;
  const QuadraticStudy study{
      .seeds = 1, .stages = 2, .epochs = 2, .rows = 60, .batch = 10, .widths = {16}, .deltas = {3}};
  const auto first = RunQuadraticStudy(study, context);
  const auto second = RunQuadraticStudy(study, context);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(first->table.rows, second->table.rows);
}

TEST(LogisticStudyTest, Small_IsComplete) {
  CountingContext context;
  const auto result = RunLogisticStudy(
      {.seeds = 2, .stages = {2, 4}, .ticks = 200, .size = kSmallStudy, .batch = 10}, context);
  ExpectComplete(result, 6, 1);
  context.ExpectAllCallsWereAnnounced();
}

TEST(LogisticStudyTest, Data_TakesThePlaceOfTheSyntheticProblems) {
  SerialContext context;
  Problem data = SyntheticLogistic(kSmallStudy, 9);
  data.name = "my data";
  const auto result = RunLogisticStudy(
      {.seeds = 2, .stages = {2}, .ticks = 100, .size = kSmallStudy, .batch = 10, .data = &data},
      context);
  ExpectComplete(result, 3, 1);
  EXPECT_EQ(std::get<std::string>(result->settings[1].second), "my data");
}

TEST(LogisticStudyTest, MoreStagesThanFeatures_IsRefused) {
  SerialContext context;
  EXPECT_THAT(
      RunLogisticStudy({.seeds = 1, .stages = {64}, .ticks = 100, .size = kSmallStudy}, context),
      StatusIs(absl::StatusCode::kInvalidArgument,
               ::testing::HasSubstr("32 features, too few for 64 stages")));
}

// Three rows of five features, and noise, all of them simple fractions.
DrawnNumbers SimpleNumbers(std::vector<int32_t> stages, int64_t noise_count) {
  DrawnNumbers numbers{
      .problem = {.name = "fractions", .loss = Loss::kLogistic, .features = Matrix(3, 5)}};
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t i = 0; i < 5; ++i) {
      numbers.problem.features.At(row, i) = 0.5 * static_cast<double>((7 * row + 3 * i) % 5 - 2);
    }
  }
  numbers.problem.targets = {1.0, 0.0, 1.0};
  numbers.problem.l2 = 0.1;
  std::vector<double> noise;
  for (int64_t i = 0; i < noise_count; ++i)
    noise.push_back(0.125 * static_cast<double>(i * 5 % 7 - 3));
  for (const int32_t each : stages)
    numbers.of_stages.push_back({.stages = each, .noise = GradientNoise(noise)});
  return numbers;
}

// The ends come from a program of forty lines in another language that follows appendix E.1 by itself.
TEST(DrawnStudyTest, GivenNumbers_EndsWhereAnIndependentProgramDoes) {
  CountingContext context;
  DrawnNumbers numbers = SimpleNumbers({1, 3, 5}, 50);
  numbers.of_stages[1].published = "3.6067e-01";
  numbers.of_stages[2].published = "3.8481e-01";  // not quite
  const auto result =
      RunDrawnStudy({.ticks = 20, .learning_rate = 0.25, .numbers = &numbers}, context);
  ExpectComplete(result, 3, 1);
  context.ExpectAllCallsWereAnnounced();
  EXPECT_NEAR(Number(*result, 0, "objective"), 0.3410468808890183, 1e-14);
  EXPECT_NEAR(Number(*result, 1, "objective"), 0.3606668903580032, 1e-14);
  EXPECT_NEAR(Number(*result, 2, "objective"), 0.3848020100171607, 1e-14);
  ASSERT_EQ(result->findings.size(), 2u);
  EXPECT_TRUE(result->findings[0].agrees) << result->findings[0].evidence;
  EXPECT_FALSE(result->findings[1].agrees) << result->findings[1].evidence;
}

TEST(DrawnStudyTest, TooFewNumbersOrFeatures_AreRefused) {
  SerialContext context;
  const DrawnNumbers few = SimpleNumbers({1}, 49);
  EXPECT_THAT(
      RunDrawnStudy({.ticks = 20, .numbers = &few}, context),
      StatusIs(absl::StatusCode::kInvalidArgument,
               ::testing::HasSubstr("the noise of 1 stages has 49 numbers, fewer than the 50")));
  const DrawnNumbers narrow = SimpleNumbers({6}, 50);
  EXPECT_THAT(RunDrawnStudy({.ticks = 20, .numbers = &narrow}, context),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("5 features, too few for 6 stages")));
}

TEST(LocalSgdStudyTest, Small_IsComplete) {
  CountingContext context;
  const auto result = RunLocalSgdStudy(
      {.seeds = 2,
       .stages = 4,
       .logistic = {.size = kSmallStudy, .batch = 10, .epochs = 3, .also_without_noise = true},
       .epochs = 3,
       .size = kSmallStudy,
       .local_steps = {2, 5}},
      context);
  ExpectComplete(result, 9, 3);
  context.ExpectAllCallsWereAnnounced();
}

TEST(LocalSgdStudyTest, Data_TakesThePlaceOfAllProblems) {
  SerialContext context;
  const Problem data = SyntheticLogistic(kSmallStudy, 9);
  const auto result = RunLocalSgdStudy({.seeds = 2,
                                        .stages = 4,
                                        .epochs = 2,
                                        .size = kSmallStudy,
                                        .local_steps = {3},
                                        .data = &data},
                                       context);
  ExpectComplete(result, 2, 1);
  EXPECT_EQ(std::get<std::string>(result->table.rows[0][0]), "data");
}

TEST(BoundStudyTest, Bound_HoldsAlongEveryRun) {
  CountingContext context;
  const auto result = RunBoundStudy(
      {.seeds = 3, .stages = 4, .epochs = 10, .size = kSmallStudy, .deltas = {0, 14, 100}},
      context);
  ExpectComplete(result, 4, 1);
  context.ExpectAllCallsWereAnnounced();
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_TRUE(result->findings[row].agrees) << result->findings[row].evidence;
    EXPECT_GE(Number(*result, row, "tightest_ratio"), 1.0);
  }
  EXPECT_EQ(Number(*result, 0, "stale_term"), 0.0);
}

TEST(StudiesTest, StoppedContext_EndsTheStudyWithItsError) {
  CountingContext context(/*calls_max=*/10);
  EXPECT_THAT(RunQuadraticStudy({.seeds = 2, .stages = 2, .epochs = 1}, context),
              StatusIs(absl::StatusCode::kCancelled, "stopped"));
}

}  // namespace
}  // namespace penstock
