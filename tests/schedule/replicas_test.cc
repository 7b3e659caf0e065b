// Places with replicas: methods that have them on any numbers of them, uneven neighbours included.
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
#include "schedule/run.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "schedule/warm_up.h"
#include "tests/schedule/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using StageReplicas = std::vector<int32_t>;

constexpr absl::string_view kDraining[] = {"gpipe", "1f1b", "zb-h1", "zb-h2"};
// An update after a microbatch of each replica, and after a step, of methods that do not drain.
constexpr absl::string_view kUpdatingByRound[] = {"pipedream", "nesterov-no-stash", "spectrain"};
constexpr absl::string_view kUpdatingByStep[] = {"pipedream-2bw", "paci", "pipemare", "xpipe"};

// They have replicas in the same number everywhere.
constexpr absl::string_view kSeveralOnAWorker[] = {"interleaved-1f1b", "looped-bfs", "zb-v",
                                                   "dualpipe-v"};

std::vector<absl::string_view> AllMethods() {
  std::vector<absl::string_view> all(std::begin(kDraining), std::end(kDraining));
  all.insert(all.end(), std::begin(kUpdatingByRound), std::end(kUpdatingByRound));
  all.insert(all.end(), std::begin(kUpdatingByStep), std::end(kUpdatingByStep));
  return all;
}

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

// The microbatches that are in flight at most.
int64_t InFlightMax(const StageReplicas& replicas) {
  const std::vector<int64_t> ahead = MicrobatchesAhead(replicas);
  int64_t most = 0;
  for (size_t place = 0; place < replicas.size(); ++place) {
    most = std::max(most, ahead[place] + replicas[place]);
  }
  return most;
}

