// Places with replicas: methods that have them on any numbers of them, uneven neighbours included.
#include "schedule/catalog/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedule/digest.h"
#include "schedule/render_text.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using StageReplicas = std::vector<int32_t>;

// All lists of 1 to 3 places with up to 4 replicas, and larger ones.
std::vector<StageReplicas> ManyReplicas() {
  std::vector<StageReplicas> all;
  for (int32_t a = 1; a <= 4; ++a) {
    all.push_back({a});
    for (int32_t b = 1; b <= 4; ++b) {
      all.push_back({a, b});
      for (int32_t c = 1; c <= 4; ++c) all.push_back({a, b, c});
    }
  }
  for (const StageReplicas& more : {StageReplicas{9, 4, 3},
                                    {7, 1},
                                    {1, 7},
                                    {6, 4},
                                    {5, 8, 2},
                                    {2, 1, 3, 1},
                                    {1, 2, 4, 8},
                                    {8, 4, 2, 1},
                                    {3, 1, 1, 1, 2},
                                    {2, 2, 2, 2},
                                    {12}}) {
    all.push_back(more);
  }
  return all;
}

bool IsPlain(const StageReplicas& replicas) {
  return *std::max_element(replicas.begin(), replicas.end()) == 1;
}

ScheduleOptions OptionsOf(const Method& method, const StageReplicas& replicas, int64_t cycles) {
  const int64_t cycle = CycleOf(replicas);
  return {.topology = PlaceReplicas(method, replicas).value(),
          .microbatches_per_step = cycles * cycle};
}

// Of `cycles` times the cycle of the replicas, in `steps` steps.
Schedule Build(absl::string_view name, const StageReplicas& replicas, int64_t cycles, int64_t steps,
               int64_t first_step = 0) {
  const Method& method = **FindMethod(name);
  const ScheduleOptions options = OptionsOf(method, replicas, cycles);
  const int64_t step = options.microbatches_per_step;
  return BuildSchedule(method, options, {first_step * step, steps * step}).value();
}

// Every place passes a microbatch on in each `period_s`, a third of it forwards.
SimulationCosts Balanced(const Topology& topology, double period_s) {
  SimulationCosts costs;
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const double own_s = period_s * topology[StageId(id)].replicas;
    costs.stages.push_back(
        {.forward_s = own_s / 3, .backward_input_s = own_s / 3, .backward_weight_s = own_s / 3});
  }
  return costs;
}

TEST(Replicas, AnyNumbers_Verify_AsWithoutAShortcut) {
  for (const absl::string_view name : {"gpipe", "1f1b", "zb-h1", "zb-h2", "pipedream"}) {
    for (const StageReplicas& replicas : ManyReplicas()) {
      for (const int64_t first_step : {0, 5}) {
        SCOPED_TRACE(absl::StrCat(std::string(name), " ", absl::StrJoin(replicas, ","), " from ",
                                  first_step));
        const Schedule schedule = Build(name, replicas, 2, 12, first_step);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport full, VerifyWithoutShortcut(schedule));
        EXPECT_EQ(report.stages, full.stages);
        EXPECT_EQ(report.channel_capacity_min, full.channel_capacity_min);
        EXPECT_LE(report.channel_capacity_min, kChannelCapacity);
      }
    }
  }
}

TEST(Replicas, LongRanges_AreVerifiedByTheirSteadyState) {
  for (const absl::string_view name : {"1f1b", "zb-h1", "pipedream"}) {
    std::vector<StageReplicas> all = ManyReplicas();
    all.push_back(
        {4, 1,
         4});  // with channels of one message its places are never at the ends of their periods
    for (const StageReplicas& replicas : all) {
      SCOPED_TRACE(absl::StrCat(std::string(name), " ", absl::StrJoin(replicas, ",")));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                                    Verify(Build(name, replicas, 1, 1'000'000)));
      EXPECT_LT(report.actions_run, report.actions / 100);
      EXPECT_LE(report.channel_capacity_min, 2);
    }
  }
}

