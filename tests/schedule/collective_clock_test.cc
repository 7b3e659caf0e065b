#include "schedule/collective_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "schedule/catalog/catalog.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNs = 1e-9;

// A byte takes a nanosecond; then it is `latency_ns` under way.
WorkerLinks EqualLinks(int64_t latency_ns) {
  return {.others = {.bytes_per_second = 1e9, .latency_s = static_cast<double>(latency_ns) * kNs},
          .pairs = {}};
}

Topology Replicas(int32_t count) { return ReplicatedStages({count}, ReduceGroup::Operation::kSum); }

constexpr Action kReduce = {ActionKind::kReduce, 0, 0};

std::vector<int64_t> DoneAfter(const Topology& topology, const WorkerLinks& links,
                               const Traffic& traffic, std::vector<int64_t> now_ns,
                               Action action = kReduce) {
  std::vector<WorkerId> members;
  members.reserve(topology.workers);
  for (int32_t i = 0; i < topology.workers; ++i) members.push_back(WorkerId(i));
  CollectiveClock clock(topology, links, traffic);
  clock.Perform(action, members, absl::MakeSpan(now_ns));
  return now_ns;
}

TEST(CollectiveClock, EqualReplicasThatBeginTogether_TakeTwoMessagesEach) {
  for (const int32_t replicas : {2, 3, 5, 8}) {
    const Traffic traffic = {
        .groups = {{.buckets = {{.parts = std::vector<double>(replicas, 100.0)}}}}};
    EXPECT_THAT(
        DoneAfter(Replicas(replicas), EqualLinks(7), traffic, std::vector<int64_t>(replicas, 1000)),
        Each(1000 + 2 * 107));
  }
}

// The part that the late one adds up came to it before; what it sends, its part of the other's and then its sum,
// shares a link. The other waits for neither sum nor part longer than these two take.
TEST(CollectiveClock, OneOfTwoReplicasIsLate_TheOtherIsDoneWhenItsMessagesAreThere) {
  const Traffic traffic = {.groups = {{.buckets = {{.parts = {100.0, 100.0}}}}}};
  EXPECT_THAT(DoneAfter(Replicas(2), EqualLinks(0), traffic, {0, 1000}),
              ElementsAre(1000 + 200, 1000 + 200));
  EXPECT_THAT(DoneAfter(Replicas(2), EqualLinks(30), traffic, {0, 1000}),
              ElementsAre(1000 + 200 + 30, 1000 + 130 + 130));
}

TEST(CollectiveClock, SlowLink_IsWaitedForByAllWhoNeedWhatComesOverIt) {
  WorkerLinks links = EqualLinks(0);
  links.pairs[{0, 2}] = {.bytes_per_second = 1e8};
  const Traffic traffic = {.groups = {{.buckets = {{.parts = {10.0, 10.0, 10.0}}}}}};
  // Parts of 0 and 2 are whole after 100, that of 1 after 10.
  EXPECT_THAT(DoneAfter(Replicas(3), links, traffic, {0, 0, 0}), ElementsAre(200, 110, 200));
}

TEST(CollectiveClock, PartsThatAreEmpty_AreNotSent) {
  const Traffic traffic = {.groups = {{.buckets = {{.parts = {16.0, 0.0}}}}}};
  EXPECT_THAT(DoneAfter(Replicas(2), EqualLinks(5), traffic, {0, 0}), ElementsAre(21, 42));
}

TEST(CollectiveClock, TiedWeights_EachUseGetsTheOthersGradient) {
  Topology topology = StraightPipeline(3);
  topology.groups = {{.stages = {StageId(0), StageId(2)}}};
  Traffic traffic;
  traffic.groups = {{.tied = {{.sum = {.parts = {0, 2}, .exchanges = true}, .bytes = 100.0}}}};
  EXPECT_THAT(DoneAfter(topology, EqualLinks(5), traffic, {0, 7, 40}), ElementsAre(145, 7, 105));
  // Two replicas of the first place, one of the last, which gets it from the first of them.
  topology = ReplicatedStages({2, 1}, ReduceGroup::Operation::kSum);
  topology.groups = {{.stages = {StageId(0), StageId(1), StageId(2)}}};
  traffic.groups[0].tied[0].sum.parts = {0, 1};
  EXPECT_THAT(DoneAfter(topology, EqualLinks(5), traffic, {0, 500, 40}),
              ElementsAre(145, 500, 105));
}

TEST(CollectiveClock, SharedParameters_AreAddedFromPartToPartAndComeBack) {
  Topology topology = StraightPipeline(4);
  topology.groups = {{.stages = {StageId(0), StageId(1), StageId(3)}}};
  const Traffic traffic = {.groups = {{.tied = {{.sum = {.parts = {0, 1, 3}}, .bytes = 100.0}}}}};
  // Down from 3 at 40 to 1 at 145 and to 0 at 250; from there to both.
  EXPECT_THAT(DoneAfter(topology, EqualLinks(5), traffic, {0, 7, 0, 40}),
              ElementsAre(250, 355, 0, 355));
  // Parts 0 and 3 of a V are on one worker, which needs no message for its own.
  topology = VPipeline(2);
  topology.groups = {{.stages = {StageId(0), StageId(1), StageId(3)}}};
  EXPECT_THAT(DoneAfter(topology, EqualLinks(5), traffic, {40, 0}), ElementsAre(250, 355));
}