// Of `cycles` times the cycle of the replicas, or as many as the weights need, in `steps` steps.
Schedule Build(absl::string_view name, const StageReplicas& replicas, int64_t cycles, int64_t steps,
               int64_t first_step = 0, const Weights* weights = nullptr) {
  const Method& method = **FindMethod(name);
  const Weights& read = weights == nullptr ? *method.weights : *weights;
  if (read.fills_pipeline) {
    const int64_t cycle = CycleOf(replicas);
    cycles = std::max(cycles, (InFlightMax(replicas) + cycle - 1) / cycle);
  }
  ScheduleOptions options = OptionsOf(method, replicas, cycles);
  options.weights = weights;
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
  for (const absl::string_view name : AllMethods()) {
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

std::vector<Schedule> SchedulesOf(const StageReplicas& replicas, int64_t steps) {
  std::vector<Schedule> schedules;
  for (const absl::string_view name : AllMethods()) {
    schedules.push_back(Build(name, replicas, 2, steps));
  }
  const bool equal = std::all_of(replicas.begin(), replicas.end(),
                                 [&](int32_t count) { return count == replicas.front(); });
  if (!equal || replicas.size() != 2) return schedules;
  for (const absl::string_view name : kSeveralOnAWorker) {
    const Method& method = **FindMethod(name);
    ScheduleOptions options =
        OptionsOf(method, replicas, 2 * static_cast<int64_t>(replicas.size()));
    schedules.push_back(
        BuildSchedule(method, options, {0, steps * options.microbatches_per_step}).value());
  }
  return schedules;
}

// No update of a replica is without the announcement of its last W, in whichever list of the program that stands.
TEST(Replicas, EveryReduction_HasBegunBeforeItsLastW) {
  for (const StageReplicas& replicas :
       {StageReplicas{2}, {3, 1}, {1, 3}, {2, 3}, {2, 2}, {1, 2, 1}, {3, 3}}) {
    for (const Schedule& schedule : SchedulesOf(replicas, 5)) {
      int64_t reductions = 0;
      for (const Program& program : schedule.programs) {
        std::map<int32_t, int64_t> begun;
        for (const Action& action : Expand(program)) {
          if (action.kind == ActionKind::kBeginReduce) ++begun[action.index];
          if (action.kind != ActionKind::kReduce) continue;
          EXPECT_EQ(begun[action.index]--, 1) << schedule.name << " " << ToString(action);
          ++reductions;
        }
        for (const auto& [group, left] : begun) EXPECT_EQ(left, 0) << schedule.name;
      }
      EXPECT_GT(reductions, 0) << schedule.name;
    }
  }
}

// A worker that is cut short goes on with the list of the shorter range from where it is.
TEST(Replicas, ShorterRange_HasTheSameActionsUpToTheCut) {
  constexpr int64_t kSteps = 5;
  for (const StageReplicas& replicas : {StageReplicas{2}, {3, 1}, {1, 3}, {2, 3}, {2, 2}, {3, 3}}) {
    const std::vector<Schedule> whole = SchedulesOf(replicas, kSteps);
    for (int64_t steps = 1; steps < kSteps; ++steps) {
      const std::vector<Schedule> shorter = SchedulesOf(replicas, steps);
      for (size_t i = 0; i < whole.size(); ++i) {
        const int64_t end = shorter[i].range.end();
        for (size_t worker = 0; worker < whole[i].programs.size(); ++worker) {
          const ActionList expected = Expand(whole[i].programs[worker]);
          const auto beyond =
              std::find_if(expected.begin(), expected.end(), [&](const Action& action) {
                return HasMicrobatch(action.kind) && action.microbatch >= end;
              });
          const ActionList actual = Expand(shorter[i].programs[worker]);
          ASSERT_GE(actual.size(), static_cast<size_t>(beyond - expected.begin()));
          EXPECT_TRUE(std::equal(expected.begin(), beyond, actual.begin()))
              << whole[i].name << " " << absl::StrJoin(replicas, ",") << ", worker " << worker
              << ", cut after " << steps;
        }
      }
    }
  }
}

TEST(Replicas, LongRanges_AreVerifiedByTheirSteadyState) {
  for (const absl::string_view name :
       {"1f1b", "zb-h1", "pipedream", "spectrain", "paci", "pipedream-2bw"}) {
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
  EXPECT_THAT(MicrobatchesAhead({9, 4, 3}), ElementsAre(27, 8, 0));
}

TEST(Replicas, WithoutADrain_NoBubbleInTheSteadyState) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    const Schedule schedule = Build("pipedream", replicas, 40, 1);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                  Simulate(schedule, Balanced(schedule.topology, 6.0)));
    EXPECT_NEAR(result.steady_state_period_s, 6.0, 1e-6);
    const auto makespan = [&](int64_t steps) {
      const Schedule by_step = Build("paci", replicas, 4, steps);
      return Simulate(by_step, Balanced(by_step.topology, 6.0)).value().makespan_s;
    };
    const auto cycle = static_cast<double>(CycleOf(replicas));
    EXPECT_NEAR(makespan(40) - makespan(20), 20 * 4 * cycle * 6.0, 1e-6);
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

// By the closed forms of paci.cc.
TEST(Replicas, Paci_CountsMatchTheClosedForms) {
  for (const absl::string_view name : {"paci", "pipemare", "xpipe"}) {
    for (const StageReplicas& replicas : ManyReplicas()) {
      SCOPED_TRACE(absl::StrCat(std::string(name), " ", absl::StrJoin(replicas, ",")));
      constexpr int64_t kSteps = 24;
      const Schedule schedule = Build(name, replicas, 1, kSteps);
      const Topology& topology = schedule.topology;
      const int64_t step = schedule.range.count / kSteps;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
      for (int32_t id = 0; id < topology.stages(); ++id) {
        const int32_t place = topology[StageId(id)].place;
        const int64_t ahead = MicrobatchesAhead(replicas)[place];
        const StageCounts& counts = report.stages[id];
        EXPECT_EQ(counts.activations_peak, ahead / replicas[place] + 1);
        EXPECT_EQ(counts.versions_peak, 1);
        EXPECT_EQ(counts.staleness.updates, kSteps);
        EXPECT_EQ(counts.staleness.microbatches, kSteps * step / replicas[place]);
        EXPECT_EQ(counts.staleness.max, (ahead + step - 1) / step);
        EXPECT_EQ(counts.version_drift.max, (ahead + step - 1) / step);
      }
    }
  }
}

// By the closed forms of pipedream_2bw.cc.
TEST(Replicas, TwoBufferedWeights_AreOneUpdateLateEverywhere) {
  for (const StageReplicas& replicas : ManyReplicas()) {
    SCOPED_TRACE(absl::StrJoin(replicas, ","));
    constexpr int64_t kSteps = 6;
    const Schedule schedule = Build("pipedream-2bw", replicas, 1, kSteps);
    const Topology& topology = schedule.topology;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
    for (int32_t id = 0; id < topology.stages(); ++id) {
      const int32_t place = topology[StageId(id)].place;
      const StageCounts& counts = report.stages[id];
      const int64_t own = schedule.range.count / replicas[place];
      EXPECT_EQ(counts.activations_peak, MicrobatchesAhead(replicas)[place] / replicas[place] + 1);
      EXPECT_EQ(counts.versions_peak, 2);
      EXPECT_EQ(counts.staleness.updates, kSteps);
      EXPECT_EQ(counts.staleness.max, 1);
      EXPECT_EQ(counts.staleness.sum, own - own / kSteps) << "but for the first step";
      EXPECT_EQ(counts.version_drift.max, 0);
    }
  }
}

// The weights that the passes of each microbatch read at each place, as (version, updates ahead).
class ReadsOf : public RunObserver {
 public:
  using Read = std::pair<int64_t, int64_t>;
  explicit ReadsOf(const Schedule& schedule) : topology_(schedule.topology) {
    Interpreter interpreter(schedule, kChannelCapacity, *this);
    EXPECT_THAT(interpreter.RunToEnd(), IsOkAndHolds(true));
  }

  absl::Status OnAction(WorkerId, const Action& action, const Effect& effect, MessageId) override {
    const bool forward = action.kind == ActionKind::kForward;
    if (!forward && action.kind != ActionKind::kBackwardInput) return absl::OkStatus();
    auto& reads = forward ? forwards_ : backwards_;
    reads[{topology_[action.stage()].place, action.microbatch}] = {effect.version, effect.ahead};
    return absl::OkStatus();
  }
  void OnCollective(const Action&, absl::Span<const WorkerId>) override {}

  Read Forward(int32_t place, int64_t microbatch) const {
    return forwards_.at({place, microbatch});
  }
  Read Backward(int32_t place, int64_t microbatch) const {
    return backwards_.at({place, microbatch});
  }
  // The versions that the first forwards of a place read.
  std::vector<int64_t> Versions(int32_t place, int64_t count) const {
    std::vector<int64_t> versions;
    for (int64_t m = 0; m < count; ++m) versions.push_back(Forward(place, m).first);
    return versions;
  }
  // The versions that these aim at.
  std::vector<int64_t> Aims(int32_t place, int64_t count) const {
    std::vector<int64_t> versions;
    for (int64_t m = 0; m < count; ++m) {
      const Read read = Forward(place, m);
      versions.push_back(read.first + read.second);
    }
    return versions;
  }

 private:
  const Topology topology_;
  std::map<std::pair<int32_t, int64_t>, Read> forwards_;
  std::map<std::pair<int32_t, int64_t>, Read> backwards_;
};

// By hand. With 3,1 the first stage reads one update, of three microbatches, late; with 1,3 five, of one each, so that
// the second, whose updates hold three, knows of the first only once all of 0, 1 and 2 may be read.
TEST(Replicas, VerticalSync_ReadsNoMicrobatchThatTheFirstStageDoesNot) {
  const auto build = [](const StageReplicas& replicas) {
    return Build("pipedream", replicas, 12 / CycleOf(replicas) + 1, 2, 0, &Weights::kVerticalSync);
  };
  const ReadsOf narrowing(build({3, 1}));
  EXPECT_THAT(narrowing.Versions(0, 12), ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(narrowing.Versions(1, 12), ElementsAre(0, 0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 6));
  const ReadsOf widening(build({1, 3}));
  EXPECT_THAT(widening.Versions(0, 12), ElementsAre(0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(widening.Versions(1, 15), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2));
  const ReadsOf uneven(build({2, 3}));
  EXPECT_THAT(uneven.Versions(0, 12), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT(uneven.Versions(1, 21),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 4, 4, 4));
}

// By hand, as predicted.cc counts: with 3,1 the first stage has 3 microbatches more between forward and backward than the
// second, which so makes one more update until the first one's; with 1,3 it has 5, of which 2 come back meanwhile.
TEST(Replicas, PredictedWeights_AimAtTheirUpdates) {
  const Schedule own = Build("pipedream", {3, 1}, 8, 1, 0, &Weights::kPredicted);
  EXPECT_THAT(ReadsOf(own).Aims(0, 9), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(ReadsOf(own).Aims(1, 6), ElementsAre(0, 1, 2, 3, 4, 5));
  const Schedule narrowing = Build("spectrain", {3, 1}, 8, 1);
  EXPECT_THAT(ReadsOf(narrowing).Aims(0, 9), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(ReadsOf(narrowing).Aims(1, 6), ElementsAre(1, 2, 3, 4, 5, 6));
  const Schedule widening = Build("spectrain", {1, 3}, 8, 1);
  EXPECT_THAT(ReadsOf(widening).Aims(0, 6), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(ReadsOf(widening).Aims(1, 9), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
  const Schedule by_step = Build("xpipe", {2, 1}, 2, 4);
  EXPECT_THAT(ReadsOf(by_step).Aims(0, 10), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2));
}

// Each of R pipelines beside each other reads what it would alone, with one microbatch in R of a step.
TEST(Replicas, SameNumberEverywhere_ReadWhatOnePipelineDoes) {
  struct Case {
    absl::string_view method;
    const Weights* weights;
  };
  for (const Case& each : {Case{"pipedream", &Weights::kVerticalSync},
                           {"pipedream", &Weights::kPredicted},
                           {"pipedream", &Weights::kSpecTrain},
                           {"pipedream", &Weights::kCorrected},
                           {"pipedream", &Weights::kSingle},
                           {"paci", &Weights::kSingle},
                           {"paci", &Weights::kStash},
                           {"paci", &Weights::kSpecTrain},
                           {"paci", &Weights::kDoubleBuffer},
                           {"pipemare", &Weights::kCorrected},
                           {"xpipe", &Weights::kPredicted}}) {
    for (const int32_t stages : {1, 2, 5}) {
      for (const int32_t count : {2, 3}) {
        SCOPED_TRACE(absl::StrCat(std::string(each.method), " ", std::string(each.weights->name),
                                  ", ", stages, " stages of ", count));
        const Schedule wide =
            Build(each.method, StageReplicas(stages, count), 6, 4, 0, each.weights);
        const Schedule plain = Build(each.method, StageReplicas(stages, 1), 6, 4, 0, each.weights);
        const ReadsOf all(wide);
        const ReadsOf one(plain);
        for (int32_t place = 0; place < stages; ++place) {
          for (int64_t m = 0; m < wide.range.count; ++m) {
            ASSERT_EQ(all.Forward(place, m), one.Forward(place, m / count));
            ASSERT_EQ(all.Backward(place, m), one.Backward(place, m / count));
          }
        }
      }
    }
  }
}

TEST(Replicas, AnyWeights_Verify_AsWithoutAShortcut) {
  for (const absl::string_view name : {"pipedream", "paci"}) {
    const Method& method = **FindMethod(name);
    for (const Weights* weights : kAllWeights) {
      if (!CheckWeights(method, *weights).ok()) continue;
      for (const StageReplicas& replicas : ManyReplicas()) {
        SCOPED_TRACE(absl::StrCat(std::string(name), " ", std::string(weights->name), " ",
                                  absl::StrJoin(replicas, ",")));
        const Schedule schedule = Build(name, replicas, 1, 20, 3, weights);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport full, VerifyWithoutShortcut(schedule));
        EXPECT_EQ(report.stages, full.stages);
        EXPECT_LE(report.channel_capacity_min, kChannelCapacity);
        EXPECT_THAT(ParseSchedule(PrintSchedule(schedule)), IsOkAndHolds(schedule));
      }
    }
  }
}

TEST(Replicas, Synchronous_OneVersion_OneUpdateAStep_AndTheStashOfTheWarmUp) {
  for (const absl::string_view name : kDraining) {
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

// With several stages on a worker each pipeline does what it would do alone, with its share of the microbatches of a step.
TEST(Replicas, SeveralStagesOnAWorker_AreWholePipelinesBesideEachOther) {
  for (const absl::string_view name : kSeveralOnAWorker) {
    const Method& method = **FindMethod(name);
    for (const int32_t per_worker : {2, 3}) {
      if (per_worker > 2 && method.placement == Placement::kV) continue;
      for (const int32_t workers : {1, 2, 3}) {
        for (const int32_t count : {2, 3}) {
          SCOPED_TRACE(absl::StrCat(std::string(name), ", ", workers, " workers of ", per_worker,
                                    ", ", count, " replicas"));
          const int32_t stages = workers * per_worker;
          const auto build = [&](int32_t replicas) {
            const ScheduleOptions options = {
                .topology =
                    PlaceReplicas(method, StageReplicas(stages, replicas), per_worker).value(),
                .microbatches_per_step = 6 * replicas};
            return BuildSchedule(method, options, {12 * replicas, 18 * replicas}).value();
          };
          const Schedule plain = build(1);
          const Schedule wide = build(count);
          EXPECT_EQ(wide.topology.workers, count * workers);
          PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport one, Verify(plain));
          PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport all, Verify(wide));
          PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport full, VerifyWithoutShortcut(wide));
          EXPECT_EQ(all.stages, full.stages);
          EXPECT_EQ(all.channel_capacity_min, one.channel_capacity_min);
          EXPECT_THAT(ParseSchedule(PrintSchedule(wide)), IsOkAndHolds(wide));
          for (int32_t stage = 0; stage < stages; ++stage) {
            for (int32_t i = 0; i < count; ++i) {
              EXPECT_EQ(all.stages[stage * count + i], one.stages[stage]);
              EXPECT_EQ(wide.topology.worker(StageId(stage * count + i)).value,
                        plain.topology.worker(StageId(stage)).value * count + i);
            }
          }
          EXPECT_EQ(Simulate(wide, {}).value().makespan_s, Simulate(plain, {}).value().makespan_s);
        }
      }
    }
  }
}

// By hand: two stages on one worker, two pipelines, of microbatches 0 and 2, and 1 and 3.
TEST(Replicas, LoopedBreadthFirst_OfTwoPipelines) {
  const Method& method = **FindMethod("looped-bfs");
  const ScheduleOptions options = {.topology = PlaceReplicas(method, {2, 2}).value(),
                                   .microbatches_per_step = 4};
  EXPECT_EQ(PrintSchedule(BuildSchedule(method, options, {0, 4}).value(), {.merge_backward = true}),
            "# penstock schedule 1 name=looped-bfs weights=single complete=train range=0+4 "
            "stages=0,1,0,1 replicas=2,2 group=gradient:sum:0,1 group=gradient:sum:2,3\n"
            "[0F0,0F2,2F0,2F2,2B0,1BEGIN_REDUCE,2B2,0B0,0BEGIN_REDUCE,0B2,1REDUCE,0REDUCE,0UPDATE,"
            "2UPDATE]*1+4,FLUSH\n"
            "[1F1,1F3,3F1,3F3,3B1,1BEGIN_REDUCE,3B3,1B1,0BEGIN_REDUCE,1B3,1REDUCE,0REDUCE,1UPDATE,"
            "3UPDATE]*1+4,FLUSH\n");
}

TEST(Replicas, OneEverywhere_IsThePlainPipelineToTheByte) {
  for (const absl::string_view name : AllMethods()) {
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
  EXPECT_EQ(RefusalOf("rpd", {2, 1}, 8),
            "updates one sampled stage after every single microbatch, so replicas would have "
            "nothing to add up; use pipedream");
  EXPECT_THAT(RefusalOf("interleaved-1f1b", {2, 1}, 8),
              HasSubstr("expected as many replicas of each stage, got 2,1"));
  EXPECT_THAT(RefusalOf("zb-v", {2, 2, 2}, 8), HasSubstr("expected two stages on each worker"));
  EXPECT_EQ(RefusalOf("pipedream-2bw", {3, 1}, 3),
            "pipedream-2bw with the weights \"double-buffer\" needs at least as many microbatches "
            "in a step as are in flight with these replicas, 6; got 3");
  EXPECT_THAT(RefusalOf("1f1b", {2, 0}, 8),
              HasSubstr("at least one replica of each stage, got 2,0"));
  EXPECT_THAT(RefusalOf("1f1b", {61, 59, 53, 47}, 8), HasSubstr("more than 1048576 microbatches"));
  EXPECT_THAT(RefusalOf("pipedream", {61, 59, 53}, 190747), HasSubstr("too many to be listed"));
  const Method& pipedream = **FindMethod("pipedream");
  ScheduleOptions options = OptionsOf(pipedream, {3, 1}, 2);
  EXPECT_THAT(BuildSchedule(pipedream, options, {1, 6}).status().message(),
              HasSubstr("must begin and end at a multiple of 3"));
  options.weights = &Weights::kDoubleBuffer;
  EXPECT_THAT(BuildSchedule(pipedream, options, {0, 6}).status().message(),
              HasSubstr("double buffers need an update per step"));
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

// The numbers start over together soon enough, but a table with an edge for each turn between two places is too large,
// however short the text is that asks for it.
TEST(Replicas, EdgesThatNoMemoryHolds_AreRefused) {
  TopologyShape shape = {.replicas = {1024, 1023, 1024, 1023}};
  for (int32_t stage = 0; stage < 4094; ++stage) shape.worker_of.emplace_back(stage);
  ASSERT_LE(CycleOf(shape.replicas), kCycleMax);
  EXPECT_THAT(Wire(shape), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("make 3142656 edges of each kind")));
}

}  // namespace
}  // namespace penstock