// Forwards before the first backward, by the rule that replicas.cc derives.
TEST(Replicas, WarmUp_MatchesTheRule) {
  EXPECT_THAT(WarmUpForwards({1, 1, 1, 1}, ReplicasMeet::kAtUpdates), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(WarmUpForwards({2, 2, 2}, ReplicasMeet::kAtUpdates), ElementsAre(2, 1, 0));
  EXPECT_THAT(WarmUpForwards({3, 1}, ReplicasMeet::kAtUpdates), ElementsAre(1, 0));
  EXPECT_THAT(WarmUpForwards({1, 3}, ReplicasMeet::kAtUpdates), ElementsAre(5, 0));
  EXPECT_THAT(WarmUpForwards({1, 3}, ReplicasMeet::kAtSteps), ElementsAre(3, 0));
  EXPECT_THAT(WarmUpForwards({2, 3}, ReplicasMeet::kAtUpdates), ElementsAre(3, 0));
  EXPECT_THAT(WarmUpForwards({9, 4, 3}, ReplicasMeet::kAtUpdates), ElementsAre(3, 2, 0));
  EXPECT_THAT(WarmUpForwards({9, 4, 3}, ReplicasMeet::kAtSteps), ElementsAre(1, 1, 0));
  EXPECT_THAT(WarmUpForwards({4}, ReplicasMeet::kAtUpdates), ElementsAre(0));
}

TEST(Replicas, PipeDream_HasNoBubbleInItsSteadyState) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    const Schedule schedule = Build("pipedream", replicas, 40, 1);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                  Simulate(schedule, Balanced(schedule.topology, 6.0)));
    EXPECT_NEAR(result.steady_state_period_s, 6.0, 1e-6);
  }
}

// Three workers share the first stage, whose passes take three times as long.
TEST(Replicas, PipeDreamOnThreeAndOne_HasItsGoldenPicture) {
  const Schedule schedule = Build("pipedream", {3, 1}, 4, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult result,
      Simulate(schedule, Balanced(schedule.topology, 3.0), {.timeline_spans_max = 1000}));
  const std::string picture =
      absl::StrCat("pipedream with 3,1 replicas, every place a microbatch in 3\n\n",
                   RenderText(result.timeline, {.slot_ns = 500'000'000, .columns = 120}), "\n",
                   PrintSchedule(schedule, {.merge_backward = true}));
  ExpectEqualsGolden("schedule/pipedream-replicas-3-1.txt", picture);
}

// What a stage keeps, and how late its updates are, by the closed forms of pipedream.cc.
TEST(Replicas, PipeDream_CountsMatchTheClosedForms) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    const Schedule schedule = Build("pipedream", replicas, 12, 3);
    const Topology& topology = schedule.topology;
    const std::vector<int64_t> warm_up = WarmUpForwards(replicas, ReplicasMeet::kAtUpdates);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
    for (int32_t id = 0; id < topology.stages(); ++id) {
      const int32_t place = topology[StageId(id)].place;
      const int64_t w = warm_up[place];
      const int64_t updates = schedule.range.count / replicas[place];
      const StageCounts& counts = report.stages[id];
      EXPECT_EQ(counts.activations_peak, w + 1);
      EXPECT_EQ(counts.versions_peak, w + 1);
      EXPECT_EQ(counts.staleness.updates, updates);
      EXPECT_EQ(counts.staleness.microbatches, updates) << "those of this replica";
      EXPECT_EQ(counts.staleness.max, w);
      EXPECT_EQ(counts.staleness.sum, w * updates - w * (w - 1) / 2 - w) << "fills up: 0, 1, .. w";
      EXPECT_EQ(counts.version_drift.max, 0);
    }
  }
}

