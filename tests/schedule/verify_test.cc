#include "schedule/verify.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "tests/schedule/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two workers, one stage each: the first runs GPipe, the second 1F1B.
Schedule MismatchedPair(int64_t microbatches) {
  Schedule schedule = CatalogSchedule("gpipe", 2, microbatches, {0, microbatches});
  schedule.programs[1] = CatalogSchedule("1f1b", 2, microbatches, {0, microbatches}).programs[1];
  schedule.name = "mismatched";
  return schedule;
}

TEST(Verify, ChannelsThatAreTooSmall_DeadlockWithThePlaceDrawn) {
  // With capacity c the second worker stops at 1SEND_B<c>, the first at 0SEND_F<2c+1>.
  for (int32_t capacity = 1; capacity <= 3; ++capacity) {
    EXPECT_THAT(Verify(MismatchedPair(8), {.channel_capacity = capacity}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(absl::StrCat("deadlock with channels of ", capacity)),
                               HasSubstr(absl::StrCat("worker 0 at 0SEND_F", 2 * capacity + 1,
                                                      " (the channel is full)")),
                               HasSubstr(absl::StrCat("worker 1 at 1SEND_B", capacity,
                                                      " (the channel is full)")))));
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(MismatchedPair(8)));
  EXPECT_EQ(report.channel_capacity_min, 4);
  ExpectEqualsGolden(
      "schedule/deadlock.txt",
      std::string(Verify(MismatchedPair(8), {.channel_capacity = 1}).status().message()) + "\n");
}

TEST(Verify, SmallestCapacity_IsExact) {
  for (int64_t microbatches = 1; microbatches <= 40; ++microbatches) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(MismatchedPair(microbatches)));
    EXPECT_EQ(report.channel_capacity_min, std::max<int64_t>(1, microbatches / 2)) << microbatches;
  }
}

TEST(Verify, CollectivesInDifferentOrder_DeadlockAtAnyCapacity) {
  constexpr absl::string_view kText =
      "# penstock schedule 1 stages=0,1,0,1 group=gradient:sum:0,1 group=gradient:sum:2,3\n"
      "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,2SEND_B0,0RECV_B0,0B0,"
      "0REDUCE,1REDUCE,0UPDATE,2UPDATE,FLUSH\n"
      "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,1RECV_B0,1B0,1SEND_B0,"
      "0REDUCE,1REDUCE,1UPDATE,3UPDATE,FLUSH\n";
  Schedule schedule = ParseSchedule(kText).value();
  EXPECT_THAT(Verify(schedule), IsOk());
  ActionList& second = schedule.programs[1].prologue;
  std::swap(*(second.end() - 5), *(second.end() - 4));
  EXPECT_THAT(Verify(schedule),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("deadlock: worker 0 at 0REDUCE (waits for worker 1)"),
                             HasSubstr("worker 1 at 1REDUCE (waits for worker 0)"))));
}

TEST(Verify, TiedStages_ReduceOnceInEachStep) {
  for (int32_t stages = 2; stages <= 5; ++stages) {
    ScheduleOptions options = TiedOptions(stages, 4);
    options.global_norm = true;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                  BuildSchedule(**FindMethod("1f1b"), options, {0, 12}));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
    for (const StageCounts& counts : report.stages) EXPECT_EQ(counts.staleness.updates, 3);
    for (const Program& program : schedule.programs) {
      const ActionList list = Expand(program);
      const bool tied =
          &program == &schedule.programs.front() || &program == &schedule.programs.back();
      EXPECT_EQ(std::count(list.begin(), list.end(), Action{ActionKind::kReduce}), tied ? 3 : 0);
      EXPECT_EQ(std::count(list.begin(), list.end(), Action{ActionKind::kNorm}), 3);
    }
  }
}

TEST(VerifyAndDraw, BrokenRule_IsDrawnWithAnArrowAtTheAction) {
  const Schedule wrong = ScheduleFromText("0F0,0F1,0B0,0B1\n1F0,1F1,1I0,1I1,1W1,1W0\n");
  const absl::Status status = VerifyAndDraw(wrong).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("1W1 does not come in the order of the microbatches"),
                             HasSubstr("\n      worker 1"), HasSubstr("\n -->  1W1"))));
  EXPECT_THAT(VerifyAndDraw(ScheduleFromText("0F0,0B0\n1F0,1B0\n")), IsOk());
}

struct Mistake {
  absl::string_view from, to, expected;
};

