// The search for schedules: its clock against the simulator, its bound, and what it finds for random costs.
#include "schedule/search.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/random.h"
#include "schedule/catalog/catalog.h"
#include "schedule/search/bound.h"
#include "schedule/search/list_scheduling.h"
#include "schedule/search/step_clock.h"
#include "schedule/verify.h"
#include "schedule/warm_up.h"
#include "tests/schedule/schedules.h"
#include "tests/support/environment.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// All words of a worker that ListCheck allows, for the optimum by enumeration.
std::vector<PassList> AllLists(const StepProblem& problem, int32_t worker) {
  PassList list;
  for (const int32_t stage : problem.workers[worker].stages) {
    for (const Pass pass : {kPassF, kPassI, kPassW}) {
      list.insert(list.end(), problem.stages[stage].microbatches, PassId(stage, pass));
    }
  }
  std::sort(list.begin(), list.end());
  std::vector<PassList> lists;
  ListCheck check(problem);
  do {
    if (check.Allows(worker, list)) lists.push_back(list);
  } while (std::next_permutation(list.begin(), list.end()));
  return lists;
}

int64_t Optimum(const StepProblem& problem) {
  std::vector<std::vector<PassList>> lists;
  lists.reserve(problem.topology.workers);
  for (int32_t worker = 0; worker < problem.topology.workers; ++worker) {
    lists.push_back(AllLists(problem, worker));
  }
  StepClock clock(problem);
  int64_t best_ns = StepClock::kNever;
  std::vector<size_t> choice(lists.size(), 0);
  while (true) {
    StepOrder order;
    for (size_t worker = 0; worker < lists.size(); ++worker) {
      order.lists.push_back(lists[worker][choice[worker]]);
    }
    best_ns = std::min(best_ns, clock.Measure(order));
    size_t worker = 0;
    while (worker < lists.size() && ++choice[worker] == lists[worker].size()) choice[worker++] = 0;
    if (worker == lists.size()) return best_ns;
  }
}

SimulationCosts RandomCosts(const Topology& topology, bool with_overhead, RandomStream& random) {
  SimulationCosts costs;
  const auto time = [&random] { return 1.0 + 3.0 * random.Uniform(); };
  for (int32_t s = 0; s < topology.stages(); ++s) {
    costs.stages.push_back({time(), time(), time(), with_overhead ? time() / 2 : 0.0});
    if (s >= topology.links()) continue;
    costs.links.push_back({.latency_s = time() / 4});
    if (!with_overhead) continue;
    costs.links.back().bytes = 1.0;
    costs.links.back().bytes_per_second = 1.0 / time();
  }
  if (with_overhead) costs.overhead_s = 0.1;
  return costs;
}

// Gives every pair of workers a link of its own.
void LinkWorkers(const Topology& topology, RandomStream& random, SimulationCosts& costs) {
  costs.links.clear();
  costs.traffic.boundary = 1.0;
  WorkerLinks& links = costs.worker_links.emplace();
  for (int32_t one = 0; one < topology.workers; ++one) {
    for (int32_t other = one + 1; other < topology.workers; ++other) {
      links.pairs[{one, other}] = {.bytes_per_second = 0.5 + random.Uniform(),
                                   .latency_s = random.Uniform()};
    }
  }
}

Topology Replicated(const std::vector<int32_t>& replicas) {
  return ReplicatedStages(replicas, ReduceGroup::Operation::kSum);
}

Topology ReplicatedV(int32_t workers, int32_t replicas) {
  return PipelinesBesideEachOther(Placement::kV, 2 * workers, workers, replicas,
                                  ReduceGroup::Operation::kSum);
}

Schedule Lowered(const StepProblem& problem, const StepOrder& order) {
  const ScheduleOptions options{
      .topology = problem.topology,
      .microbatches_per_step = problem.microbatches,
      .listed = std::make_shared<const Schedule>(ToComputeSchedule(problem, order)),
      .send_gradient_early = true};
  return BuildSchedule(ListedMethod(), options, {0, problem.steps * problem.microbatches}).value();
}

