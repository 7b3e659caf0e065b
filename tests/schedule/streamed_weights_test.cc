// Streamed weights: what a worker has of the others' parts, what it costs, and what is refused.
#include "schedule/streamed_weights.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "schedule/sent_bytes.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

ScheduleOptions StreamedOptions(int32_t parts, int32_t workers, int64_t microbatches,
                                bool in_file = false, int32_t per_forward = 1) {
  const Topology topology = RoundTripPipelines(parts, workers, microbatches, per_forward);
  return {.topology = StreamWeights(topology, in_file).value(),
          .microbatches_per_step = microbatches};
}

Schedule StreamedSteps(const ScheduleOptions& options, int64_t steps) {
  return BuildSchedule(**FindMethod("roundpipe"), options,
                       {0, steps * options.microbatches_per_step})
      .value();
}

Schedule AsyncSteps(const ScheduleOptions& options, int64_t first, int64_t steps) {
  const int64_t step = options.microbatches_per_step;
  return BuildSchedule(**FindMethod("roundpipe-async"), options, {first * step, steps * step})
      .value();
}

int64_t CountOf(const Schedule& schedule, ActionKind kind) {
  int64_t count = 0;
  for (const Program& program : schedule.programs) {
    for (const Action& action : Expand(program)) count += action.kind == kind;
  }
  return count;
}

TEST(StreamedWeights, AnySize_VerifiesWithTheWeightsOfTwoSlotsOfOthersAtMost) {
  for (int32_t workers = 1; workers <= 8; ++workers) {
    for (int32_t parts = workers; parts <= workers + 4; ++parts) {
      for (const int64_t rounds : {0, 1, 2, 5}) {
        const int64_t m = rounds == 0 ? std::max(workers - 1, 1) : rounds * workers;
        SCOPED_TRACE(absl::StrCat(parts, " parts, ", workers, " workers, ", m, " microbatches"));
        for (const bool in_file : {false, true}) {
          const int32_t per_forward = static_cast<int32_t>(parts + rounds) % 3 + 1;
          const ScheduleOptions options = StreamedOptions(parts, workers, m, in_file, per_forward);
          const Schedule schedule = StreamedSteps(options, 3);
          const absl::StatusOr<VerifyReport> report = Verify(schedule);
          ASSERT_THAT(report, IsOk()) << PrintSchedule(schedule);
          EXPECT_THAT(Verify(BuildEvaluation(options.topology, {0, 2 * m + 1})), IsOk());
          for (int32_t id = 0; id < options.topology.stages(); ++id) {
            const StageWiring& row = options.topology[StageId(id)];
            const StageCounts& counts = report->stages[id];
            EXPECT_LE(counts.streamed_peak, 2 * per_forward);
            EXPECT_EQ(counts.streamed_peak > 0, in_file || row.source.value >= 0) << id;
            EXPECT_EQ(counts.versions_peak, 1);
            EXPECT_EQ(counts.staleness.max, 0);
          }
        }
      }
    }
  }
}