TEST(Verify, OneMistake_IsNamed) {
  const std::string good = PrintSchedule(CatalogSchedule("1f1b", 2, 2, {0, 2}), {.expand = true});
  ASSERT_THAT(Verify(ParseSchedule(good).value()), IsOk());
  for (const Mistake& mistake :
       {Mistake{"range=0+2", "range=0+3", "0F2 is missing"},
        {"range=0+2", "range=0+1", "0F1 is outside of the range 0 to 0"},
        {"1F1,1I1,", "1I1,1F1,", "worker 1: 1I1: no stash"},
        {"1RECV_F1", "1RECV_F0", "1RECV_F0: the next message is that of microbatch 1"},
        {"1UPDATE,FLUSH", "FLUSH", "stage 1 has accumulated gradients without an UPDATE"},
        {"1SEND_B1,1UPDATE", "1UPDATE",
         "worker 1: FLUSH: stage 1 still holds the input gradient of microbatch 1"},
        {"0F1,0SEND_F1,0RECV_B0,0I0,0W0", "0RECV_B0,0I0,0W0,0F1,0SEND_F1", ""},
        {"1F1,", "", "worker 1: 1I1: no stash"},
        {"0F0,0SEND_F0", "0F0,0F0,0SEND_F0", "0F0: the stage already holds its output"},
        {"0UPDATE,FLUSH", "0UPDATE,0F1,0SEND_F1,FLUSH", "0F1 comes twice"},
        {"0UPDATE,FLUSH", "FLUSH,0UPDATE", "the program of worker 0 does not end with FLUSH"}}) {
    const std::string text = absl::StrReplaceAll(good, {{mistake.from, mistake.to}});
    ASSERT_NE(text, good) << mistake.from;
    const absl::Status status = Verify(ParseSchedule(text).value()).status();
    if (mistake.expected.empty()) {
      EXPECT_THAT(status, IsOk()) << mistake.to;
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(mistake.expected)));
    }
  }
}

TEST(Verify, MicrobatchDroppedEverywhere_IsIncomplete) {
  // Consistent in itself: only the range says that something is missing.
  Schedule schedule = CatalogSchedule("1f1b", 3, 4, {0, 4});
  schedule.range.count = 5;
  EXPECT_THAT(Verify(schedule),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("0F4 is missing")));
}

TEST(Verify, MessageNobodyTakes_IsNamed) {
  const Schedule schedule =
      ParseSchedule("0F0,0SEND_F0,FLUSH\nFLUSH\n# stage 1 does nothing\n").value();
  Schedule two_stages = schedule;
  two_stages.topology = StraightPipeline(2);
  two_stages.completeness = Completeness::kEvaluate;
  EXPECT_THAT(Verify(two_stages),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("worker 1 ends without 1RECV_F0, which was sent")));
}

TEST(Verify, BadForm_IsRefused) {
  Schedule schedule = CatalogSchedule("1f1b", 2, 2, {0, 2});
  schedule.programs.pop_back();
  EXPECT_THAT(Verify(schedule),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 programs for 2 workers")));
  schedule = CatalogSchedule("1f1b", 2, 2, {0, 2});
  schedule.programs[0].repeats = int64_t{1} << 60;
  EXPECT_THAT(Verify(schedule),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("repeats too often")));
  schedule = CatalogSchedule("1f1b", 2, 2, {0, 2});
  schedule.topology.table[1].worker = WorkerId(2);
  EXPECT_THAT(Verify(schedule),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stage 1 is on worker 2")));
  schedule = CatalogSchedule("1f1b", 2, 2, {0, 2});
  schedule.range.first = kMicrobatchMax - 1;
  EXPECT_THAT(Verify(schedule),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("numbered below")));
}