// Orders that list scheduling gives, and what a few random swaps make of them: with messages that wait for
// room, links that are busy, and deadlocks.
TEST(StepClock, AnyOrder_TakesAsLongAsInTheSimulator) {
  RandomStream random(1, 0);
  int64_t endless = 0;
  int64_t measured = 0;
  for (const Topology& topology :
       {StraightPipeline(1), StraightPipeline(4), LoopedPipeline(6, 3), VPipeline(3)}) {
    for (int round = 0; round < 60; ++round) {
      const int32_t capacity = 1 + static_cast<int32_t>(random.Below(4));
      const SimulationCosts costs = RandomCosts(topology, round % 2 == 0, random);
      const StepProblem problem =
          MakeStepProblem(topology, 6, costs, std::vector<int64_t>(topology.workers, 9), capacity,
                          /*steps=*/1 + round % 3)
              .value();
      const std::vector<ListRule> rules = ListRules(problem);
      std::optional<StepOrder> order = ListSchedule(problem, rules[random.Below(rules.size())]);
      if (!order) continue;
      StepClock clock(problem);
      ListCheck check(problem);
      for (int swaps = 0; swaps < 12; ++swaps) {
        const auto worker = static_cast<int32_t>(random.Below(topology.workers));
        PassList& list = order->lists[worker];
        const size_t place = random.Below(list.size() - 1);
        std::swap(list[place], list[place + 1]);
        if (!check.Allows(worker, list)) std::swap(list[place], list[place + 1]);
        const absl::StatusOr<SimulationResult> expected =
            Simulate(Lowered(problem, *order), costs, {.channel_capacity = capacity});
        const int64_t makespan_ns = clock.Measure(*order);
        ++measured;
        if (makespan_ns == StepClock::kNever) {
          ++endless;
          EXPECT_THAT(expected,
                      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("deadlock")));
        } else {
          ASSERT_THAT(expected, IsOk());
          EXPECT_DOUBLE_EQ(static_cast<double>(makespan_ns) / 1e9, expected->makespan_s);
        }
      }
    }
  }
  EXPECT_GT(measured, 2000);
  EXPECT_GT(endless, 0);
}

// When a worker has done its last pass: what follows waits for other replicas in the simulator, and not in the search.
int64_t EndOfPassesNs(const SimulationResult& simulated, int32_t worker) {
  int64_t end_ns = 0;
  for (const Span& span : simulated.timeline.spans) {
    if (span.worker.value != worker || span.lane != Lane::kCompute) continue;
    if (span.action.kind != ActionKind::kUpdate) end_ns = std::max(end_ns, span.end_ns);
  }
  return end_ns;
}

SimulationOptions WithTimeline(int32_t channel_capacity) {
  return {.channel_capacity = channel_capacity, .timeline_spans_max = 1'000'000};
}

