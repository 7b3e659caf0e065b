// RoundPipe: where its slots are, how long its steps take, and what it refuses.
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kWorkersMax = 32;

const Method& RoundPipeMethod() { return **FindMethod("roundpipe"); }

ScheduleOptions OptionsOf(int32_t parts, int32_t workers, int64_t microbatches,
                          int32_t per_forward = 1) {
  return {.topology = RoundTripPipelines(parts, workers, microbatches, per_forward),
          .microbatches_per_step = microbatches};
}

Schedule StepsOf(const ScheduleOptions& options, int64_t steps) {
  const int64_t microbatches = options.microbatches_per_step;
  return BuildSchedule(RoundPipeMethod(), options, {0, steps * microbatches}).value();
}

// A second for the passes of every slot, of which `recompute_s` are for R.
SimulationCosts EqualSlots(const Topology& topology, double recompute_s) {
  SimulationCosts costs;
  std::map<int32_t, int32_t> sharing;  // by slot of the first pipeline
  for (int32_t place = 0; place < topology.depth(); ++place) ++sharing[topology.table[place].slot];
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageId stage(id);
    if (!topology[stage].backward) {
      costs.stages.push_back({.forward_s = 1.0 / sharing[topology[stage].slot]});
    } else if (topology[stage].forward) {
      costs.stages.push_back(
          {.forward_s = 0.5, .backward_input_s = 0.25, .backward_weight_s = 0.25});
    } else {
      const double half_s = (1.0 - recompute_s) / 2;
      costs.stages.push_back({.forward_s = 0.0,
                              .backward_input_s = half_s,
                              .backward_weight_s = half_s,
                              .recompute_s = recompute_s});
    }
  }
  return costs;
}

SimulationResult Simulated(const Schedule& schedule, double recompute_s) {
  // Room for the inputs of a whole round that wait for their backward.
  const auto capacity = static_cast<int32_t>(schedule.topology.rounds.microbatches);
  return Simulate(schedule, EqualSlots(schedule.topology, recompute_s),
                  {.channel_capacity = capacity})
      .value();
}

std::set<int32_t> PartsFor(int32_t workers) {
  return {workers / 2 + 1, std::max(workers - 1, workers / 2 + 1), workers, workers + 1,
          workers + workers / 2};
}

// 3 parts, of which a forward takes two: 0 and 1 there, then 2, and back 1 and 0.
double SlotsOf(int32_t parts, int32_t per_forward) {
  return std::ceil((parts - 1.0) / per_forward) + parts;
}

TEST(RoundPipe, EqualSlotsInWholeRounds_MatchTheClosedForm) {
  for (int32_t workers = 1; workers <= kWorkersMax; ++workers) {
    for (const int32_t parts : PartsFor(workers)) {
      for (const auto& [rounds, per_forward] : std::vector<std::pair<int64_t, int32_t>>{
               {1, 1}, {2, 1}, {3, 1}, {5, 1}, {1, 2}, {3, 3}, {2, 40}}) {
        const double slots = SlotsOf(parts, per_forward);
        if (slots < workers) continue;
        SCOPED_TRACE(absl::StrCat(parts, " parts, ", per_forward, " in a forward, ", workers,
                                  " workers, ", rounds, " rounds"));
        const int64_t m = rounds * workers;
        const Schedule schedule = StepsOf(OptionsOf(parts, workers, m, per_forward), 1);
        const double w = workers;
        const double step_s = double(m) * slots / w + w - 1;
        const SimulationResult result = Simulated(schedule, 0.0);
        // One worker's forwards are not in groups.
        const double exact_s = workers > 1 ? step_s : double(m) * SlotsOf(parts, 1);
        ASSERT_NEAR(result.makespan_s, exact_s, 1e-6);  // thirds of a second are rounded
        if (workers == 1) continue;
        ASSERT_NEAR(result.bubble_ratio, w * (w - 1) / (double(m) * slots + w * (w - 1)), 1e-7);
        // Time that R takes ahead of its gradient shortens a step, if at all.
        const double with_recompute_s = Simulated(schedule, 0.5).makespan_s;
        ASSERT_LE(with_recompute_s, step_s + 1e-6);
        if (slots - parts + 1 >= workers) {  // each worker's first slot is a forward
          ASSERT_NEAR(with_recompute_s, step_s, 1e-6);
        }
      }
    }
  }
}