TEST(Verify, MicrobatchThatDoesNotFit_IsRefusedWhereverItStands) {
  for (ActionList Program::*list : {&Program::prologue, &Program::period, &Program::epilogue}) {
    Schedule schedule = CatalogSchedule("pipedream", 2, 1, {0, 5});
    ASSERT_FALSE((schedule.programs[0].*list).empty());
    (schedule.programs[0].*list)[0].microbatch = kMicrobatchMax - 2;
    EXPECT_THAT(Verify(schedule),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the program of worker 0")));
  }
}

// ---- the shortcut for long ranges

void ExpectSameAnswer(const Schedule& schedule, const VerifyLimits& limits = {}) {
  const absl::StatusOr<VerifyReport> shortened = Verify(schedule, limits);
  const absl::StatusOr<VerifyReport> full = VerifyWithoutShortcut(schedule, limits);
  ASSERT_EQ(shortened.status(), full.status()) << PrintSchedule(schedule);
  if (!full.ok()) return;
  EXPECT_EQ(shortened->stages, full->stages) << PrintSchedule(schedule);
  EXPECT_EQ(shortened->channel_capacity_min, full->channel_capacity_min);
  EXPECT_EQ(shortened->actions, full->actions);
}

TEST(VerifyShortcut, EveryMethodAndLength_GivesTheAnswerOfTheFullRun) {
  for (const Method& method : Methods()) {
    for (int32_t stages = 1; stages <= 7; ++stages) {
      for (int64_t steps = 1; steps <= 40; ++steps) {
        SCOPED_TRACE(testing::Message() << method.name << " " << stages << " " << steps);
        ExpectSameAnswer(CatalogSteps(method, stages, 3, 5, steps));
      }
    }
  }
}

TEST(VerifyShortcut, BillionsOfMicrobatches_AreCountedExactly) {
  constexpr int64_t kMicrobatches = 4'000'000'000;
  const Schedule schedule = CatalogSchedule("pipedream", 4, 1, {0, kMicrobatches});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
  EXPECT_LT(report.actions_run, 1000);
  EXPECT_GT(report.actions, 5 * 4 * kMicrobatches);
  for (int64_t s = 0; s < 4; ++s) {
    const int64_t depth = 3 - s;
    // Microbatch k has staleness min(k, depth).
    const StalenessCount expected{kMicrobatches, depth,
                                  depth * (kMicrobatches - depth) + depth * (depth - 1) / 2,
                                  kMicrobatches};
    EXPECT_EQ(report.stages[s].staleness, expected);
  }
}

TEST(VerifyShortcut, Evaluation_IsShortened) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const VerifyReport report,
      Verify(BuildEvaluation(StraightPipeline(4), {0, int64_t{1'000'000'000'000}})));
  EXPECT_LT(report.actions_run, 500);
}

TEST(VerifyShortcut, RandomPeriodicPrograms_GiveTheAnswerOfTheFullRun) {
  // Mutants of periodic schedules, right and wrong: rotated, swapped, with other shifts and
  // repeats.
  RandomStream random(11, 0);
  int accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    const Method& method = Methods()[random.Below(Methods().size())];
    const auto stages = static_cast<int32_t>(1 + random.Below(4));
    Schedule schedule =
        CatalogSteps(method, stages, 2, 0, static_cast<int64_t>(1 + random.Below(30)));
    for (uint64_t mutations = random.Below(3); mutations > 0; --mutations) {
      Program& program = schedule.programs[random.Below(schedule.programs.size())];
      ActionList* lists[] = {&program.prologue, &program.period, &program.epilogue};
      ActionList& list = *lists[random.Below(3)];
      switch (random.Below(4)) {
        case 0:
          if (list.size() > 1) {
            const size_t i = random.Below(list.size() - 1);
            std::swap(list[i], list[i + 1]);
          }
          break;
        case 1:
          // Unrolls a copy of the period, which changes nothing.
          if (program.repeats > 0) {
            program.prologue.insert(program.prologue.end(), program.period.begin(),
                                    program.period.end());
            for (Action& action : program.period) {
              if (HasMicrobatch(action.kind)) action.microbatch += program.shift;
            }
            --program.repeats;
          }
          break;
        case 2:
          if (list.size() > 1)
            list.erase(list.begin() + static_cast<long>(random.Below(list.size() - 1)));
          break;
        case 3:
          program.repeats += static_cast<int64_t>(random.Below(3)) - 1;
          program.repeats = std::max<int64_t>(program.repeats, 0);
          break;
      }
    }
    const VerifyLimits limits{.channel_capacity = static_cast<int32_t>(1 + random.Below(4))};
    ExpectSameAnswer(schedule, limits);
    accepted += Verify(schedule, limits).ok();
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 5000);
}

TEST(VerifyShortcut, NoSteadyStateAndTooLong_IsRefusedInsteadOfRun) {
  Schedule schedule = CatalogSchedule("1f1b", 2, 2, {0, 200});
  for (Action& action : schedule.programs[0].period) action.microbatch *= 2;
  EXPECT_THAT(Verify(schedule, {.actions_max = 100}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no steady state")));
}

}  // namespace
}  // namespace penstock