// Steps that run on are one long step for the simulator, whose replicas would wait for each other between two. Without
// overhead and updates the search counts nothing there.
TEST(StepClock, AnyOrderOfReplicas_EndsItsPassesWhenTheSimulatorDoes) {
  constexpr int64_t kMicrobatches = 12;
  RandomStream random(11, 0);
  int64_t endless = 0;
  int64_t measured = 0;
  for (const Topology& topology :
       {Replicated({2, 2}), Replicated({4}), Replicated({3, 1}), Replicated({1, 3}),
        Replicated({2, 3}), Replicated({2, 1, 3}), Replicated({1, 2, 1}), Replicated({4, 3, 2}),
        ReplicatedV(2, 2)}) {
    for (int round = 0; round < 24; ++round) {
      const int32_t capacity = 1 + static_cast<int32_t>(random.Below(3));
      const bool with_overhead = round % 2 == 0;
      const int64_t steps = with_overhead ? 1 : 1 + round / 2 % 3;
      SimulationCosts costs = RandomCosts(topology, with_overhead, random);
      if (round % 3 == 0) LinkWorkers(topology, random, costs);
      const std::vector<int64_t> memory(topology.workers, 5);
      const StepProblem problem =
          MakeStepProblem(topology, kMicrobatches, costs, memory, capacity, steps).value();
      const StepProblem all_steps =
          MakeStepProblem(topology, steps * kMicrobatches, costs, memory, capacity).value();
      const int64_t bound_ns = StepBound(problem);
      const std::vector<ListRule> rules = ListRules(problem);
      std::optional<StepOrder> order = ListSchedule(problem, rules[random.Below(rules.size())]);
      if (!order) continue;
      StepClock clock(problem);
      ListCheck check(problem);
      for (int swaps = 0; swaps < 12; ++swaps) {
        const auto worker = static_cast<int32_t>(random.Below(topology.workers));
        PassList& list = order->lists[worker];
        const size_t place = random.Below(list.size() - 1);
        std::swap(list[place], list[place + 1]);
        if (!check.Allows(worker, list)) std::swap(list[place], list[place + 1]);
        StepOrder again = *order;
        for (size_t id = 0; id < again.lists.size(); ++id) {
          for (int64_t step = 1; step < steps; ++step) {
            const PassList& once = order->lists[id];
            again.lists[id].insert(again.lists[id].end(), once.begin(), once.end());
          }
        }
        const absl::StatusOr<SimulationResult> expected =
            Simulate(Lowered(all_steps, again), costs, WithTimeline(capacity));
        const int64_t makespan_ns = clock.Measure(*order);
        ++measured;
        if (makespan_ns == StepClock::kNever) {
          ++endless;
          EXPECT_THAT(expected,
                      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("deadlock")));
          continue;
        }
        ASSERT_THAT(expected, IsOk());
        EXPECT_LE(bound_ns, makespan_ns);
        for (int32_t id = 0; id < topology.workers; ++id) {
          const int64_t after_ns = problem.workers[id].update_ns + problem.overhead_ns;
          ASSERT_EQ(clock.end_ns(id) - after_ns, EndOfPassesNs(*expected, id)) << "worker " << id;
        }
      }
    }
  }
  EXPECT_GT(measured, 2000);
  EXPECT_GT(endless, 0);
}

TEST(SearchSchedule, SmallSteps_FindsTheOptimumOfAllOrders) {
  RandomStream random(2, 0);
  for (int round = 0; round < 24; ++round) {
    const int32_t stages = 2 + round % 2;
    const auto microbatches = static_cast<int64_t>(2 + random.Below(2));
    SearchOptions options{.costs = RandomCosts(StraightPipeline(stages), round % 4 == 0, random),
                          .moves = 5000};
    for (int32_t s = 0; s < stages; ++s) options.activations_max.push_back(1 + random.Below(3));
    const StepProblem problem =
        MakeStepProblem(StraightPipeline(stages), microbatches, options.costs,
                        options.activations_max, options.channel_capacity)
            .value();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult found,
                                  SearchSchedule(StraightPipeline(stages), microbatches, options));
    const double optimum_s = static_cast<double>(Optimum(problem)) / 1e9;
    EXPECT_DOUBLE_EQ(found.makespan_s, optimum_s) << "round " << round;
    EXPECT_LE(found.bound_s, optimum_s) << "round " << round;
  }
}

TEST(SearchSchedule, SmallStepsOfReplicas_FindsTheOptimumOfAllOrders) {
  RandomStream random(12, 0);
  struct Case {
    std::vector<int32_t> replicas;
    int64_t microbatches;
  };
  for (const Case& one : {Case{{2, 1}, 4},
                          {{1, 2}, 4},
                          {{2, 2}, 4},
                          {{3, 1}, 3},
                          {{1, 3}, 3},
                          {{1, 2, 1}, 2},
                          {{2, 1, 2}, 2},
                          {{3, 2}, 6}}) {
    const Topology topology = Replicated(one.replicas);
    for (int round = 0; round < 3; ++round) {
      SearchOptions options{.costs = RandomCosts(topology, round == 0, random), .moves = 5000};
      for (int32_t worker = 0; worker < topology.workers; ++worker) {
        options.activations_max.push_back(1 + random.Below(2));
      }
      const StepProblem problem = MakeStepProblem(topology, one.microbatches, options.costs,
                                                  options.activations_max, options.channel_capacity)
                                      .value();
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult found,
                                    SearchSchedule(topology, one.microbatches, options));
      const double optimum_s = static_cast<double>(Optimum(problem)) / 1e9;
      EXPECT_DOUBLE_EQ(found.makespan_s, optimum_s) << "round " << round;
      EXPECT_LE(found.bound_s, optimum_s) << "round " << round;
    }
  }
}

