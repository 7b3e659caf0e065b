#include "schedule/simulate.h"

#include <cmath>
#include <limits>

#include "base/random.h"
#include "schedule/block_delay.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

SimulationCosts EqualCosts(int32_t stages, double seconds) {
  return {.stages = std::vector<StageCosts>(stages, {seconds, seconds, seconds, 0})};
}

TEST(Simulate, ChannelCapacity_ShortensInterleavedOneFOneB) {
  const Method& method = **FindMethod("interleaved-1f1b");
  const ScheduleOptions options{
      .topology = LoopedPipeline(8, 4), .microbatches_per_step = 8, .send_gradient_early = true};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule, BuildSchedule(method, options, {0, 8}));
  ASSERT_THAT(Verify(schedule), IsOk());
  const SimulationCosts costs = EqualCosts(8, 1);
  EXPECT_DOUBLE_EQ(Simulate(schedule, costs, {.channel_capacity = 1})->makespan_s, 56);
  for (const int32_t capacity : {2, 3, 8}) {
    EXPECT_DOUBLE_EQ(Simulate(schedule, costs, {.channel_capacity = capacity})->makespan_s, 54);
  }
  // A backward as one piece lengthens the way back through the 3 other workers by one W each.
  EXPECT_DOUBLE_EQ(Simulate(CatalogSchedule(method.name, 4, 8, {0, 8}), costs)->makespan_s, 57);
}

TEST(Simulate, RandomCosts_PartsOfEveryWorkerAddUpToTheMakespan) {
  RandomStream random(5, 0);
  for (int round = 0; round < 200; ++round) {
    const auto workers = static_cast<int32_t>(1 + random.Below(5));
    const Method& method = Methods()[random.Below(Methods().size())];
    const Schedule schedule = CatalogSteps(method, workers, 4, 0, 3);
    const int32_t stages = schedule.topology.stages();
    SimulationCosts costs{.overhead_s = random.Uniform() / 100, .collective_s = 0.01};
    for (int32_t s = 0; s < stages; ++s) {
      costs.stages.push_back(
          {random.Uniform(), random.Uniform(), random.Uniform(), random.Uniform()});
      if (s > 0) costs.links.push_back({.bytes = 1e6, .bytes_per_second = 1e7, .latency_s = 0.01});
    }
    const int32_t capacity = std::max(2, Verify(schedule)->channel_capacity_min);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const SimulationResult result,
        Simulate(schedule, costs, {.channel_capacity = capacity, .timeline_spans_max = 100'000}));
    const std::vector<TimeShares> shares = SharesOf(result.timeline);
    for (int32_t w = 0; w < workers; ++w) {
      const WorkerTimes& times = result.workers[w];
      EXPECT_NEAR(times.busy_s + times.overhead_s + times.idle_s(), result.makespan_s, 1e-6);
      EXPECT_NEAR(times.bubble_ratio, times.idle_s() / result.makespan_s, 1e-9);
      EXPECT_NEAR(times.busy_s, static_cast<double>(shares[w].busy_ns()) / 1e9, 1e-6);
    }
    EXPECT_THAT(CheckTimeline(result.timeline), IsOk());
    EXPECT_EQ(result.stages, Verify(schedule)->stages);
  }
}

TEST(Simulate, SpansOfAWorker_NeverOverlap) {
  for (const Method& method : Methods()) {
    const Schedule schedule = CatalogSteps(method, 4, 4, 0, 3);
    SimulationCosts costs{.overhead_s = 0.05};
    costs.links.assign(schedule.topology.stages() - 1,
                       {.bytes = 1, .bytes_per_second = 4, .latency_s = 0.5});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        SimulationResult result,
        Simulate(schedule, costs, {.channel_capacity = 4, .timeline_spans_max = 100'000}));
    std::vector<int64_t> end_ns(4);
    for (const Span& span : result.timeline.spans) {
      if (span.lane == Lane::kTransfer) continue;
      EXPECT_GE(span.start_ns, end_ns[span.worker.value]);
      end_ns[span.worker.value] = span.end_ns;
    }
  }
}

TEST(Simulate, OneMicrobatch_TakesThePathThroughAllStagesAndLinks) {
  SimulationCosts costs{.overhead_s = 0.01};
  costs.stages = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  costs.links = {{.bytes = 100, .bytes_per_second = 200, .latency_s = 0.25}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(CatalogSchedule("gpipe", 2, 1, {0, 1}), costs));
  // F SEND | RECV F I W SEND | RECV I W UPDATE FLUSH, each with overhead, and two transfers.
  EXPECT_NEAR(result.makespan_s, 1 + (5 + 6 + 7) + (2 + 3 + 4) + 2 * 0.75 + 12 * 0.01, 1e-9);
  EXPECT_NEAR(result.workers[0].wait_input_s, (5 + 6 + 7) + 1.5 + 5 * 0.01, 1e-9);
  EXPECT_NEAR(result.workers[1].wait_input_s, 1 + 0.75 + 2 * 0.01, 1e-9);
  EXPECT_NEAR(result.workers[0].busy_s, 1 + 2 + 3 + 4, 1e-9);
  EXPECT_NEAR(result.workers[0].overhead_s, 0.07, 1e-9);
}

TEST(Simulate, SlowLink_CarriesOneMessageAfterTheOther) {
  // Ten forwards of no length over a link of one message a second.
  SimulationCosts costs{.stages = std::vector<StageCosts>(2, {0, 0, 0, 0}),
                        .links = {{.bytes = 1, .bytes_per_second = 1, .latency_s = 5}}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult result,
      Simulate(BuildEvaluation(StraightPipeline(2), {0, 10}), costs, {.channel_capacity = 100}));
  EXPECT_DOUBLE_EQ(result.makespan_s, 10 + 5);
}

TEST(Simulate, LargeChannels_TakeMemoryForTheirMessagesOnly) {
  // All places together would be 16 GB.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(BuildEvaluation(StraightPipeline(1000), {0, 3}), {},
                                         {.channel_capacity = 1'000'000}));
  EXPECT_DOUBLE_EQ(result.makespan_s, 1002);
}

TEST(Simulate, FullChannel_MakesTheSenderWaitForCredit) {
  // The first worker takes no time, the second one second for each of 5 microbatches; the channel
  // holds one: send 1 waits until 0 is taken (at once), send k until k - 1 is taken at k - 1
  // seconds.
  SimulationCosts costs{.stages = {{0, 0, 0, 0}, {1, 0, 0, 0}}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult result,
      Simulate(BuildEvaluation(StraightPipeline(2), {0, 5}), costs, {.channel_capacity = 1}));
  EXPECT_DOUBLE_EQ(result.makespan_s, 5);
  EXPECT_DOUBLE_EQ(result.workers[0].wait_credit_s, 3);
  EXPECT_DOUBLE_EQ(result.workers[0].done_early_s, 2);
  EXPECT_DOUBLE_EQ(result.workers[1].wait_input_s, 0);
}

TEST(Simulate, Collective_StartsWithItsLastMember) {
  ScheduleOptions options = TiedOptions(2, 1);
  options.global_norm = true;
  const Schedule schedule = BuildSchedule(**FindMethod("gpipe"), options, {0, 1}).value();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(schedule, {.collective_s = 0.25}));
  // The last worker is done with its backward at 3, the first at 4; REDUCE and NORM follow.
  EXPECT_DOUBLE_EQ(result.makespan_s, 4.5);
  EXPECT_DOUBLE_EQ(result.workers[1].wait_collective_s, 1);
  EXPECT_DOUBLE_EQ(result.workers[0].wait_collective_s, 0);
}

TEST(Simulate, ManySteps_SteadyStatePeriodIsTheTimeOfOneMicrobatch) {
  // 1F1B: (M + S - 1) * 2 for each step of M.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(CatalogSchedule("1f1b", 4, 8, {0, 80}), {}));
  EXPECT_DOUBLE_EQ(result.steady_state_period_s, 2.0 * (8 + 3) / 8);
}

TEST(Simulate, TimelineLimit_KeepsTheFirstSpansOfEveryWorker) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult result,
      Simulate(CatalogSchedule("1f1b", 4, 8, {0, 80}), {}, {.timeline_spans_max = 40}));
  // Up to where the first of them has no more, so that the picture of every worker ends there.
  EXPECT_LE(result.timeline.spans.size(), 40u);
  EXPECT_GE(result.timeline.spans.size(), 30u);
  ASSERT_TRUE(result.timeline_cut_s.has_value());
  std::vector<int64_t> of_worker(4);
  for (const Span& span : result.timeline.spans) {
    EXPECT_LT(span.start_ns, *result.timeline_cut_s * 1e9);
    ++of_worker[span.worker.value];
  }
  EXPECT_EQ(*std::max_element(of_worker.begin(), of_worker.end()), 10);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult none,
                                Simulate(CatalogSchedule("1f1b", 4, 8, {0, 80}), {}));
  EXPECT_TRUE(none.timeline.spans.empty());
  EXPECT_FALSE(none.timeline_cut_s.has_value());
}