// The paper's asymmetric split: where a backward with its forward again takes three times a forward, turns of three forwards
// are as long as the others. 10 parts have 3 + 10 slots then, and 19 otherwise.
TEST(RoundPipe, ThreeForwardsInASlot_MakeAllSlotsAsLongWhereBackwardsTakeThreeTimesAForward) {
  const auto makespan = [](int32_t per_forward, int64_t rounds) {
    const ScheduleOptions options = OptionsOf(10, 4, 4 * rounds, per_forward);
    SimulationCosts costs;
    for (const StageWiring& row : options.topology.table) {
      const double again_s = row.forward ? 0.0 : 1.0;
      costs.stages.push_back({.forward_s = row.forward ? 1.0 : 0.0,
                              .backward_input_s = 1.0,
                              .backward_weight_s = 1.0,
                              .recompute_s = again_s});
    }
    return Simulate(StepsOf(options, 1), costs, {.channel_capacity = 4})->makespan_s;
  };
  EXPECT_DOUBLE_EQ(makespan(3, 1), 3 * (13 + 3));
  EXPECT_DOUBLE_EQ(makespan(3, 2), 3 * (26 + 3));
  EXPECT_DOUBLE_EQ(makespan(3, 8), 3 * (104 + 3));
  EXPECT_GT(makespan(1, 2), 3 * (26 + 3));
  EXPECT_GT(makespan(1, 8), 1.1 * 3 * (104 + 3));
}

TEST(RoundPipe, SevenPartsWithThreeInAForward_HaveNineSlots) {
  const Topology topology = RoundTripPipelines(7, 4, 8, 3);
  EXPECT_EQ(topology.depth(), 13);
  EXPECT_EQ(topology.slots(), 9);
  EXPECT_EQ(topology.pipelines, 2);
  const std::vector<int32_t> workers = {0, 0, 0, 1, 1, 1, 2, 3, 0, 1, 2, 3, 0,
                                        1, 1, 1, 2, 2, 2, 3, 0, 1, 2, 3, 0, 1};
  const std::vector<int32_t> slots = {0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8};
  for (int32_t id = 0; id < topology.stages(); ++id) {
    EXPECT_EQ(topology.worker(StageId(id)), WorkerId(workers[id])) << id;
    EXPECT_EQ(topology[StageId(id)].slot, slots[id % 13]) << id;
  }
}

TEST(RoundPipe, FewerMicrobatchesThanWorkers_TakeOneShortRound) {
  for (int32_t workers = 2; workers <= kWorkersMax; ++workers) {
    for (const int32_t parts : PartsFor(workers)) {
      for (const int64_t m : {int64_t{1}, int64_t{workers} / 2, int64_t{workers} - 1}) {
        SCOPED_TRACE(absl::StrCat(parts, " parts, ", workers, " workers, ", m, " microbatches"));
        const ScheduleOptions options = OptionsOf(parts, workers, m);
        EXPECT_EQ(options.topology.pipelines, 1);
        ASSERT_DOUBLE_EQ(Simulated(StepsOf(options, 1), 0.0).makespan_s,
                         double(2 * parts - 1) + double(m) - 1);
      }
    }
  }
}

// What each worker does, action by action, against the paper's rule.
TEST(RoundPipe, SlotsOfARound_GoOnRoundTheWorkers) {
  for (int32_t workers = 1; workers <= 9; ++workers) {
    for (const int32_t parts : PartsFor(workers)) {
      const int32_t per_forward = workers > 1 && SlotsOf(parts, 2) >= workers ? parts % 2 + 1 : 1;
      const auto slots = static_cast<int32_t>(SlotsOf(parts, per_forward));
      const int64_t m = 3 * workers;
      SCOPED_TRACE(
          absl::StrCat(parts, " parts, ", per_forward, " in a forward, ", workers, " workers"));
      const Schedule schedule = StepsOf(OptionsOf(parts, workers, m, per_forward), 2);
      std::map<std::pair<int64_t, int32_t>, std::set<int32_t>> places;  // by microbatch and slot
      for (int32_t worker = 0; worker < workers; ++worker) {
        for (const Action& action : Expand(schedule.programs[worker])) {
          const bool passes =
              action.kind == ActionKind::kForward || action.kind == ActionKind::kBackwardInput ||
              action.kind == ActionKind::kBackwardWeight || action.kind == ActionKind::kRecompute;
          if (!passes) continue;
          places[{action.microbatch, schedule.topology[action.stage()].slot}].insert(worker);
        }
      }
      ASSERT_EQ(places.size(), static_cast<size_t>(2 * m * slots));
      for (int64_t step = 0; step < 2; ++step) {
        int64_t g = 0;
        for (int64_t round = 0; round < 3; ++round) {
          for (int32_t slot = 0; slot < slots; ++slot) {
            const auto worker = static_cast<int32_t>((g + slot) % workers);
            for (int64_t k = 0; k < workers; ++k) {
              const int64_t microbatch = step * m + round * workers + k;
              EXPECT_EQ((places[{microbatch, slot}]), std::set<int32_t>{worker});
            }
          }
          g = (g + slots) % workers;
        }
      }
    }
  }
}

