// The closed forms that the catalog's files state, over many sizes.
#include "schedule/catalog/catalog.h"

#include <algorithm>

#include "schedule/block_delay.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

Schedule Build(absl::string_view method, int32_t stages, int64_t microbatches_per_step,
               MicrobatchRange range) {
  const ScheduleOptions options{.topology = StraightPipeline(stages),
                                .microbatches_per_step = microbatches_per_step};
  return BuildSchedule(**FindMethod(method), options, range).value();
}

constexpr int32_t kStagesMax = 32;
constexpr int64_t kMicrobatches[] = {1, 2, 3, 5, 8, 31, 32, 33, 70};

TEST(Gpipe, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const Schedule schedule = Build("gpipe", stages, m, {0, m});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(m + stages - 1));
      for (const WorkerTimes& worker : result.workers) {
        EXPECT_DOUBLE_EQ(worker.bubble_ratio, double(stages - 1) / double(m + stages - 1));
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      EXPECT_EQ(report.channel_capacity_min, 1);
      for (const StageCounts& counts : report.stages) {
        EXPECT_EQ(counts.activations_peak, m);
        EXPECT_EQ(counts.versions_peak, 1);
        EXPECT_EQ(counts.staleness, (StalenessCount{1, 0, 0, m}));
      }
    }
  }
}

TEST(OneFOneB, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const Schedule schedule = Build("1f1b", stages, m, {0, m});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(m + stages - 1));
      for (const WorkerTimes& worker : result.workers) {
        EXPECT_DOUBLE_EQ(worker.bubble_ratio, double(stages - 1) / double(m + stages - 1));
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      EXPECT_EQ(report.channel_capacity_min, 1);
      for (int32_t s = 0; s < stages; ++s) {
        EXPECT_EQ(report.stages[s].activations_peak, std::min<int64_t>(m, stages - s));
        EXPECT_EQ(report.stages[s].versions_peak, 1);
        EXPECT_EQ(report.stages[s].staleness, (StalenessCount{1, 0, 0, m}));
      }
    }
  }
}

TEST(PipeDream, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t n : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << n << " microbatches");
      const Schedule schedule = Build("pipedream", stages, 1, {7, n});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                    Simulate(schedule, {}, {.channel_capacity = 1}));
      EXPECT_DOUBLE_EQ(result.makespan_s, 2.0 * double(n) + 2.0 * double(stages - 1));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      EXPECT_EQ(report.channel_capacity_min, 1);
      for (int32_t s = 0; s < stages; ++s) {
        const int64_t depth = stages - 1 - s;
        const StageCounts& counts = report.stages[s];
        EXPECT_EQ(counts.activations_peak, std::min<int64_t>(n, stages - s));
        // Short ranges read fewer versions: those of the first N - depth updates.
        const int64_t read = n == 1 ? 0 : std::min(std::max<int64_t>(n - depth, 1), depth);
        EXPECT_EQ(counts.versions_peak, read + 1);
        EXPECT_EQ(counts.staleness.max, std::min<int64_t>(n - 1, depth));
        EXPECT_EQ(counts.staleness.updates, n);
        int64_t sum = 0;
        for (int64_t k = 0; k < n; ++k) sum += k - std::max<int64_t>(0, k - depth);
        EXPECT_EQ(counts.staleness.sum, sum);
        EXPECT_EQ(counts.version_drift, (StalenessCount{n, 0, 0, n}));
      }
    }
  }
}

TEST(PipeDream, ManyMicrobatches_TakesTwoSlotsForEach) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(Build("pipedream", 8, 1, {0, 1000}), {}));
  EXPECT_DOUBLE_EQ(result.steady_state_period_s, 2.0);
}

TEST(PipeDream, BlockDelay_IsThatOfTheTheory) {
  EXPECT_EQ(PredictBlockDelay(**FindMethod("pipedream"), {StraightPipeline(1)})->max, 0);
  for (int32_t stages = 2; stages <= kStagesMax; ++stages) {
    SCOPED_TRACE(testing::Message() << stages << " stages");
    const ScheduleOptions options{.topology = StraightPipeline(stages)};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay delay,
                                  PredictBlockDelay(**FindMethod("pipedream"), options));
    EXPECT_EQ(delay.max, (2 * stages * stages - stages) / 2);
    EXPECT_DOUBLE_EQ(delay.mean, (stages * stages - 1) / 2.0);
  }
}

}  // namespace
}  // namespace penstock