TEST(Simulate, BadCosts_AreNamed) {
  const Schedule schedule = CatalogSchedule("1f1b", 2, 2, {0, 2});
  const auto expect = [&](const SimulationCosts& costs, absl::string_view message) {
    EXPECT_THAT(Simulate(schedule, costs),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(message))));
  };
  expect({.stages = {{}, {}, {}}}, "expected costs of 2 stages (or none), got 3");
  expect({.stages = {{}, {.forward_s = -1}}}, "stage 1: forward time");
  expect({.stages = {{.update_s = std::nan("")}, {}}}, "stage 0: update time");
  expect({.links = {{}, {}}}, "expected costs of 1 links");
  expect({.links = {{.bytes_per_second = 0}}}, "link 0: bytes per second");
  expect({.links = {{.bytes = 1e300, .bytes_per_second = 1}}}, "link 0: transfer time");
  expect({.overhead_s = std::numeric_limits<double>::infinity()}, "overhead");
}

TEST(Simulate, Deadlock_IsAnErrorWithTheCapacity) {
  const Schedule schedule = ParseSchedule(
                                "0F0,0SEND_F0,0F1,0SEND_F1,FLUSH\n"
                                "1RECV_F0,1F0,1RECV_F1,1RECV_F2,1F1,FLUSH\n")
                                .value();
  EXPECT_THAT(Simulate(schedule, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("deadlock with channels of 4 messages: worker 1 at 1RECV_F2")));
}

TEST(BlockDelay, SynchronousMethods_HaveNone) {
  for (const char* method : {"gpipe", "1f1b"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const BlockDelay delay,
        PredictBlockDelay(**FindMethod(method), {StraightPipeline(5), 1'000'000'000}));
    EXPECT_EQ(delay.max, 0);
    EXPECT_EQ(delay.mean, 0);
  }
}

TEST(BlockDelay, RangeWithoutSteadyState_IsRefused) {
  EXPECT_THAT(PredictBlockDelay(CatalogSchedule("pipedream", 4, 1, {0, 16})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 16 microbatches")));
}

}  // namespace
}  // namespace penstock