TEST(RoundPipe, AnySize_IsSynchronousWithOneVersionAndOneUpdateOfEachPart) {
  for (int32_t workers = 1; workers <= 12; ++workers) {
    for (const int32_t parts : PartsFor(workers)) {
      SCOPED_TRACE(absl::StrCat(parts, " parts, ", workers, " workers"));
      const int64_t m = 2 * workers;
      const int32_t per_forward = SlotsOf(parts, 3) >= workers ? workers % 3 + 1 : 1;
      const ScheduleOptions options = OptionsOf(parts, workers, m, per_forward);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(StepsOf(options, 5)));
      std::map<int32_t, int64_t> updates;  // by part
      for (int32_t id = 0; id < options.topology.stages(); ++id) {
        const StageCounts& counts = report.stages[id];
        EXPECT_EQ(counts.versions_peak, 1);
        EXPECT_EQ(counts.staleness.max, 0);
        EXPECT_EQ(counts.version_drift.max, 0);
        if (counts.staleness.updates > 0) {
          EXPECT_EQ(counts.staleness.microbatches, 5 * m);
        }
        updates[options.topology[StageId(id)].part] += counts.staleness.updates;
      }
      for (int32_t part = 0; part < parts; ++part) EXPECT_EQ(updates[part], 5) << "part " << part;
    }
  }
}

TEST(RoundPipe, SixPartsOnFourWorkers_HaveElevenSlotsInFourPlaces) {
  const Topology topology = RoundTripPipelines(6, 4, 16);
  EXPECT_EQ(topology.depth(), 11);
  EXPECT_EQ(topology.pipelines, 4);
  EXPECT_EQ(topology.rounds, (Topology::Rounds{.microbatches = 4, .step = 16}));
  EXPECT_EQ(topology.worker(StageId(0)), WorkerId(0));
  EXPECT_EQ(topology.worker(StageId(10)), WorkerId(2));
  EXPECT_EQ(topology.worker(StageId(11)), WorkerId(3));
  EXPECT_EQ(topology[StageId(11)].twin, StageId(21));
  EXPECT_EQ(topology[StageId(5)].twin, StageId(-1));
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageId twin = topology[StageId(id)].twin;
    if (twin.value >= 0) {
      EXPECT_EQ(topology[twin].twin, StageId(id));
    }
  }
}

// 5 slots on 3 workers: a placement comes again after 3 rounds; 3 slots on 3 workers have one.
TEST(RoundPipe, SumsGoOn_FromEachRoundToTheNext) {
  const auto sums = [](int32_t parts, int32_t workers, int64_t rounds) {
    const Schedule schedule = StepsOf(OptionsOf(parts, workers, rounds * workers), 1);
    int64_t sent = 0;
    for (const Program& program : schedule.programs) {
      for (const Action& action : Expand(program)) sent += action.kind == ActionKind::kSendSum;
    }
    return sent;
  };
  EXPECT_EQ(sums(3, 3, 1), 0);
  EXPECT_EQ(sums(3, 3, 4), 3 * 3);
  EXPECT_EQ(sums(3, 3, 7), 3 * 6);
  EXPECT_EQ(sums(2, 3, 4), 0);
}

TEST(RoundPipe, Evaluation_GoesThroughTheFirstPlacesOnly) {
  EXPECT_THAT(Verify(BuildEvaluation(RoundTripPipelines(6, 4, 8, 2), {0, 13})), IsOk());
  const Schedule schedule = BuildEvaluation(RoundTripPipelines(3, 4, 8), {0, 13});
  EXPECT_THAT(Verify(schedule), IsOk());
  for (const Program& program : schedule.programs) {
    for (const Action& action : Expand(program)) {
      if (!HasMicrobatch(action.kind)) continue;
      EXPECT_LT(action.index, 3) << ToString(action);
    }
  }
}

TEST(RoundPipe, TiedEndsAndGlobalNorm_AreVerified) {
  for (int32_t workers = 1; workers <= 7; ++workers) {
    for (const int32_t parts : PartsFor(workers)) {
      ScheduleOptions options = OptionsOf(parts, workers, 2 * workers);
      TieEnds(options.topology);
      options.global_norm = true;
      EXPECT_THAT(Verify(StepsOf(options, 3)), IsOk()) << parts << " parts, " << workers;
    }
  }
}