TEST(CollectiveClock, CopiesOfWeights_GoToAllOthersFromTheOneThatUpdatedThem) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Topology topology,
                                Place(Placement::kRoundTrip, 3, 3, 6, std::nullopt));
  Traffic traffic;
  for (size_t group = 0; group < topology.groups.size(); ++group) {
    traffic.groups.push_back({.copied = 100.0});
  }
  for (size_t group = 0; group < topology.groups.size(); ++group) {
    WorkerId from;
    std::set<WorkerId> members;
    for (const StageId stage : topology.groups[group].stages) {
      members.insert(topology.worker(stage));
      if (topology[stage].updates) from = topology.worker(stage);
    }
    std::vector<int64_t> now_ns = {0, 0, 0};
    now_ns[from.value] = 50;
    now_ns[(from.value + 1) % 3] = 1000;  // is late, and finds them there
    std::vector<int64_t> expected_ns = now_ns;
    const WorkerId waits((from.value + 2) % 3);
    if (members.count(waits) > 0) expected_ns[waits.value] = 50 + 100 + 5;
    EXPECT_EQ(DoneAfter(topology, EqualLinks(5), traffic, now_ns,
                        {ActionKind::kReduce, static_cast<int32_t>(group), 0}),
              expected_ns);
  }
}

TEST(CollectiveClock, Norms_ComeFromAllThatHaveSome) {
  const auto done_after = [](const Traffic& traffic) {
    return DoneAfter(StraightPipeline(3), EqualLinks(50), traffic, {0, 100, 20},
                     {ActionKind::kNorm, 0, 0});
  };
  EXPECT_THAT(done_after({.norms = {8.0, 8.0, 8.0}}), ElementsAre(158, 100, 158));
  EXPECT_THAT(done_after({.norms = {8.0, 24.0, 8.0}}), ElementsAre(174, 100, 174));
  // A worker that updates nothing has no norm, and sends nothing.
  EXPECT_THAT(done_after({.norms = {8.0, 0.0, 8.0}}), ElementsAre(78, 100, 58));
}

TEST(SimulateOverWorkerLinks, EqualLinks_AreTheSameAsLinksBetweenStages) {
  for (const std::string name : {"gpipe", "1f1b", "zb-h1", "pipedream"}) {
    const ScheduleOptions options = {.topology = StraightPipeline(4), .microbatches_per_step = 6};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod(absl::string_view(name)));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                  BuildSchedule(*method, options, {.first = 0, .count = 18}));
    SimulationCosts by_stage;
    by_stage.links.assign(3, {.bytes = 3e8, .bytes_per_second = 1e9, .latency_s = 0.1});
    SimulationCosts by_worker = {.worker_links = WorkerLinks()};
    by_worker.worker_links->others = {.bytes_per_second = 1e9, .latency_s = 0.1};
    by_worker.traffic.boundary = 3e8;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult expected, Simulate(schedule, by_stage));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult got, Simulate(schedule, by_worker));
    EXPECT_EQ(got.makespan_s, expected.makespan_s) << name;
    EXPECT_EQ(got.steady_state_period_s, expected.steady_state_period_s) << name;
    // One slow link and two fast ones, either way.
    by_stage.links[1].latency_s = 0.7;
    by_worker.worker_links->pairs[{1, 2}] = {.bytes_per_second = 1e9, .latency_s = 0.7};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult slow, Simulate(schedule, by_stage));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult slow_got, Simulate(schedule, by_worker));
    EXPECT_EQ(slow_got.makespan_s, slow.makespan_s) << name;
    EXPECT_GT(slow.makespan_s, expected.makespan_s) << name;
  }
}

// With r replicas of one stage a step is m / r microbatches and the reduction, all of it visible.
TEST(SimulateOverWorkerLinks, DataParallelism_TakesItsPassesAndTheReductionOfEachStep) {
  for (const int32_t replicas : {1, 2, 4}) {
    ScheduleOptions options = {.topology = Replicas(replicas), .microbatches_per_step = 8};
    if (replicas == 1) options.topology = StraightPipeline(1);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                  BuildSchedule(*method, options, {.first = 0, .count = 40}));
    SimulationCosts costs = {.worker_links = WorkerLinks()};
    costs.worker_links->others = {.bytes_per_second = 1e9, .latency_s = 0.25};
    if (replicas > 1)
      costs.traffic.groups = {{.buckets = {{.parts = std::vector<double>(replicas, 5e8)}}}};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(schedule, costs));
    const double reduction = replicas == 1 ? 0.0 : 2 * (0.5 + 0.25);
    EXPECT_NEAR(result.makespan_s, 5 * (8.0 / replicas * 2.0 + reduction), 1e-6) << replicas;
  }
}