// As many replicas everywhere that take the same times are pipelines beside each other.
TEST(SearchSchedule, AsManyReplicasOfEachStage_AreBoundedLikeOnePipeline) {
  RandomStream random(13, 0);
  for (const int32_t replicas : {2, 3}) {
    for (int round = 0; round < 6; ++round) {
      const Topology alone = StraightPipeline(4);
      const Topology together = Replicated(std::vector<int32_t>(4, replicas));
      SearchOptions of_one{.costs = RandomCosts(alone, round % 2 == 0, random), .moves = 3000};
      SearchOptions of_all = of_one;
      of_all.moves = 12'000;
      of_all.costs.stages.clear();
      for (const StageCosts& stage : of_one.costs.stages) {
        of_all.costs.stages.insert(of_all.costs.stages.end(), replicas, stage);
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult one, SearchSchedule(alone, 6, of_one));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult all,
                                    SearchSchedule(together, 6 * replicas, of_all));
      EXPECT_DOUBLE_EQ(all.bound_s, one.bound_s);
      EXPECT_NEAR(all.makespan_s, one.makespan_s, 0.02 * one.makespan_s);
    }
  }
}

// The best of the synchronous methods by the simulator's passes, as the search counts them.
TEST(SearchSchedule, Replicas_KeepToTheMemoryAndAreNeverSlowerThanTheCatalog) {
  RandomStream random(14, 0);
  int faster = 0;
  int sets = 0;
  for (const std::vector<int32_t>& replicas : std::vector<std::vector<int32_t>>{
           {2, 2}, {4}, {3, 1}, {1, 3}, {2, 3}, {2, 1, 2}, {4, 2, 1}}) {
    const Topology topology = Replicated(replicas);
    const int64_t microbatches = 12;
    const auto length = [&](const Schedule& schedule, const SimulationCosts& costs) {
      const SimulationResult simulated =
          Simulate(schedule, costs, WithTimeline(kChannelCapacity)).value();
      int64_t end_ns = 0;
      for (int32_t worker = 0; worker < topology.workers; ++worker) {
        end_ns = std::max(end_ns, EndOfPassesNs(simulated, worker));
      }
      return static_cast<double>(end_ns) / 1e9;
    };
    for (int round = 0; round < 6; ++round) {
      SearchOptions options{.costs = RandomCosts(topology, false, random), .moves = 5000};
      if (round % 2 == 0) LinkWorkers(topology, random, options.costs);
      for (int32_t s = 0; s < topology.stages(); ++s) {  // or the place with fewest decides alone
        StageCosts& stage = options.costs.stages[s];
        const double shares = topology.table[s].replicas;
        for (double* time : {&stage.forward_s, &stage.backward_input_s, &stage.backward_weight_s}) {
          *time *= shares;
        }
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult found,
                                    SearchSchedule(topology, microbatches, options));
      EXPECT_DOUBLE_EQ(length(found.schedule, options.costs), found.makespan_s);
      EXPECT_LE(found.bound_s, found.makespan_s);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(found.schedule));
      const std::vector<int64_t> warm_ups = WarmUpForwards(replicas, ReplicasMeet::kAtSteps);
      const int64_t most = 1 + *std::max_element(warm_ups.begin(), warm_ups.end());
      for (const auto& stage : report.stages) EXPECT_LE(stage.activations_peak, most);
      const ScheduleOptions of_catalog{
          .topology = topology, .microbatches_per_step = microbatches, .send_gradient_early = true};
      const Schedule plain =
          BuildSchedule(**FindMethod("1f1b"), of_catalog, {0, microbatches}).value();
      EXPECT_NE(found.catalog_method, "");
      EXPECT_LE(found.catalog_makespan_s, length(plain, options.costs));
      EXPECT_LE(found.makespan_s, found.catalog_makespan_s);
      faster += found.makespan_s < found.catalog_makespan_s;
      ++sets;
    }
  }
  EXPECT_GE(3 * faster, sets);
}