TEST(StreamedWeights, AsyncOfAnySize_ReadsWeightsOneUpdateOldAndKeepsTwoVersionsWhereTheyAreMade) {
  for (int32_t workers = 1; workers <= 6; ++workers) {
    for (int32_t parts = workers; parts <= workers + 4; ++parts) {
      for (const int64_t rounds : {0, 1, 2, 3, 5}) {
        const int64_t m = rounds == 0 ? std::max(workers - 1, 1) : rounds * workers;
        const int32_t per_forward = static_cast<int32_t>(parts + rounds) % 3 + 1;
        const ScheduleOptions options =
            StreamedOptions(parts, workers, m, /*in_file=*/false, per_forward);
        for (const int64_t steps : {1, 2, 3, 4, 5, 30}) {
          SCOPED_TRACE(absl::StrCat(parts, " parts, ", workers, " workers, ", m, " microbatches, ",
                                    steps, " steps"));
          const Schedule schedule = AsyncSteps(options, /*first=*/3, steps);
          EXPECT_GE(schedule.programs.front().repeats, steps - 7);
          const absl::StatusOr<VerifyReport> report = Verify(schedule);
          ASSERT_THAT(report, IsOk()) << PrintSchedule(schedule);
          for (int32_t id = 0; id < options.topology.stages(); ++id) {
            const StageWiring& row = options.topology[StageId(id)];
            const StageCounts& counts = report->stages[id];
            EXPECT_LE(counts.streamed_peak, 2 * per_forward);
            EXPECT_EQ(counts.staleness.updates, row.updates ? steps : 0);
            if (!row.updates) continue;
            EXPECT_EQ(counts.versions_peak, 2);
            EXPECT_EQ(counts.staleness.max, steps > 1 ? 1 : 0);
            EXPECT_EQ(counts.staleness.sum, (steps - 1) * m);
            EXPECT_EQ(counts.staleness.microbatches, steps * m);
            EXPECT_EQ(counts.version_drift.max, 0);
          }
        }
      }
    }
  }
}

// Every slot on a worker that does not update its part gets the weights once, and nothing else does.
TEST(StreamedWeights, Step_SendsEachSlotItsWeightsOnce) {
  for (const int32_t per_forward : {1, 3}) {
    const ScheduleOptions options = StreamedOptions(8, 4, 8, /*in_file=*/false, per_forward);
    const Topology& topology = options.topology;
    const Schedule schedule = StreamedSteps(options, 2);
    EXPECT_TRUE(topology.groups.empty());
    EXPECT_EQ(CountOf(schedule, ActionKind::kReduce), 0);
    std::map<std::pair<int32_t, int64_t>, int64_t> came;  // by stage and first microbatch
    for (int32_t worker = 0; worker < 4; ++worker) {
      for (const Action& action : Expand(schedule.programs[worker])) {
        if (action.kind != ActionKind::kRecvWeights) continue;
        EXPECT_EQ(topology.worker(action.stage()), WorkerId(worker));
        ++came[{action.index, action.microbatch}];
      }
    }
    int64_t expected = 0;
    for (const int64_t first : {0, 4, 8, 12}) {
      for (int32_t place = 0; place < topology.depth(); ++place) {
        const StageId stage = topology.StageAt(place, first);
        const int64_t times = topology[stage].source.value >= 0;
        expected += times;
        EXPECT_EQ((came[{stage.value, first}]), times) << stage.value;
      }
    }
    for (const ActionKind kind : {ActionKind::kSendRequest, ActionKind::kRecvRequest,
                                  ActionKind::kSendWeights, ActionKind::kDropWeights}) {
      EXPECT_EQ(CountOf(schedule, kind), expected) << ActionName(kind);
    }
    // 1000 bytes of weights for each, and a request of 4.
    Traffic traffic = {.weights = std::vector<double>(topology.stages(), 1000.0), .request = 4.0};
    double sent = 0.0;
    for (const double bytes : SentBytesOf(schedule, traffic)) sent += bytes;
    EXPECT_EQ(sent, 1004.0 * static_cast<double>(expected));
  }
}

// A forward takes a second, and so does a backward.
SimulationCosts CostsOfEqualPasses(const Topology& topology) {
  SimulationCosts costs;
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const bool forward = !topology[StageId(id)].backward;
    costs.stages.push_back({.forward_s = forward ? 1.0 : 0.0,
                            .backward_input_s = 0.5,
                            .backward_weight_s = 0.5,
                            .recompute_s = 0.0});
  }
  return costs;
}

