#include "schedule/block_delay_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "schedule/block_draws.h"
#include "schedule/simulate.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kSlotNs = 1'000'000;

Timeline Simulated(const Schedule& schedule, const SimulationCosts& costs = {}) {
  return Simulate(schedule, costs, {.timeline_spans_max = 1'000'000})->timeline;
}

// PipeDream as the theory has it: what a stage does in a slot happens at once, stage by stage, and its update comes with
// its last backward.
Timeline InSlots(int32_t stages, MicrobatchRange range) {
  Timeline timeline = Simulated(CatalogSchedule("pipedream", stages, 1, range));
  std::erase_if(timeline.spans, [](const Span& span) { return span.lane != Lane::kCompute; });
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(),
                   [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  std::vector<int64_t> weight_ns(stages);
  for (Span& span : timeline.spans) {
    const int32_t stage = span.action.index;
    span.start_ns = span.start_ns / 1'000'000'000 * kSlotNs + stage * 1000;
    if (span.action.kind == ActionKind::kBackwardWeight) weight_ns[stage] = span.start_ns;
    if (span.action.kind == ActionKind::kUpdate) span.start_ns = weight_ns[stage];
    span.end_ns = span.start_ns;
  }
  return timeline;
}

// What ended from `from_ns` to `to_ns`.
Timeline Piece(const Timeline& timeline, int64_t from_ns, int64_t to_ns) {
  Timeline piece = {.workers = timeline.workers};
  std::copy_if(timeline.spans.begin(), timeline.spans.end(), std::back_inserter(piece.spans),
               [&](const Span& span) { return from_ns <= span.end_ns && span.end_ns <= to_ns; });
  return piece;
}

TEST(BlockDelayMeter, PipeDreamInSlots_IsThatOfTheTheory) {
  for (const int32_t stages : {2, 3, 4, 8}) {
    const int64_t n = 8 * stages;
    BlockDelayMeter meter(stages, 1, {{0, n}});
    meter.Add(InSlots(stages, {0, n}));
    const BlockDelay delay = meter.delay();
    EXPECT_EQ(delay.max, stages * stages - (stages + 1) / 2) << stages << " stages";
    EXPECT_DOUBLE_EQ(delay.mean, (stages * stages - 1) / 2.0);
    EXPECT_EQ(delay.count, (n - 4 * stages) * stages * stages);
  }
}

// Two stages, nine microbatches, of which the middle one counts.
TEST(BlockDelayMeter, KnownTimeline_CountsTheUpdatesBetween) {
  Timeline timeline{.workers = 2};
  const auto add = [&](int32_t stage, ActionKind kind, int64_t microbatch, int64_t at) {
    timeline.spans.push_back({.worker = WorkerId(stage),
                              .action = {kind, stage, microbatch},
                              .start_ns = at,
                              .end_ns = at + 1});
  };
  const auto update = [&](int32_t stage, int64_t microbatch, int64_t at) {
    add(stage, ActionKind::kBackwardWeight, microbatch, at - 1);
    add(stage, ActionKind::kUpdate, 0, at);
  };
  for (int64_t m = 0; m < 9; ++m) {
    add(0, ActionKind::kForward, m, 100 * m);
    add(1, ActionKind::kForward, m, 100 * m + 20);
    update(1, m, 100 * m + 40);
    // It arrives when the forward of the next microbatch is done.
    update(0, m, 100 * m + 110);
  }
  BlockDelayMeter meter(2, 1, {{0, 9}});
  meter.Add(timeline);
  // Microbatch 4. Between its forward on stage 0 and the update of stage 1: that of stage 0 for microbatch 3; and of
  // stage 0: that and the one of stage 1. Between its forward on stage 1 and those updates: none, and one.
  const BlockDelay delay = meter.delay();
  EXPECT_EQ(delay.count, 4);
  EXPECT_EQ(delay.max, 2);
  EXPECT_DOUBLE_EQ(delay.mean, (1 + 2 + 0 + 1) / 4.0);
  EXPECT_EQ(delay.pairs, (std::vector<std::vector<int64_t>>{{0, 1, 1}, {1, 1}}));
}

// Clocks that are wrong by more than a microbatch takes.
TEST(BlockDelayMeter, UpdateBeforeItsForward_CountsForNothing) {
  Timeline timeline = InSlots(4, {0, 80});
  for (Span& span : timeline.spans) {
    if (span.worker.value != 2) continue;
    span.start_ns += 20 * kSlotNs;
    span.end_ns += 20 * kSlotNs;
  }
  BlockDelayMeter meter(4, 1, {{0, 80}});
  meter.Add(timeline);
  EXPECT_EQ(meter.delay().count, 0);
}

TEST(BlockDelayMeter, OverlappingPieces_CountEveryMicrobatchOnce) {
  for (const int32_t stages : {2, 4}) {
    const int64_t n = 40 * stages;
    const Timeline whole = InSlots(stages, {0, n});
    BlockDelayMeter at_once(stages, 1, {{0, n}});
    at_once.Add(whole);
    for (const int64_t slots : {3, 10, 25}) {
      BlockDelayMeter meter(stages, 1, {{0, n}});
      for (int64_t to = 0; to < whole.end_ns() + slots * kSlotNs; to += slots * kSlotNs) {
        meter.Add(Piece(whole, meter.until_ns().value_or(0) - 2 * kSlotNs, to));
      }
      EXPECT_EQ(meter.delay().pairs, at_once.delay().pairs) << slots << " slots";
    }
  }
}

// A ring that was too short: what is left is a sample, and none of it is wrong.
TEST(BlockDelayMeter, MissingPieces_CountWhatIsKnownAlone) {
  const int32_t stages = 4;
  const Timeline whole = InSlots(stages, {0, 400});
  BlockDelayMeter meter(stages, 1, {{0, 400}});
  for (int64_t to = 50 * kSlotNs; to <= 800 * kSlotNs; to += 100 * kSlotNs) {
    meter.Add(Piece(whole, to - 50 * kSlotNs, to));
  }
  const BlockDelay delay = meter.delay();
  EXPECT_GT(delay.count, 100 * stages * stages);
  EXPECT_LT(delay.count, 200 * stages * stages);
  EXPECT_EQ(delay.max, 14);
  EXPECT_DOUBLE_EQ(delay.mean, 7.5) << "all microbatches have the same delays";
}

TEST(BlockDelayMeter, WorkerWithoutSpans_IsWaitedFor) {
  const Timeline whole = InSlots(3, {0, 60});
  Timeline part = whole;
  std::erase_if(part.spans, [](const Span& span) { return span.worker.value == 1; });
  BlockDelayMeter meter(3, 1, {{0, 60}});
  meter.Add(part);
  EXPECT_EQ(meter.until_ns(), std::nullopt);
  meter.Add(whole);
  EXPECT_EQ(meter.delay().count, (60 - 4 * 3) * 9);
}

TEST(BlockDelayMeter, RangesBetweenCuts_CountWithoutTheirEnds) {
  const int32_t stages = 2;
  Timeline timeline = InSlots(stages, {0, 20});
  Timeline second = InSlots(stages, {20, 11});
  for (Span& span : second.spans) {
    span.start_ns += 1000 * kSlotNs;
    span.end_ns += 1000 * kSlotNs;
    timeline.spans.push_back(span);
  }
  BlockDelayMeter meter(stages, 1, {{0, 20}, {20, 11}});
  meter.Add(timeline);
  EXPECT_EQ(meter.delay().count, (12 + 3) * stages * stages);
  EXPECT_DOUBLE_EQ(meter.delay().mean, 1.5);
}

TEST(BlockDelayMeter, MethodsWithoutStaleness_HaveNone) {
  for (const char* method : {"gpipe", "1f1b"}) {
    BlockDelayMeter meter(4, 1, {{0, 160}});
    meter.Add(Simulated(CatalogSchedule(method, 4, 8, {0, 160})));
    EXPECT_GT(meter.delay().count, 0);
    EXPECT_EQ(meter.delay().max, 0);
    EXPECT_EQ(meter.delay().mean, 0);
  }
  BlockDelayMeter replicas(16, 4, {{0, 64}});
  replicas.Add(Simulated(CatalogSchedule("local-sgd", 4, 8, {0, 64})));
  EXPECT_GT(replicas.delay().count, 0);
  EXPECT_EQ(replicas.delay().max, 0);
}

TEST(BlockDelayMeter, Jitter_StaysNearTheBound) {
  // Stages and microbatches of different lengths, so that no slots exist.
  for (const int32_t stages : {2, 4, 8, 16}) {
    RandomStream random(9, static_cast<uint64_t>(stages));
    SimulationCosts costs;
    for (int32_t s = 0; s < stages; ++s) {
      costs.stages.push_back({.forward_s = 0.9 + 0.2 * random.Uniform(),
                              .backward_input_s = 0.9 + 0.2 * random.Uniform(),
                              .backward_weight_s = 0.9 + 0.2 * random.Uniform()});
    }
    BlockDelayMeter meter(stages, 1, {{0, 20 * stages}});
    meter.Add(Simulated(CatalogSchedule("pipedream", stages, 1, {0, 20 * stages}), costs));
    const BlockDelay delay = meter.delay();
    EXPECT_GT(delay.count, 0);
    const double bound = stages * stages - stages / 2.0;
    EXPECT_LE(static_cast<double>(delay.max), bound + 2 * stages);
    EXPECT_GE(static_cast<double>(delay.max), bound - 2 * stages);
  }
}

TEST(BlockDelayMeter, SampledWeights_HaveTheDelaysThatWereSampled) {
  const ScheduleOptions options{.topology = StraightPipeline(4), .delta = 40, .seed = 9};
  const WeightPolicy policy = WeightPolicyOf(**FindMethod("rpd"), options);
  BlockDelayMeter meter(4, 1, {{8, 20'000}});
  for (const int64_t end : {0, 30, 9'000, 9'000, 20'008}) meter.AddSampled(policy, end);
  const BlockDelay delay = meter.delay();
  EXPECT_EQ(delay.max, 40);
  EXPECT_EQ(delay.count, 4 * (20'000 - 40 - 8));
  EXPECT_NEAR(delay.mean, (40 + 1.5) / 2, 0.2);
}

}  // namespace
}  // namespace penstock