// Equal times and the memory of zb-h2: only the wait for the first microbatch is left.
TEST(SearchSchedule, EqualTimesAndRoom_LeavesTheFillAlone) {
  for (const int32_t stages : {2, 4, 8}) {
    const int64_t microbatches = 3 * stages;
    const SearchOptions options{.costs = {.stages = std::vector<StageCosts>(stages, {1, 1, 1, 0})},
                                .activations_max = std::vector<int64_t>(stages, 2 * stages - 1)};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult found,
                                  SearchSchedule(StraightPipeline(stages), microbatches, options));
    EXPECT_DOUBLE_EQ(found.bound_s, double(3 * microbatches + stages - 1));
    EXPECT_DOUBLE_EQ(found.makespan_s, found.bound_s);
  }
}

// Steps that run on: with the memory of zb-h2 each worker fills the drain of one with the next, and the fill comes once.
TEST(SearchSchedule, StepsThatRunOn_AreShorterThanStepsOneByOne) {
  RandomStream random(8, 0);
  for (int round = 0; round < 8; ++round) {
    SearchOptions options{.costs = RandomCosts(StraightPipeline(4), round % 2 == 0, random),
                          .moves = 4000};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult one,
                                  SearchSchedule(StraightPipeline(4), 8, options));
    options.steps = 3;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult three,
                                  SearchSchedule(StraightPipeline(4), 8, options));
    EXPECT_LE(three.makespan_s, 3 * one.makespan_s);
    EXPECT_LE(three.bound_s, three.makespan_s);
    EXPECT_LE(three.makespan_s, three.catalog_makespan_s);
    const ScheduleOptions listed{.topology = three.schedule.topology,
                                 .microbatches_per_step = 8,
                                 .listed = std::make_shared<const Schedule>(three.schedule)};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule steps,
                                  BuildSchedule(ListedMethod(), listed, {0, 24}));
    EXPECT_DOUBLE_EQ(Simulate(steps, options.costs)->makespan_s, three.makespan_s);
  }
}

TEST(SearchSchedule, SameArguments_GiveTheSameSchedule) {
  RandomStream random(3, 0);
  SearchOptions options{
      .costs = RandomCosts(StraightPipeline(5), true, random), .moves = 3000, .seed = 7};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult first,
                                SearchSchedule(StraightPipeline(5), 11, options));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult second,
                                SearchSchedule(StraightPipeline(5), 11, options));
  EXPECT_EQ(first.schedule, second.schedule);
}

// Several stages on a worker, each with half of the work: what the methods for it reach, and no less.
TEST(SearchSchedule, SeveralStagesOnAWorker_KeepToTheMemoryAndBeatTheirMethods) {
  RandomStream random(4, 0);
  for (const Topology& topology : {VPipeline(4), LoopedPipeline(8, 4), LoopedPipeline(9, 3)}) {
    SearchOptions options{.costs = RandomCosts(topology, false, random),
                          .activations_max = std::vector<int64_t>(topology.workers, 14),
                          .moves = 10'000};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchSchedule(topology, 12, options));
    EXPECT_THAT(Verify(found.schedule), IsOk());
    EXPECT_DOUBLE_EQ(Simulate(found.schedule, options.costs)->makespan_s, found.makespan_s);
    EXPECT_GE(found.makespan_s, found.bound_s);
    if (!found.catalog_method.empty()) {
      EXPECT_LE(found.makespan_s, found.catalog_makespan_s);
    }
    for (const Program& program : found.schedule.programs) {
      int64_t kept = 0;
      for (const Action& action : Expand(program)) {
        kept += action.kind == ActionKind::kForward          ? 1
                : action.kind == ActionKind::kBackwardWeight ? -1
                                                             : 0;
        EXPECT_LE(kept, 14);
      }
    }
  }
}

TEST(SearchSchedule, LeastMemoryAndChannels_StillFindsAnOrder) {
  RandomStream random(6, 0);
  for (const Topology& topology :
       {StraightPipeline(5), VPipeline(3), LoopedPipeline(6, 2), Replicated({7, 1, 7}),
        Replicated({1, 7, 1}), ReplicatedV(2, 7)}) {
    const SearchOptions options{.costs = RandomCosts(topology, true, random),
                                .activations_max = std::vector<int64_t>(
                                    topology.workers, topology.stages() / topology.workers),
                                .moves = 1000,
                                .channel_capacity = 1};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchSchedule(topology, 7, options));
    EXPECT_THAT(Verify(found.schedule, {.channel_capacity = 1}), IsOk());
  }
}