TEST(RoundPipe, WhatCannotBe_IsRefusedWithWhatWouldDo) {
  EXPECT_THAT(Place(Placement::kRoundTrip, 2, 4, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 stages make 3 slots, the way there and back, which are not "
                                 "enough to go round 4 workers; 3 stages or 3 workers would do")));
  EXPECT_THAT(Place(Placement::kRoundTrip, 4, 4, 6),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 or 8 would do")));
  EXPECT_THAT(Place(Placement::kRoundTrip, 4, 4, 3), IsOk());
  EXPECT_THAT(Place(Placement::kRoundTrip, 4, 7, 7, std::nullopt, /*stages_per_forward=*/3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("4 stages make 5 slots, the way there and back, which are not "
                                 "enough to go round 7 workers; 5 stages or 5 workers would do")));
  const ScheduleOptions options = OptionsOf(3, 4, 8);
  EXPECT_THAT(BuildSchedule(RoundPipeMethod(), options, {4, 8}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("begins at microbatch 4")));
  ScheduleOptions other_step = options;
  other_step.microbatches_per_step = 12;
  EXPECT_THAT(BuildSchedule(RoundPipeMethod(), other_step, {0, 12}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("in rounds of 4 of 8")));
  ScheduleOptions weights = options;
  weights.weights = &Weights::kStash;
  EXPECT_THAT(BuildSchedule(RoundPipeMethod(), weights, {0, 8}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("same version anyway")));
  ScheduleOptions listed = OptionsOf(3, 4, 4);
  listed.listed = std::make_shared<const Schedule>(StepsOf(OptionsOf(3, 4, 8), 1));
  EXPECT_THAT(
      BuildSchedule(ListedMethod(), listed, {0, 8}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other rounds there and back")));
  EXPECT_THAT(BuildSchedule(**FindMethod("1f1b"), options, {0, 8}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1f1b")));
}

// As a job with the file of a step trains.
TEST(RoundPipe, ListedStep_IsRepeatedWithItsUpdatesAndCopies) {
  for (const bool global_norm : {false, true}) {
    for (const auto& [parts, workers, per_forward] :
         {std::tuple(3, 4, 1), std::tuple(3, 3, 1), std::tuple(4, 3, 2)}) {
      ScheduleOptions options{.microbatches_per_step = 12, .global_norm = global_norm};
      for (const absl::string_view streams : {"off", "on", "file"}) {
        if (streams != "off" && parts < workers) continue;
        options.topology = RoundTripPipelines(parts, workers, 12, per_forward);
        if (streams != "off") {
          options.topology = StreamWeights(options.topology, streams == "file").value();
        }
        const Schedule expected = StepsOf(options, 2);
        ScheduleOptions listed = options;
        listed.listed = std::make_shared<const Schedule>(StepsOf(options, 1));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      BuildSchedule(ListedMethod(), listed, expected.range));
        for (size_t worker = 0; worker < expected.programs.size(); ++worker) {
          EXPECT_EQ(Expand(schedule.programs[worker]), Expand(expected.programs[worker]))
              << parts << " parts, worker " << worker << ", streams " << streams;
        }
      }
    }
  }
}

// One wrong action in a step of two rounds, and what is said about it.
class BrokenRoundPipe : public ::testing::Test {
 protected:
  BrokenRoundPipe() : schedule_(StepsOf(OptionsOf(2, 2, 4), 2)) {
    for (Program& program : schedule_.programs) program = {.prologue = Expand(program)};
  }
  ActionList& ListWith(const Action& action) {
    for (Program& program : schedule_.programs) {
      ActionList& list = program.prologue;
      if (std::find(list.begin(), list.end(), action) != list.end()) return list;
    }
    ADD_FAILURE() << ToString(action) << " is nowhere in\n" << PrintSchedule(schedule_);
    return schedule_.programs.front().prologue;
  }
  void Remove(const Action& action) {
    ActionList& list = ListWith(action);
    list.erase(std::find(list.begin(), list.end(), action));
  }
  void ExpectRefused(const char* reason) {
    EXPECT_THAT(Verify(schedule_),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(reason)));
  }
  Schedule schedule_;
};

TEST_F(BrokenRoundPipe, SumThatDoesNotCome) {
  Remove({ActionKind::kRecvSum, 4, 2});
  ExpectRefused("4W2: the sum of the microbatches before it is not there");
}
TEST_F(BrokenRoundPipe, StepBeforeTheLastRound) {
  ActionList& list = ListWith({ActionKind::kSendSum, 1, 2});
  *std::find(list.begin(), list.end(), Action{ActionKind::kSendSum, 1, 2}) = {ActionKind::kUpdate,
                                                                              1};
  ExpectRefused("1UPDATE: the gradient is not that of a whole step");
}
TEST_F(BrokenRoundPipe, WeightsThatAreNotCopied) {
  for (Program& program : schedule_.programs) {
    ActionList& list = program.prologue;
    list.erase(std::find(list.begin(), list.end(), Action{ActionKind::kReduce, 0}));
  }
  ExpectRefused("the weights are not those of its step");
}
TEST_F(BrokenRoundPipe, CheckpointThatIsNotSent) {
  Remove({ActionKind::kRecompute, 2, 0});
  ExpectRefused("2I0: no stash");
}

}  // namespace
}  // namespace penstock