// The time of a step of slots of one length is that without streaming, if weights travel in a slot.
TEST(StreamedWeights, WeightsThatTravelWithinASlot_TakeNoTimeButAtTheBeginning) {
  const ScheduleOptions streamed = StreamedOptions(8, 4, 16);
  SimulationCosts costs = CostsOfEqualPasses(streamed.topology);
  const auto makespan = [&](double weights_s) {
    costs.sum_s = weights_s;
    return Simulate(StreamedSteps(streamed, 1), costs, {.channel_capacity = 4})->makespan_s;
  };
  const double slots = 16.0 * 15.0 / 4.0 + 4.0 - 1.0;
  EXPECT_DOUBLE_EQ(makespan(0.0), slots);
  EXPECT_LE(makespan(2.0), slots + 2.0);
  EXPECT_GT(makespan(8.0), slots + 8.0);
}

// Slots of one length, messages and updates for nothing: a step of K slots, of which W are passed side by side, takes
// ceil(K / W) times W microbatches' time.
TEST(StreamedWeights, AsyncSteps_FollowEachOtherWithoutABubbleIfWorkersDivideTheSlots) {
  const auto period = [](int32_t parts, int32_t workers, int64_t rounds, int32_t per_forward = 1) {
    const ScheduleOptions options =
        StreamedOptions(parts, workers, rounds * workers, /*in_file=*/false, per_forward);
    SimulationCosts costs = CostsOfEqualPasses(options.topology);
    for (StageCosts& stage : costs.stages) stage.forward_s /= per_forward;
    const int32_t slots = (parts - 1) / per_forward + parts;
    const auto makespan = [&](int64_t steps) {
      return Simulate(AsyncSteps(options, 0, steps), costs, {.channel_capacity = 2 * workers})
          ->makespan_s;
    };
    EXPECT_DOUBLE_EQ(makespan(1), static_cast<double>(rounds * slots + workers - 1));
    return (makespan(12) - makespan(6)) / 6;
  };
  EXPECT_DOUBLE_EQ(period(4, 4, 4), 28.0);  // 4 rounds of 7 slots
  EXPECT_DOUBLE_EQ(period(5, 3, 1), 9.0);
  EXPECT_DOUBLE_EQ(period(5, 3, 4), 36.0);
  EXPECT_DOUBLE_EQ(period(4, 4, 1), 8.0);      // 7 slots
  EXPECT_DOUBLE_EQ(period(8, 4, 2), 32.0);     // 30
  EXPECT_DOUBLE_EQ(period(6, 5, 3), 35.0);     // 33
  EXPECT_DOUBLE_EQ(period(9, 4, 4, 2), 52.0);  // 4 rounds of 4 and 9 slots
  EXPECT_DOUBLE_EQ(period(9, 4, 1, 4), 12.0);  // 11
}

// With steps of 8 passes in a row for each of four workers, the first one begins step 1 while others still pass step 0.
TEST(StreamedWeights, AsyncFirstWorker_AsksForTheNextStepsWeightsInTheLastSlotOfAStep) {
  const Schedule schedule = AsyncSteps(StreamedOptions(4, 4, 4), 0, 3);
  std::string text;
  for (const Action& action : Expand(schedule.programs[0])) {
    const bool of_passes =
        action.kind == ActionKind::kForward || action.kind == ActionKind::kBackwardInput;
    const bool of_first = action.microbatch % 4 == 0;
    const bool shown = action.kind == ActionKind::kUpdate || StreamsWeights(action.kind) ||
                       (of_passes && of_first);
    if (shown) absl::StrAppend(&text, text.empty() ? "" : " ", ToString(action));
    if (action.kind == ActionKind::kUpdate) break;
  }
  EXPECT_EQ(
      text,
      "0SEND_Q0 2RECV_Q0 2SEND_P0 0RECV_P0 0F0 0DROP0 0SEND_Q4 4I0 2RECV_Q4 2SEND_P4 4UPDATE");
}