TEST(Replicas, Synchronous_OneVersion_OneUpdateAStep_AndTheStashOfTheWarmUp) {
  for (const absl::string_view name : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    for (const StageReplicas& replicas : ManyReplicas()) {
      SCOPED_TRACE(absl::StrCat(std::string(name), " ", absl::StrJoin(replicas, ",")));
      const Schedule schedule = Build(name, replicas, 6, 4);
      const Topology& topology = schedule.topology;
      const std::vector<int64_t> warm_up = WarmUpForwards(replicas, ReplicasMeet::kAtSteps);
      const int64_t step = schedule.range.count / 4;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      for (int32_t id = 0; id < topology.stages(); ++id) {
        const int32_t place = topology[StageId(id)].place;
        const int64_t own = step / replicas[place];
        const StageCounts& counts = report.stages[id];
        EXPECT_EQ(counts.versions_peak, 1);
        EXPECT_EQ(counts.staleness.max, 0);
        EXPECT_EQ(counts.staleness.updates, 4);
        EXPECT_EQ(counts.staleness.microbatches, 4 * own);
        const int64_t most = std::max(warm_up[0], warm_up[place]);
        const int64_t stash = name == "gpipe"   ? own
                              : name == "zb-h1" ? most + 1
                              : name == "zb-h2" ? 2 * most + 1
                                                : warm_up[place] + 1;
        EXPECT_EQ(counts.activations_peak, std::min(own, stash));
      }
    }
  }
}

// Once the pipeline is full a step of 1f1b loses no time to waiting: twice as many microbatches take as much
// longer as the places need for them.
TEST(Replicas, OneFOneB_HasNoBubbleBetweenFillAndDrain) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    const auto makespan = [&](int64_t cycles) {
      const Schedule schedule = Build("1f1b", replicas, cycles, 1);
      return Simulate(schedule, Balanced(schedule.topology, 6.0)).value().makespan_s;
    };
    const auto cycle = static_cast<double>(CycleOf(replicas));
    EXPECT_NEAR(makespan(80) - makespan(40), 40 * cycle * 6.0, 1e-6);
  }
}

// Weight gradients fill the drain: a step of zb-h1 is shorter than one of 1f1b, and none of zb-h2, whose gain is between
// steps, is longer. This holds for as many replicas of each place; of unlike numbers the papers say nothing.
TEST(Replicas, AsManyOfEach_DelayedWeightGradientsShortenTheDrain) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    const auto makespan = [&](absl::string_view name) {
      const Schedule schedule = Build(name, replicas, 40, 1);
      return Simulate(schedule, Balanced(schedule.topology, 6.0)).value().makespan_s;
    };
    const bool alike =
        std::count(replicas.begin(), replicas.end(), replicas[0]) == std::ssize(replicas);
    if (!alike || replicas.size() == 1) continue;
    EXPECT_LT(makespan("zb-h1"), makespan("1f1b"));
    EXPECT_LE(makespan("zb-h2"), makespan("zb-h1") + 1e-9);
  }
}

TEST(Replicas, SameNumberEverywhere_ArePipelinesBesideEachOther) {
  for (const absl::string_view name : {"1f1b", "zb-h1", "zb-h2"}) {
    for (const int32_t stages : {1, 2, 4}) {
      for (const int32_t count : {2, 3, 5}) {
        SCOPED_TRACE(absl::StrCat(std::string(name), ", ", stages, " stages of ", count));
        const Schedule wide = Build(name, StageReplicas(stages, count), 8, 1);
        const Schedule plain = Build(name, StageReplicas(stages, 1), 8, 1);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult one, Simulate(plain, {}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult all, Simulate(wide, {}));
        EXPECT_EQ(all.makespan_s, one.makespan_s);
      }
    }
  }
}

TEST(Replicas, OneEverywhere_IsThePlainPipelineToTheByte) {
  for (const absl::string_view name : {"gpipe", "1f1b", "zb-h1", "zb-h2", "pipedream"}) {
    for (const int32_t stages : {1, 3, 4}) {
      const Schedule schedule = Build(name, StageReplicas(stages, 1), 8, 2);
      EXPECT_EQ(PrintSchedule(schedule), PrintSchedule(CatalogSchedule(name, stages, 8, {0, 16})));
    }
  }
}