TEST(SearchSchedule, WrittenAsText_RunsAsAListedStep) {
  RandomStream random(5, 0);
  for (const Topology& topology : {StraightPipeline(4), Replicated({2, 1, 4})}) {
    const SearchOptions options{.costs = RandomCosts(topology, false, random), .moves = 2000};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchSchedule(topology, 8, options));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule read,
                                  ParseSchedule(PrintSchedule(found.schedule)));
    EXPECT_EQ(read, found.schedule);
    const ScheduleOptions listed{.topology = read.topology,
                                 .microbatches_per_step = 8,
                                 .listed = std::make_shared<const Schedule>(read),
                                 .global_norm = true};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule steps,
                                  BuildSchedule(ListedMethod(), listed, {16, 24}));
    EXPECT_THAT(Verify(steps), IsOk());
  }
}

TEST(SearchSchedule, WhatCannotBeSearched_IsSaidWithTheReason) {
  const auto expect_refused = [](int32_t stages, int64_t microbatches, const SearchOptions& options,
                                 const char* expected) {
    EXPECT_THAT(SearchSchedule(StraightPipeline(stages), microbatches, options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(expected)));
  };
  expect_refused(4, 0, {}, "1 to 8333 microbatches, got 0");
  expect_refused(4, int64_t{1} << 40, {}, "1 to 8333 microbatches");
  expect_refused(0, 4, {}, "at least one stage");
  expect_refused(3, 4, {.activations_max = {1, 2}},
                 "2 numbers; expected one for each of 3 workers");
  expect_refused(3, 4, {.activations_max = {1, 0, 1}}, "memory of worker 1 is 0 activations");
  expect_refused(3, 4, {.channel_capacity = 0}, "at least 1 message");
  expect_refused(2, 4, {.costs = {.stages = {{}, {.forward_s = -1}}}}, "stage 1: forward time");
  expect_refused(2, 4000, {.costs = {.stages = {{}, {.forward_s = 1e6}}}}, "than 100 years");
  expect_refused(2, 4, {.costs = {.stages = {{}}}}, "expected costs of 2 stages");
  EXPECT_THAT(SearchSchedule(Replicated({2, 3}), 8, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("with 2,3 replicas takes a multiple of 6 microbatches")));
  EXPECT_THAT(SearchSchedule(ReplicatedPipelines(2, 2), 4, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one pipeline")));
}

// A training step with random costs. Times differ by up to about a factor of 4.
struct RandomStep {
  Topology topology;
  int64_t microbatches = 0;
  SearchOptions options;
};

// What a worker may keep: from what 1F1B keeps to twice as much (`room` 0 to 1; below 0: random for each).
enum class Memory { kOfTheFirstWorker, kOfEachWorker };

RandomStep MakeRandomStep(uint64_t number, Memory memory, double room) {
  RandomStream random(number, 1);
  const auto stages = static_cast<int32_t>(2 + random.Below(7));
  RandomStep step{.topology = StraightPipeline(stages),
                  .microbatches = static_cast<int64_t>(stages + random.Below(3 * stages + 1))};
  step.options.costs = RandomCosts(StraightPipeline(stages), false, random);
  for (int32_t s = 0; s < stages; ++s) {
    const int64_t least = memory == Memory::kOfEachWorker ? stages - s : stages;
    const auto more = room < 0 ? static_cast<int64_t>(random.Below(least + 1))
                               : static_cast<int64_t>(room * static_cast<double>(least));
    step.options.activations_max.push_back(least + more);
  }
  step.options.seed = number;
  return step;
}

// The best of the catalog as the simulator and the verifier see it, with the gradients sent early and not.
double BestOfCatalog(const RandomStep& step) {
  double best = 1e300;
  for (const Method& method : Methods()) {
    for (const bool early : {false, true}) {
      const ScheduleOptions options{.topology = step.topology,
                                    .microbatches_per_step = step.microbatches,
                                    .send_gradient_early = early};
      const MicrobatchRange range{0, step.microbatches};
      if (!method.synchronous || !CheckBuildable(method, options, range).ok()) continue;
      const Schedule schedule = BuildSchedule(method, options, range).value();
      const VerifyReport report = Verify(schedule).value();
      bool fits = true;
      for (int32_t s = 0; s < step.topology.stages(); ++s) {
        fits = fits && report.stages[s].activations_peak <= step.options.activations_max[s];
      }
      if (!fits) continue;
      const auto result = Simulate(schedule, step.options.costs,
                                   {.channel_capacity = step.options.channel_capacity});
      if (result.ok()) best = std::min(best, result->makespan_s);
    }
  }
  return best;
}

struct Figures {
  int sets = 0;
  int slower = 0;
  int faster = 0;
  int optimal = 0;            // as short as the bound
  std::vector<double> gaps;   // over the bound
  std::vector<double> gains;  // of the catalog's best over the searched

  static double Quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  }
  std::string ToString() const {
    return absl::StrFormat(
        "%d sets: slower than the catalog %d, faster %d, proven the shortest %d; gap median %.2f "
        "%%, 90 %% %.2f %%, max %.2f "
        "%%; catalog longer by median %.1f %%",
        sets, slower, faster, optimal, 100 * Quantile(gaps, 0.5), 100 * Quantile(gaps, 0.9),
        100 * Quantile(gaps, 1), 100 * Quantile(gains, 0.5));
  }
};

Figures SearchMany(int sets, Memory memory, double room, int64_t moves) {
  Figures figures;
  for (int i = 0; i < sets; ++i) {
    RandomStep step = MakeRandomStep(i, memory, room);
    step.options.moves = moves;
    const SearchResult found =
        SearchSchedule(step.topology, step.microbatches, step.options).value();
    const VerifyReport report = Verify(found.schedule).value();
    for (int32_t s = 0; s < step.topology.stages(); ++s) {
      EXPECT_LE(report.stages[s].activations_peak, step.options.activations_max[s]);
      EXPECT_EQ(report.stages[s].versions_peak, 1);
    }
    const auto simulated = Simulate(found.schedule, step.options.costs,
                                    {.channel_capacity = step.options.channel_capacity});
    EXPECT_DOUBLE_EQ(simulated.value().makespan_s, found.makespan_s);
    EXPECT_LE(found.bound_s, found.makespan_s);
    const double catalog = BestOfCatalog(step);
    ++figures.sets;
    if (found.makespan_s > catalog) ++figures.slower;
    if (found.makespan_s < catalog) ++figures.faster;
    if (found.gap() < 1e-9) ++figures.optimal;
    figures.gaps.push_back(found.gap());
    figures.gains.push_back(catalog / found.makespan_s - 1);
  }
  return figures;
}

// SEARCH_SETS=200 SEARCH_MOVES=200000 gives the figures of the documentation.
TEST(SearchSchedule, RandomCosts_NeverSlowerThanTheCatalogAndOftenFaster) {
  const int sets = EnvironmentNumber("SEARCH_SETS", 12);
  const int moves = EnvironmentNumber("SEARCH_MOVES", 10'000);
  struct Case {
    const char* name;
    Memory memory;
    double room;
  };
  for (const Case& one :
       {Case{"memory 1 to 2 times that of 1f1b's first worker", Memory::kOfTheFirstWorker, -1},
        {"memory 1 to 2 times that of 1f1b's same worker", Memory::kOfEachWorker, -1},
        {"memory of 1f1b's first worker", Memory::kOfTheFirstWorker, 0},
        {"twice that", Memory::kOfTheFirstWorker, 1},
        {"memory of 1f1b's same worker", Memory::kOfEachWorker, 0},
        {"one and a half times that", Memory::kOfEachWorker, 0.5},
        {"twice that", Memory::kOfEachWorker, 1}}) {
    const Figures figures = SearchMany(sets, one.memory, one.room, moves);
    std::cout << one.name << ": " << figures.ToString() << std::endl;
    EXPECT_EQ(figures.slower, 0);
    EXPECT_GE(2 * figures.faster, one.room == 0 ? 0 : figures.sets);
    EXPECT_LE(Figures::Quantile(figures.gaps, 0.5), one.room == 1 ? 0.03 : 1.0);
  }
}

}  // namespace
}  // namespace penstock
