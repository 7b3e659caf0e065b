// The closed forms that the catalog's files state, over many sizes.
#include "schedule/catalog/catalog.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "schedule/block_delay.h"
#include "schedule/render_text.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kStagesMax = 32;
constexpr int64_t kMicrobatches[] = {1, 2, 3, 5, 8, 31, 32, 33, 70};

TEST(Gpipe, AnySize_MatchesItsClosedForms) {
  for (int32_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t m : kMicrobatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << m << " microbatches");
      const Schedule schedule = CatalogSchedule("gpipe", stages, m, {0, m});
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
      const Schedule schedule = CatalogSchedule("1f1b", stages, m, {0, m});
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
      const Schedule schedule = CatalogSchedule("pipedream", stages, 1, {7, n});
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
                                Simulate(CatalogSchedule("pipedream", 8, 1, {0, 1000}), {}));
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

TEST(PipeDream, BlockDelay_CostsTheSameForAnyStep) {
  const Method& method = **FindMethod("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay small,
                                PredictBlockDelay(method, {StraightPipeline(4), 1}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay large,
                                PredictBlockDelay(method, {StraightPipeline(4), 1'000'000'000}));
  EXPECT_EQ(large.count, small.count);
  EXPECT_EQ(large.max, small.max);
}

TEST(SendGradientEarly, ShortensTheBubbleOfOneFOneB) {
  // 4 stages, 8 microbatches: (S-1)/(M+S-1) = 3/11 with a whole backward, 1/5 with the early send.
  ScheduleOptions options{.topology = StraightPipeline(4), .microbatches_per_step = 8};
  const SimulationCosts equal{.stages = std::vector<StageCosts>(4, {1, 1, 1, 0})};
  const Method& method = **FindMethod("1f1b");
  EXPECT_DOUBLE_EQ(Simulate(*BuildSchedule(method, options, {0, 8}), equal)->bubble_ratio,
                   3.0 / 11);
  options.send_gradient_early = true;
  EXPECT_DOUBLE_EQ(Simulate(*BuildSchedule(method, options, {0, 8}), equal)->bubble_ratio, 0.2);
}

TEST(Catalog, EveryMethod_HasItsGoldenPicture) {
  const SimulationCosts with_step{.stages = std::vector<StageCosts>(4, {.step_s = 0.5})};
  for (const Method& method : Methods()) {
    const Schedule schedule = CatalogSchedule(method.name, 4, 8, {0, 16});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const SimulationResult result,
        Simulate(schedule, with_step, {.channel_capacity = 1, .timeline_spans_max = 10'000}));
    const std::string picture =
        absl::StrCat(method.name, ": ", method.summary, "\n\n",
                     RenderText(result.timeline, {.slot_ns = 500'000'000, .columns = 120}), "\n",
                     PrintSchedule(schedule, {.merge_backward = true}));
    ExpectEqualsGolden(absl::StrCat("schedule/", method.name, ".txt"), picture);
  }
}

TEST(Catalog, EveryMethodAndOption_IsVerified) {
  for (const Method& method : Methods()) {
    for (int32_t stages = 1; stages <= 6; ++stages) {
      for (const bool early : {false, true}) {
        ScheduleOptions options = method.synchronous && stages > 1
                                      ? TiedOptions(stages, 3)
                                      : ScheduleOptions{StraightPipeline(stages), 3};
        options.global_norm = method.synchronous;
        options.send_gradient_early = early;
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(method, options, {6, 12}));
        EXPECT_THAT(Verify(schedule), IsOk()) << PrintSchedule(schedule);
      }
    }
  }
}

TEST(BuildSchedule, StepTooLongToBeListed_IsRefusedBeforeAnythingIsAllocated) {
  for (const char* name : {"gpipe", "1f1b"}) {
    const Method& method = **FindMethod(name);
    for (const int32_t stages : {1, 4, 256}) {
      const int64_t most = ListedMicrobatchesMax(stages);
      EXPECT_THAT(CheckBuildable(method, {StraightPipeline(stages), most}, {0, most}), IsOk());
      for (const int64_t microbatches : {most + 1, int64_t{1'000'000'000}, kMicrobatchMax}) {
        EXPECT_THAT(
            BuildSchedule(method, {StraightPipeline(stages), microbatches}, {0, microbatches}),
            StatusIs(absl::StatusCode::kInvalidArgument,
                     HasSubstr(absl::StrCat("at most ", most, " are possible"))));
      }
    }
  }
  // A method without steps lists the depth of the pipeline alone.
  EXPECT_THAT(BuildSchedule(**FindMethod("pipedream"), {StraightPipeline(256), 1 << 20},
                            {0, int64_t{1} << 40}),
              IsOk());
}

TEST(Evaluation, AnyTopology_ForwardsEverythingAndKeepsNothing) {
  const Topology looped{.worker_of = {WorkerId(0), WorkerId(1), WorkerId(0), WorkerId(1)},
                        .workers = 2};
  for (const Topology& topology : {StraightPipeline(1), StraightPipeline(5), looped}) {
    const Schedule schedule = BuildEvaluation(topology, {10, 7});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
    EXPECT_EQ(report.channel_capacity_min, 1);
    for (const StageCounts& counts : report.stages) EXPECT_EQ(counts, StageCounts());
    EXPECT_THAT(Simulate(schedule, {}), IsOk());
  }
}

TEST(FindMethod, UnknownName_ListsTheMethods) {
  EXPECT_THAT(FindMethod("1f1c"), StatusIs(absl::StatusCode::kNotFound,
                                           HasSubstr("\"1f1c\"; the methods are gpipe, 1f1b")));
}

struct BadOptions {
  absl::string_view method;
  ScheduleOptions options;
  MicrobatchRange range;
  absl::string_view expected;
};

TEST(BuildSchedule, WhatAMethodCannotDo_IsSaidWithTheReason) {
  const Topology looped{.worker_of = {WorkerId(0), WorkerId(1), WorkerId(0)}, .workers = 2};
  ScheduleOptions norm{.topology = StraightPipeline(2)};
  norm.global_norm = true;
  for (const BadOptions& bad :
       {BadOptions{"1f1b", {StraightPipeline(2), 4}, {0, 6}, "not a whole number of steps of 4"},
        {"1f1b", {StraightPipeline(2), 4}, {0, 0}, "at least one microbatch"},
        {"1f1b", {StraightPipeline(2), 4}, {-4, 4}, "at least one microbatch"},
        {"1f1b", {StraightPipeline(2), 0}, {0, 4}, "at least 1 microbatch"},
        {"1f1b", {Topology(), 4}, {0, 4}, "at least one stage"},
        {"gpipe", {looped, 4}, {0, 4}, "3 stages on 2 workers"},
        {"pipedream", norm, {0, 4}, "no moment with a gradient of the whole model"},
        {"pipedream", TiedOptions(3, 1), {0, 4}, "stages 0 and 2 cannot share parameters"}}) {
    EXPECT_THAT(BuildSchedule(**FindMethod(bad.method), bad.options, bad.range),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(bad.expected))));
  }
}

}  // namespace
}  // namespace penstock