// As schedule/README.md has it.
TEST(StreamedWeights, FirstOfFourWorkers_BorrowsStage0AndSendsStage2) {
  const Schedule schedule = StreamedSteps(StreamedOptions(4, 4, 4), 1);
  std::string text;
  for (const Action& action : Expand(schedule.programs[0])) {
    absl::StrAppend(&text, text.empty() ? "" : " ", ToString(action));
    if (action.kind == ActionKind::kRecompute) break;
  }
  EXPECT_EQ(text,
            "0SEND_Q0 2RECV_Q0 2SEND_P0 0RECV_P0 0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0F3 "
            "0SEND_F3 0DROP0 4RECV_R0 4R0");
}

// Where weights live in files the worker reads what it sends in the tick after the question, loads its own slots as it
// borrows others, and updates a part as soon as it may.
TEST(StreamedWeights, InFiles_AreLoadedAndReadASlotAheadAndUpdatedAtOnce) {
  const Schedule schedule = StreamedSteps(StreamedOptions(4, 4, 8, /*in_file=*/true), 1);
  std::string text;
  for (const Action& action : Expand(schedule.programs[0])) {
    const bool of_passes = action.kind == ActionKind::kForward ||
                           action.kind == ActionKind::kBackwardInput ||
                           action.kind == ActionKind::kUpdate;
    if (!of_passes && !StreamsWeights(action.kind)) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", ToString(action));
  }
  EXPECT_EQ(text,
            "0SEND_Q0 1RECV_Q0 4SEND_Q0 0RECV_P0 0F0 1SEND_P0 0F1 5RECV_Q0 0F2 5SEND_P0 0F3 0DROP0 "
            "8LOAD4 4RECV_P0 4I0 4I1 4I2 4I3 4DROP0 12LOAD4 8F4 8F5 8F6 8F7 8DROP4 12I4 12I5 12I6 "
            "12I7 12DROP4 12UPDATE");
}

// Slot 4 of the first round ends long before slot 11, on the last worker, goes on with its sum.
TEST(StreamedWeights, Sum_LeavesAfterTheFirstPassOfTheLastSlotThatBeginsBefore) {
  const Schedule schedule = StreamedSteps(StreamedOptions(4, 4, 8), 1);
  std::string text;
  for (const Action& action : Expand(schedule.programs[0])) {
    const bool shown = action.kind == ActionKind::kForward ||
                       action.kind == ActionKind::kBackwardWeight ||
                       action.kind == ActionKind::kSendSum || action.kind == ActionKind::kRecvSum;
    if (shown) absl::StrAppend(&text, text.empty() ? "" : " ", ToString(action));
  }
  EXPECT_EQ(text,
            "0F0 0F1 0F2 0F3 4W0 4W1 4W2 4W3 8F4 4SEND_W4 8F5 8F6 8F7 12RECV_W4 12W4 12W5 12W6 "
            "12W7");
}

// The most sums that wait for `lazy`, which does nothing as long as another worker can do something.
int64_t MostSumsWaiting(const Schedule& schedule, WorkerId lazy) {
  const Topology& topology = schedule.topology;
  std::vector<ActionList> lists;
  for (const Program& program : schedule.programs) lists.push_back(Expand(program));
  std::vector<size_t> done(lists.size());
  std::vector<int64_t> messages(topology.edges.size());
  int64_t waiting = 0;
  int64_t most = 0;
  const auto advance = [&](int32_t worker) {
    if (done[worker] == lists[worker].size()) return false;
    const Action& action = lists[worker][done[worker]];
    const int32_t edge =
        IsSend(action.kind) || IsReceive(action.kind) ? topology.EdgeOf(action) : -1;
    if (IsReceive(action.kind) && messages[edge] == 0) return false;
    if (IsReceive(action.kind)) --messages[edge];
    if (IsSend(action.kind)) ++messages[edge];
    if (action.kind == ActionKind::kSendSum && topology.worker(topology.edges[edge].to) == lazy) {
      most = std::max(most, ++waiting);
    }
    waiting -= action.kind == ActionKind::kRecvSum && WorkerId(worker) == lazy;
    ++done[worker];
    return true;
  };
  for (bool any = true; any;) {
    any = false;
    for (int32_t worker = 0; worker < topology.workers; ++worker) {
      while (WorkerId(worker) != lazy && advance(worker)) any = true;
    }
    any = any || advance(lazy.value);
  }
  for (size_t worker = 0; worker < lists.size(); ++worker) {
    EXPECT_EQ(done[worker], lists[worker].size()) << "worker " << worker;
  }
  return most;
}

