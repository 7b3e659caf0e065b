// Stages that do their forward again: who they are, and what it costs.
#include "schedule/recompute.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "schedule/block_delay.h"
#include "schedule/prediction.h"
#include "schedule/render_svg.h"
#include "schedule/render_text.h"
#include "schedule/render_trace.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseRecompute, WordsAndPlaces_AreRead) {
  EXPECT_THAT(ParseRecompute("none"), IsOkAndHolds(RecomputeChoice()));
  EXPECT_THAT(ParseRecompute("all"), IsOkAndHolds(RecomputeChoice{.all = true}));
  EXPECT_THAT(ParseRecompute("2"), IsOkAndHolds(RecomputeChoice{.places = {2}}));
  EXPECT_THAT(ParseRecompute("3,0,1"), IsOkAndHolds(RecomputeChoice{.places = {0, 1, 3}}));
}

TEST(ParseRecompute, AnythingElse_IsRefusedWithWhatWouldDo) {
  for (const char* text : {"", "some", "0,", "-1", "0,x", "1.5", "99999999999", "0 1"}) {
    EXPECT_THAT(ParseRecompute(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("expected none, all, or places")))
        << text;
  }
  EXPECT_THAT(ParseRecompute("1,0,1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("names stage 1 twice")));
}

TEST(ChosenStages, Places_AreThoseOfEveryPipeline) {
  const Topology replicas = ReplicatedPipelines(3, 2);
  EXPECT_THAT(ChosenStages({.places = {0, 2}}, replicas),
              ElementsAre(StageId(0), StageId(2), StageId(3), StageId(5)));
  EXPECT_THAT(ChosenStages({.all = true}, StraightPipeline(2)),
              ElementsAre(StageId(0), StageId(1)));
  EXPECT_THAT(ChosenStages({}, StraightPipeline(2)), IsEmpty());
}

TEST(CheckPlaces, PlaceThatThereIsNot_IsNamedWithThoseThereAre) {
  EXPECT_THAT(CheckPlaces({.places = {0, 3}}, 4), IsOk());
  EXPECT_THAT(CheckPlaces({.all = true}, 1), IsOk());
  EXPECT_EQ(CheckPlaces({.places = {0, 4}}, 4).message(),
            "names stage 4, but the pipeline has 4 stages; 0 to 3 would do");
  EXPECT_EQ(CheckPlaces({.places = {1}}, 1).message(),
            "names stage 1, but the pipeline has 1 stage; 0 would do");
}

// With F = R = 1 and a backward of 1: every microbatch takes 3 on every stage, but R is done while the first
// gradient is still on its way, so that filling and draining cost what they do without: 3 N + 2 (S - 1).
TEST(Recompute, OnAllStages_LengthensTheStepByTheForwardsAlone) {
  for (const char* name : {"gpipe", "1f1b"}) {
    const Method& method = **FindMethod(name);
    for (int32_t stages = 1; stages <= 16; ++stages) {
      for (const int64_t m : {1, 2, 3, 8, 17, 32}) {
        SCOPED_TRACE(testing::Message() << name << ", " << stages << " stages, " << m);
        const Schedule schedule = RecomputingSteps(method, {.all = true}, stages, m, 0, 1);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                      Simulate(schedule, {}, {.channel_capacity = 1}));
        EXPECT_DOUBLE_EQ(result.makespan_s, double(3 * m + 2 * (stages - 1)));
        for (const WorkerTimes& worker : result.workers) {
          EXPECT_DOUBLE_EQ(worker.busy_s, double(3 * m));
        }
      }
    }
  }
}

TEST(Recompute, Time_IsThatOfAForwardUnlessItHasItsOwn) {
  const Schedule schedule = RecomputingSteps(**FindMethod("1f1b"), {.places = {0}}, 1, 4, 0, 1);
  EXPECT_DOUBLE_EQ(Simulate(schedule, {.stages = {{.forward_s = 3}}})->makespan_s, 4 * (3 + 3 + 1));
  EXPECT_DOUBLE_EQ(Simulate(schedule, {.stages = {{.recompute_s = 0.25}}})->makespan_s,
                   4 * (1 + 0.25 + 1));
  EXPECT_THAT(Simulate(schedule, {.stages = {{.recompute_s = -1}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("recompute time")));
}

// Recomputing changes when things happen, never which versions are read, so all counts stay.
TEST(Recompute, OfEveryMethod_IsVerifiedWithTheSameCounts) {
  for (const Method& method : Methods()) {
    for (const int32_t workers : {1, 2, 4, 5}) {
      const Schedule plain = CatalogSteps(method, workers, 4, 8, 3);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport expected, Verify(plain));
      for (const RecomputeChoice& choice :
           {RecomputeChoice{.all = true}, RecomputeChoice{.places = {0}}}) {
        SCOPED_TRACE(absl::StrCat(method.name, " on ", workers, choice.all ? ", all" : ", first"));
        const Schedule schedule = RecomputingSteps(method, choice, workers, 4, 8, 3);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        EXPECT_EQ(report.stages, expected.stages);
        EXPECT_EQ(report.channel_capacity_min, expected.channel_capacity_min);
        // Each takes every microbatch; there and back all that can do it already do.
        const auto places =
            static_cast<int64_t>(schedule.topology.form == Topology::Form::kThereAndBack ? 0
                                 : choice.all ? schedule.topology.depth()
                                              : 1);
        EXPECT_EQ(report.actions, expected.actions + places * schedule.range.count);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport slow, VerifyWithoutShortcut(schedule));
        EXPECT_EQ(slow.stages, report.stages);
      }
    }
  }
}

TEST(Recompute, LongRange_IsVerifiedWithItsShortcut) {
  const Schedule schedule =
      RecomputingSteps(**FindMethod("paci"), {.all = true}, 4, 8, 0, 100'000'000'000);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
  EXPECT_LT(report.actions_run, 100'000);
}

TEST(Recompute, DoneAndLeftOut_IsRefused) {
  const Method& method = **FindMethod("1f1b");
  Schedule schedule = RecomputingSteps(method, {.places = {1}}, 2, 2, 0, 1);
  for (Program& program : schedule.programs) program = {.prologue = Expand(program)};
  ActionList& list = schedule.programs[1].prologue;
  const auto recompute = std::find(list.begin(), list.end(), Action{ActionKind::kRecompute, 1, 1});
  ASSERT_NE(recompute, list.end());
  const auto at = recompute - list.begin();
  Schedule twice = schedule;
  twice.programs[1].prologue.insert(twice.programs[1].prologue.begin() + at, *recompute);
  EXPECT_THAT(Verify(twice),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1R1: no checkpoint")));
  list.erase(recompute);
  EXPECT_THAT(Verify(schedule), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("1I1: no stash, the stage recomputes")));
}

TEST(Recompute, BlockDelay_IsThatOfTheMethodWithout) {
  for (const Method& method : Methods()) {
    if (method.placement == Placement::kRoundTrip) continue;  // no choice, they all do
    for (const int32_t workers : {2, 4}) {
      const int64_t step = StepFor(method, workers, 4);
      ScheduleOptions options = {.topology = PlacedOn(method, workers, step),
                                 .microbatches_per_step = step};
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay plain, PredictBlockDelay(method, options));
      options.topology.Recompute(ChosenStages({.all = true}, options.topology));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay again, PredictBlockDelay(method, options));
      EXPECT_EQ(again.max, plain.max) << method.name;
      EXPECT_EQ(again.mean, plain.mean) << method.name;
    }
  }
}

TEST(Recompute, Costs_AreFoundInATimelineAndPredictIt) {
  const Method& method = **FindMethod("1f1b");
  ScheduleOptions options = {.topology = StraightPipeline(3), .microbatches_per_step = 6};
  options.topology.Recompute({StageId(0), StageId(1)});
  SimulationCosts costs;
  costs.stages.assign(3, {.forward_s = 0.01,
                          .backward_input_s = 0.01,
                          .backward_weight_s = 0.01,
                          .recompute_s = 0.007});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule, BuildSchedule(method, options, {0, 120}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult run,
                                Simulate(schedule, costs, {.timeline_spans_max = 1'000'000}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationCosts found,
      MeasureCosts(run.timeline, options.topology, 0, run.timeline.end_ns(), 1000));
  EXPECT_NEAR(found.stages[0].recompute_s.value_or(0), 0.007, 1e-9);
  EXPECT_NEAR(found.stages[1].recompute_s.value_or(0), 0.007, 1e-9);
  EXPECT_FALSE(found.stages[2].recompute_s.has_value());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StepPrediction prediction,
                                PredictSteps(run.timeline, method, options));
  EXPECT_NEAR(prediction.error(), 0.0, 1e-6);
}

TEST(Recompute, Picture_ShowsWhatIsDoneAgain) {
  const Method& method = **FindMethod("1f1b");
  const Schedule schedule = RecomputingSteps(method, {.places = {0, 1, 2}}, 4, 8, 0, 2);
  const SimulationCosts with_step{.stages = std::vector<StageCosts>(4, {.update_s = 0.5})};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult result,
      Simulate(schedule, with_step, {.channel_capacity = 8, .timeline_spans_max = 10'000}));
  ExpectEqualsGolden(
      "schedule/recompute.txt",
      absl::StrCat("1f1b, all stages but the last recompute\n\n",
                   RenderText(result.timeline, {.slot_ns = 500'000'000, .columns = 150}), "\n",
                   PrintSchedule(schedule, {.merge_backward = true})));
  EXPECT_THAT(RenderSvg(result.timeline), HasSubstr("<title>0R0: 1 s</title>"));
  EXPECT_THAT(RenderTrace(result.timeline), HasSubstr("\"name\":\"0R0\""));
}

TEST(RecomputeChoice, Text_IsReadAsItWasWritten) {
  for (const char* const text : {"none", "all", "0", "0,2,5"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecomputeChoice choice, ParseRecompute(text));
    EXPECT_EQ(TextOf(choice), text);
  }
}

}  // namespace
}  // namespace penstock