// Who a stage exchanges messages with, in the order of its microbatches.
TEST(Replicas, Neighbours_AreThoseWithACommonMicrobatch) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    if (IsPlain(replicas)) continue;
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    const Topology topology = ReplicatedStages(replicas, ReduceGroup::Operation::kSum);
    std::map<int32_t, std::pair<StageId, StageId>> ends;  // by channel: sender and receiver
    for (int64_t m = 0; m < 2 * topology.cycle; ++m) {
      for (int32_t place = 0; place + 1 < topology.depth(); ++place) {
        const StageId here = topology.StageAt(place, m);
        const StageId next = topology.To(EdgeKind::kActivation, here, m);
        EXPECT_EQ(next, topology.StageAt(place + 1, m));
        EXPECT_EQ(topology.From(EdgeKind::kActivation, next, m), here);
        const int32_t down = topology.EdgeOf({ActionKind::kSendActivation, here.value, m});
        EXPECT_EQ(down, topology.EdgeOf({ActionKind::kRecvActivation, next.value, m}));
        EXPECT_EQ(ends.try_emplace(down, here, next).first->second, std::pair(here, next));
        const int32_t up = topology.EdgeOf({ActionKind::kSendGradient, next.value, m});
        EXPECT_EQ(up, topology.EdgeOf({ActionKind::kRecvGradient, here.value, m}));
        EXPECT_EQ(ends.try_emplace(up, next, here).first->second, std::pair(next, here));
        EXPECT_EQ(topology.edges[down], (Edge{EdgeKind::kActivation, here, next, place}));
      }
    }
    std::set<std::pair<int32_t, int32_t>> pairs;
    for (const auto& [channel, pair] : ends) pairs.insert({pair.first.value, pair.second.value});
    EXPECT_EQ(pairs.size(), ends.size()) << "a channel has one sender and one receiver";
  }
}

TEST(Replicas, Evaluation_OfAnyCount_GoesThroughThemInTurn) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    const Topology topology = ReplicatedStages(replicas, ReduceGroup::Operation::kSum);
    for (const int64_t count : {1, 2, 5, 36, 100}) {
      EXPECT_THAT(Verify(BuildEvaluation(topology, {0, count})).status(), IsOk());
    }
  }
}

TEST(Replicas, Text_RoundTrips_AndTheDigestSeesThem) {
  const Schedule schedule = Build("pipedream", {3, 1}, 2, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule read, ParseSchedule(PrintSchedule(schedule)));
  EXPECT_EQ(read, schedule);
  EXPECT_THAT(PrintSchedule(schedule), HasSubstr(" replicas=3,1 group=gradient:mean:0,1,2\n"));
  EXPECT_NE(DigestOf(schedule), DigestOf(Build("pipedream", {1, 3}, 2, 1)));
}

TEST(Replicas, TiedEnds_AreAGroupOfAllReplicasOfBoth) {
  ScheduleOptions options = OptionsOf(**FindMethod("1f1b"), {2, 1, 3}, 1);
  TieEnds(options.topology);
  ASSERT_EQ(options.topology.groups.size(), 3u);
  EXPECT_THAT(options.topology.groups[2].stages,
              ElementsAre(StageId(0), StageId(1), StageId(3), StageId(4), StageId(5)));
  options.global_norm = true;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                BuildSchedule(**FindMethod("1f1b"), options, {0, 12}));
  EXPECT_THAT(Verify(schedule).status(), IsOk());
}

std::string RefusalOf(absl::string_view name, const StageReplicas& replicas, int64_t microbatches) {
  const Method& method = **FindMethod(name);
  const absl::StatusOr<Topology> topology = PlaceReplicas(method, replicas);
  if (!topology.ok()) return std::string(topology.status().message());
  const ScheduleOptions options = {.topology = *topology, .microbatches_per_step = microbatches};
  return std::string(BuildSchedule(method, options, {0, microbatches}).status().message());
}