TEST(StreamedWeights, AnySize_LetsNoMoreThanOneSumWaitForAWorker) {
  for (int32_t workers = 2; workers <= 7; ++workers) {
    for (int32_t parts = workers; parts <= workers + 5; ++parts) {
      for (const int64_t rounds : {2, 3, 5}) {
        SCOPED_TRACE(absl::StrCat(parts, " parts, ", workers, " workers, ", rounds, " rounds"));
        const Schedule schedule =
            StreamedSteps(StreamedOptions(parts, workers, rounds * workers), 2);
        for (int32_t lazy = 0; lazy < workers; ++lazy) {
          // With one part for each worker, the slot before may be one of the round before.
          EXPECT_LE(MostSumsWaiting(schedule, WorkerId(lazy)), parts == workers ? 2 : 1) << lazy;
        }
      }
    }
  }
}

// A tick of reading hides behind a pass, an update waits for both directions, and so does a sum.
TEST(StreamedWeights, ReadingWithinAPass_TakesNoTimeButAtTheBeginningAndForUpdatesAndSums) {
  const ScheduleOptions options = StreamedOptions(8, 4, 16, /*in_file=*/true);
  SimulationCosts costs = CostsOfEqualPasses(options.topology);
  const auto run = [&](double weights_s, double state_s) {
    for (StageCosts& stage : costs.stages) {
      stage.weight_bytes = weights_s;
      stage.state_bytes = state_s;
    }
    costs.host = {.offload_bytes_per_second = 1.0, .prefetch_bytes_per_second = 1.0};
    return *Simulate(StreamedSteps(options, 1), costs, {.channel_capacity = 4});
  };
  const double slots = 16.0 * 15.0 / 4.0 + 4.0 - 1.0;
  EXPECT_DOUBLE_EQ(run(0.0, 0.0).makespan_s, slots);
  // Each worker writes the sums of two parts three times, and reads them for their messages, which it waits for.
  EXPECT_LE(run(0.5, 0.0).makespan_s, slots + 2.0 + 3 * 2 * 2 * 0.5);
  EXPECT_GT(run(0.5, 0.0).makespan_s, slots + 3 * 2 * 0.5);
  EXPECT_GT(run(8.0, 0.0).makespan_s, slots + 8.0);
  // Each worker updates two parts, before and after each of which it waits for the file.
  double waits = 0.0;
  for (const WorkerTimes& worker : run(0.0, 0.25).workers) waits += worker.wait_host_s;
  EXPECT_DOUBLE_EQ(waits, 8 * 2 * 0.25);
}

TEST(StreamedWeights, NormOfAllGradients_ComesBeforeUpdatesFromFiles) {
  ScheduleOptions options = StreamedOptions(4, 4, 8, /*in_file=*/true);
  options.global_norm = true;
  const Schedule schedule = StreamedSteps(options, 1);
  ASSERT_THAT(Verify(schedule), IsOk());
  for (const Program& program : schedule.programs) {
    const ActionList list = Expand(program);
    const auto norm = std::find_if(list.begin(), list.end(), [](const Action& action) {
      return action.kind == ActionKind::kNorm;
    });
    ASSERT_NE(norm, list.end());
    EXPECT_EQ((norm + 1)->kind, ActionKind::kUpdate);
    EXPECT_EQ(std::count_if(list.begin(), norm,
                            [](const Action& a) { return a.kind == ActionKind::kUpdate; }),
              0);
  }
}