// Five buckets of two parts; the last W takes 0.5 s and has one whole after each tenth of a second.
//
// Where a part takes no more than half as long on a link, all of a turn is there before the next bucket is whole. After
// the W come the last parts, the sum before the last and the last sum: three messages. Where links are slow they carry
// something from the first bucket on, without a pause: 0.1 s and ten messages after the W began. Without BEGIN_REDUCE
// all ten come after it.
TEST(SimulateOverWorkerLinks, BucketsThatLeaveDuringTheLastW_LeaveTheRestToWaitFor) {
  constexpr int kBuckets = 5;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
  const ScheduleOptions options = {.topology = Replicas(2), .microbatches_per_step = 8};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                BuildSchedule(*method, options, {.first = 0, .count = 24}));
  Schedule without = schedule;
  for (Program& program : without.programs) {
    for (ActionList* list : {&program.prologue, &program.period, &program.epilogue}) {
      std::erase_if(*list,
                    [](const Action& action) { return action.kind == ActionKind::kBeginReduce; });
    }
  }
  const auto seconds = [](const Schedule& of, double message_s) {
    SimulationCosts costs = {.worker_links = WorkerLinks()};
    costs.worker_links->others = {.bytes_per_second = 1e9};
    costs.traffic.groups.resize(1);
    for (int bucket = 1; bucket <= kBuckets; ++bucket) {
      costs.traffic.groups[0].buckets.push_back(
          {.parts = {message_s * 1e9, message_s * 1e9}, .done = bucket / double{kBuckets}});
    }
    const absl::StatusOr<SimulationResult> result = Simulate(of, costs);
    EXPECT_THAT(result, IsOk());
    return result.ok() ? result->makespan_s / 3 : 0.0;
  };
  const double passes = 8.0 / 2 * 2.0;
  EXPECT_NEAR(seconds(schedule, 0.05), passes + 3 * 0.05, 1e-6);
  EXPECT_NEAR(seconds(schedule, 0.01), passes + 3 * 0.01, 1e-6);
  EXPECT_NEAR(seconds(schedule, 0.2), passes - 0.5 + 0.1 + 10 * 0.2, 1e-6);
  for (const double message_s : {0.01, 0.05, 0.2}) {
    EXPECT_NEAR(seconds(without, message_s), passes + 10 * message_s, 1e-6);
  }
}

// What was under way beside the last W is in the timeline, on a lane of its own.
TEST(SimulateOverWorkerLinks, ReductionThatBegan_IsSeenBesideTheLastW) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
  const ScheduleOptions options = {.topology = Replicas(2), .microbatches_per_step = 2};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                BuildSchedule(*method, options, {.first = 0, .count = 2}));
  SimulationCosts costs = {.worker_links = WorkerLinks()};
  costs.worker_links->others = {.bytes_per_second = 1e9};
  costs.traffic.groups = {
      {.buckets = {{.parts = {1e8, 1e8}, .done = 0.5}, {.parts = {1e8, 1e8}, .done = 1.0}}}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(schedule, costs, {.timeline_spans_max = 100}));
  int seen = 0;
  for (const Span& span : result.timeline.spans) {
    if (span.lane != Lane::kTransfer) continue;
    EXPECT_EQ(span.action, kReduce);
    EXPECT_EQ(span.start_ns, 1'750'000'000) << "F 1, I 0.5, half of W";
    EXPECT_EQ(span.end_ns, 2'300'000'000) << "three messages after it";
    ++seen;
  }
  EXPECT_EQ(seen, 2);
}

TEST(SimulateOverWorkerLinks, CostsThatDoNotFit_AreRefused) {
  const ScheduleOptions options = {.topology = StraightPipeline(2), .microbatches_per_step = 2};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("gpipe"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                BuildSchedule(*method, options, {.first = 0, .count = 2}));
  const auto refusal = [&](auto edit) {
    SimulationCosts costs = {.worker_links = WorkerLinks()};
    edit(costs);
    return Simulate(schedule, costs).status();
  };
  const auto invalid = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(refusal([](SimulationCosts& costs) { costs.links.resize(1); }),
              invalid("links between workers or between stages"));
  EXPECT_THAT(refusal([](SimulationCosts& costs) { costs.traffic.groups.resize(3); }),
              invalid("expected the bytes of 0 groups (or none), got 3"));
  EXPECT_THAT(refusal([](SimulationCosts& costs) {
                costs.worker_links->pairs[{0, 1}] = {.bytes_per_second = 0.0};
              }),
              invalid("link between workers 0 and 1: bytes per second must be positive"));
  EXPECT_THAT(refusal([](SimulationCosts& costs) {
                costs.worker_links->others.latency_s = std::numeric_limits<double>::quiet_NaN();
              }),
              invalid("latency"));
}

}  // namespace
}  // namespace penstock