TEST(Replicas, WhatDoesNotFit_IsRefusedWithWhatWouldDo) {
  EXPECT_EQ(RefusalOf("1f1b", {2, 3}, 8),
            "1f1b with 2,3 replicas needs a multiple of 6 microbatches in a step, the least common "
            "multiple of their numbers; got 8; 6 or 12 would do");
  EXPECT_THAT(RefusalOf("pipedream", {3, 1}, 2), HasSubstr("got 2; 3 would do"));
  EXPECT_EQ(RefusalOf("zb-v", {2, 1}, 8),
            "has no replicas of stages; gpipe, 1f1b, zb-h1, zb-h2, pipedream, nesterov, "
            "nesterov-no-stash have");
  EXPECT_THAT(RefusalOf("1f1b", {2, 0}, 8),
              HasSubstr("at least one replica of each stage, got 2,0"));
  EXPECT_THAT(RefusalOf("1f1b", {61, 59, 53, 47}, 8), HasSubstr("more than 1048576 microbatches"));
  EXPECT_THAT(RefusalOf("pipedream", {61, 59, 53}, 190747), HasSubstr("too many to be listed"));
  const Method& pipedream = **FindMethod("pipedream");
  ScheduleOptions options = OptionsOf(pipedream, {3, 1}, 2);
  EXPECT_THAT(BuildSchedule(pipedream, options, {1, 6}).status().message(),
              HasSubstr("must begin and end at a multiple of 3"));
  options.weights = &Weights::kSpecTrain;
  EXPECT_THAT(BuildSchedule(pipedream, options, {0, 6}).status().message(),
              HasSubstr("replicas of stages have one of single, stash"));
}

// The rules that replicas add: who does what, and that all updates are of the same microbatches.
TEST(Replicas, WrongSchedules_AreRefused) {
  const std::string text = PrintSchedule(Build("1f1b", {2, 1}, 1, 1), {.expand = true});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Schedule good, ParseSchedule(text));
  EXPECT_THAT(Verify(good).status(), IsOk());
  const auto verify = [](const Schedule& schedule) {
    return std::string(Verify(schedule).status().message());
  };

  Schedule swapped = good;  // each replica does the other's microbatch
  for (int32_t worker : {0, 1}) {
    for (Action& action : swapped.programs[worker].prologue) {
      if (HasMicrobatch(action.kind)) action.microbatch = 1 - action.microbatch;
    }
  }
  EXPECT_THAT(verify(swapped), HasSubstr("the microbatch goes through replica 1 of that place"));

  Schedule alone = good;  // an update with the gradient of one replica alone
  ActionList& list = alone.programs[0].prologue;
  std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::kReduce; });
  EXPECT_THAT(verify(alone), HasSubstr("0UPDATE: the gradient is not reduced over its groups"));

  Schedule ungrouped = good;
  ungrouped.topology.groups.clear();
  EXPECT_THAT(verify(ungrouped), HasSubstr("must be a group that combines gradients"));

  Schedule shared = good;
  shared.topology.table[2].worker = WorkerId(0);
  shared.topology.workers = 2;
  EXPECT_THAT(verify(shared), HasSubstr("alone on a worker"));
}

// Replica 0 updates with its first microbatch alone, replica 1 with both of its own: the numbers of reductions
// are equal, what they reduce is not.
TEST(Replicas, ReductionOfOtherMicrobatches_IsRefused) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Schedule schedule,
      ParseSchedule(
          "# penstock schedule 1 name=- weights=stash complete=train range=0+4 stages=0,1 "
          "replicas=2 group=gradient:mean:0,1\n"
          "0F0,0I0,0W0,0REDUCE,0UPDATE,0F2,0I2,0W2,0REDUCE,0UPDATE,FLUSH\n"
          "1F1,1I1,1W1,1F3,1I3,1W3,0REDUCE,1UPDATE,0REDUCE,1UPDATE,FLUSH\n"));
  EXPECT_THAT(Verify(schedule).status().message(),
              HasSubstr("its gradients are of microbatches 0+4, those of worker 0 of 0+2"));
}

}  // namespace
}  // namespace penstock