TEST(StreamedWeights, FewerPartsThanWorkers_AreRefused) {
  EXPECT_THAT(StreamWeights(RoundTripPipelines(3, 4, 4)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("only 3 of 4 workers update one of the 3 parts")));
  EXPECT_THAT(Wire({.worker_of = {WorkerId(0), WorkerId(1)}, .streams_weights = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("there and back alone")));
  EXPECT_THAT(Wire({.worker_of = {WorkerId(0)}, .weights_in_file = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("streamed live in files")));
}

TEST(StreamedWeights, Text_IsReadAsItIsPrinted) {
  const Schedule schedule = StreamedSteps(StreamedOptions(4, 3, 6), 2);
  const std::string text = PrintSchedule(schedule);
  EXPECT_THAT(text, HasSubstr(" rounds=3/6 stream=weights"));
  const absl::StatusOr<Schedule> read = ParseSchedule(text);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->topology, schedule.topology);
  EXPECT_EQ(PrintSchedule(*read), text);
  EXPECT_THAT(ParseSchedule("# penstock schedule 1 stages=0 stream=inputs\n0F0\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stream=weights")));
  const Schedule in_file = StreamedSteps(StreamedOptions(4, 3, 6, /*in_file=*/true), 2);
  const std::string file_text = PrintSchedule(in_file);
  EXPECT_THAT(file_text, HasSubstr(" rounds=3/6 stream=file"));
  const absl::StatusOr<Schedule> file_read = ParseSchedule(file_text);
  ASSERT_THAT(file_read, IsOk());
  EXPECT_EQ(file_read->topology, in_file.topology);
  EXPECT_EQ(PrintSchedule(*file_read), file_text);
}

// One wrong action, and what is said about it.
class BrokenStream : public ::testing::Test {
 protected:
  explicit BrokenStream(bool in_file = false)
      : schedule_(StreamedSteps(StreamedOptions(2, 2, 4, in_file), 2)) {
    for (Program& program : schedule_.programs) program = {.prologue = Expand(program)};
  }
  ActionList& ListWith(ActionKind kind) {
    for (Program& program : schedule_.programs) {
      ActionList& list = program.prologue;
      const auto found = std::find_if(list.begin(), list.end(),
                                      [kind](const Action& a) { return a.kind == kind; });
      if (found == list.end()) continue;
      at_ = found - list.begin();
      return list;
    }
    ADD_FAILURE() << ActionName(kind) << " is nowhere in\n" << PrintSchedule(schedule_);
    return schedule_.programs.front().prologue;
  }
  void Remove(ActionKind kind) {
    ActionList& list = ListWith(kind);
    list.erase(list.begin() + at_);
  }
  void ExpectRefused(const char* reason) {
    EXPECT_THAT(Verify(schedule_),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(reason)));
  }
  Schedule schedule_;
  int64_t at_ = 0;
};

class BrokenFile : public BrokenStream {
 protected:
  BrokenFile() : BrokenStream(/*in_file=*/true) {}
};

TEST_F(BrokenFile, WeightsThatAreNotLoaded) {
  Remove(ActionKind::kLoadWeights);
  ExpectRefused("the stage has no weights here: LOAD must come before it");
}
TEST_F(BrokenFile, WeightsThatAreLoadedTwice) {
  ActionList& list = ListWith(ActionKind::kLoadWeights);
  list.insert(list.begin() + at_, list[at_]);
  ExpectRefused("the stage has already asked for weights");
}
TEST_F(BrokenFile, WeightsOfAnotherWorker) {
  ActionList& list = ListWith(ActionKind::kSendRequest);
  list[at_].kind = ActionKind::kLoadWeights;
  ExpectRefused("the weights of the stage are in no file of this worker");
}
TEST_F(BrokenFile, UpdateOfWeightsThatAreHere) {
  ActionList& list = ListWith(ActionKind::kUpdate);
  ASSERT_EQ(list[at_ - 1].kind, ActionKind::kDropWeights);
  std::swap(list[at_ - 1], list[at_]);
  ExpectRefused("still has weights from the file; DROP must come before it");
}
TEST(StreamedWeights, LoadWithoutAFile_IsRefused) {
  EXPECT_THAT(Verify(ParseSchedule("# penstock schedule 1 stages=0 range=0+1\n"
                                   "0LOAD0,0F0,0I0,0W0,0UPDATE,FLUSH\n")
                         .value()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in no file")));
}

TEST(StreamedWeights, AsyncWithoutStreamsOrWithFilesOrOtherWeights_IsRefused) {
  const Method& async = **FindMethod("roundpipe-async");
  const auto build = [&](Topology topology, const Weights* weights = nullptr) {
    return BuildSchedule(
               async,
               {.topology = std::move(topology), .microbatches_per_step = 4, .weights = weights},
               {0, 8})
        .status();
  };
  const Topology round_trip = RoundTripPipelines(4, 4, 4);
  EXPECT_THAT(build(StreamWeights(round_trip).value()), IsOk());
  EXPECT_THAT(build(round_trip), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("with every worker that passes them")));
  EXPECT_THAT(
      build(StreamWeights(round_trip, /*in_file=*/true).value()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the plan has them in files")));
  EXPECT_THAT(build(StreamWeights(round_trip).value(), &Weights::kStash),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("roundpipe-async cannot have the weights \"stash\"")));
}

TEST(StreamedWeights, AsyncWithoutTheUpdateOfAStep_IsRefused) {
  const ScheduleOptions options = StreamedOptions(2, 2, 2);
  Schedule schedule = AsyncSteps(options, 0, 4);
  for (Program& program : schedule.programs) program = {.prologue = Expand(program)};
  ActionList& list = schedule.programs[0].prologue;
  const auto update = std::find_if(list.begin(), list.end(), [](const Action& action) {
    return action.kind == ActionKind::kUpdate;
  });
  ASSERT_NE(update, list.end());
  list.erase(update);
  EXPECT_THAT(Verify(schedule), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("the step before has had no UPDATE")));
}

TEST_F(BrokenStream, WeightsThatAreNotTaken) {
  Remove(ActionKind::kRecvWeights);
  ExpectRefused("the stage has no weights here: RECV_P must come before it");
}
TEST_F(BrokenStream, WeightsThatAreNotAskedFor) {
  Remove(ActionKind::kSendRequest);
  ExpectRefused("no message comes");
}
TEST_F(BrokenStream, AnswerWithoutAQuestion) {
  Remove(ActionKind::kRecvRequest);
  ExpectRefused("nobody has asked for these weights");
}
TEST_F(BrokenStream, QuestionWithoutAnAnswer) {
  Remove(ActionKind::kSendWeights);
  ExpectRefused("no message comes");
}
TEST_F(BrokenStream, WeightsThatAreKept) {
  Remove(ActionKind::kDropWeights);
  ExpectRefused("weights");
}
TEST_F(BrokenStream, WeightsThatAreDroppedBeforeABackward) {
  for (Program& program : schedule_.programs) {
    ActionList& list = program.prologue;
    const auto drop = std::find_if(list.begin(), list.end(), [](const Action& a) {
      return a.kind == ActionKind::kDropWeights && a.index >= 2;
    });
    if (drop == list.end()) continue;
    const auto backward = std::find_if(list.begin(), drop, [&](const Action& a) {
      return a.kind == ActionKind::kBackwardInput && a.index == drop->index;
    });
    if (backward == drop) continue;
    const Action dropped = *drop;
    list.erase(drop);
    list.insert(backward, dropped);
    ExpectRefused("the stage still holds a stash, whose I reads the weights");
    return;
  }
  ADD_FAILURE() << PrintSchedule(schedule_);
}

}  // namespace
}  // namespace penstock
