#include "schedule/text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "schedule/digest.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

std::vector<Schedule> Samples() {
  std::vector<Schedule> samples;
  for (const Method& method : Methods()) {
    for (const int32_t stages : {1, 2, 5}) {
      for (const int64_t steps : {1, 2, 30}) {
        samples.push_back(CatalogSteps(method, stages, 3, 9, steps));
      }
    }
  }
  for (const Method& method : Methods()) {
    samples.push_back(RecomputingSteps(method, {.all = true}, 3, 3, 9, 2));
    samples.push_back(RecomputingSteps(method, {.places = {0, 1}}, 2, 3, 9, 2));
    if (method.placement == Placement::kRoundTrip) continue;
    samples.push_back(OffloadingSteps(method, {.all = 2}, 4, 6, 9, 30));
  }
  ScheduleOptions tied = TiedOptions(4, 2);
  tied.global_norm = true;
  tied.topology.groups.push_back({.stages = {StageId(1), StageId(2)},
                                  .quantity = ReduceGroup::Quantity::kWeight,
                                  .operation = ReduceGroup::Operation::kMean});
  samples.push_back(BuildSchedule(**FindMethod("1f1b"), tied, {0, 20}).value());
  samples.push_back(BuildEvaluation(StraightPipeline(3), {0, 12}));
  samples.push_back(BuildEvaluation(ReplicatedPipelines(3, 2), {0, 12}));
  return samples;
}

// A program without repeats is one list; where its prologue ends is not written down.
Schedule Normalized(Schedule schedule) {
  for (Program& program : schedule.programs) {
    if (program.repeats == 0) program = {.prologue = Expand(program)};
  }
  return schedule;
}

TEST(ScheduleText, EverySchedule_ParsesToItself) {
  for (const Schedule& sample : Samples()) {
    const Schedule schedule = Normalized(sample);
    EXPECT_THAT(ParseSchedule(PrintSchedule(sample)), IsOkAndHolds(schedule));
    EXPECT_THAT(ParseSchedule(PrintSchedule(sample, {.merge_backward = true})),
                IsOkAndHolds(schedule));
  }
}

TEST(ScheduleText, NameOfTheVersionBefore_IsReadAndNoted) {
  const std::string text = PrintSchedule(CatalogSteps(**FindMethod("1f1b"), 2, 2, 4, 2));
  const std::string old = absl::StrReplaceAll(text, {{"UPDATE", "STEP"}});
  ASSERT_NE(old, text);
  EXPECT_EQ(PrintSchedule(ParseSchedule(old).value()), text);
  EXPECT_THAT(NoteOnOldNames(old), HasSubstr("the action STEP is called UPDATE now"));
  EXPECT_EQ(NoteOnOldNames(text), "");
  EXPECT_EQ(NoteOnOldNames("# STEP is a word of comments\n0F0\n"), "");
}

TEST(ScheduleText, Expanded_ParsesToTheSameActions) {
  for (const Schedule& schedule : Samples()) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule parsed,
                                  ParseSchedule(PrintSchedule(schedule, {.expand = true})));
    EXPECT_EQ(parsed.topology, schedule.topology);
    for (size_t i = 0; i < schedule.programs.size(); ++i) {
      EXPECT_EQ(parsed.programs[i].repeats, 0);
      EXPECT_EQ(Expand(parsed.programs[i]), Expand(schedule.programs[i]));
    }
  }
}

TEST(ScheduleText, HeaderlessFile_TakesTopologyAndRangeFromTheActions) {
  // As PyTorch writes it: idle cells are empty, B is a whole backward.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                ParseSchedule("0F4,0F5,,,0B4,,0B5\r\n\n,1F4,1B4,1F5,1B5\n"));
  EXPECT_EQ(schedule.topology, StraightPipeline(2));
  EXPECT_EQ(schedule.range, (MicrobatchRange{4, 2}));
  EXPECT_EQ(schedule.completeness, Completeness::kTrain);
  EXPECT_EQ(schedule.name, "text");
  ASSERT_TRUE(IsComputeOnly(schedule));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule complete, CompleteSchedule(schedule, {}));
  EXPECT_THAT(Verify(complete), IsOk());
}

TEST(ScheduleText, FileWithR_SaysWhichStagesRecompute) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule listed,
                                ParseSchedule("0F0,0F1,0B0,0B1\n1F0,1R0,1B0,1F1,1R1,1B1\n"));
  EXPECT_EQ(listed.topology.Recomputing(), std::vector{StageId(1)});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule complete, CompleteSchedule(listed, {}));
  EXPECT_THAT(Verify(complete), IsOk());

  // A header alone is enough where lists are completed.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Schedule asked,
      ParseSchedule("# penstock schedule 1 recompute=0,1\n0F0,0B0\n1F0,1B0\n"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule lowered, CompleteSchedule(asked, {}));
  EXPECT_THAT(Verify(lowered), IsOk());
  EXPECT_THAT(PrintSchedule(lowered), HasSubstr(" recompute=0,1\n0F0,0SEND_F0,0R0,0RECV_B0,"));
}

TEST(ScheduleText, StagesThatRecompute_AreCheckedAndPartOfTheDigest) {
  EXPECT_THAT(ParseSchedule("# penstock schedule 1 recompute=x\n0F0,0B0\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("recompute=0,1")));
  for (const char* wrong : {"recompute=1", "recompute=0,0"}) {
    EXPECT_THAT(
        ParseSchedule(absl::StrCat("# penstock schedule 1 ", wrong, "\n0F0,0B0,0UPDATE,FLUSH\n")),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("some of the 1 stages, in ascending order")));
  }
  const Method& method = **FindMethod("gpipe");
  Schedule schedule = CatalogSteps(method, 2, 2, 0, 1);
  const std::string digest = DigestOf(schedule);
  schedule.topology.Recompute({StageId(0)});
  EXPECT_NE(DigestOf(schedule), digest);
}

TEST(ScheduleText, PeriodInAHeaderlessFile_CountsTowardsTheRange) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule("[0F2,FLUSH]*10+3\n"));
  EXPECT_EQ(schedule.range, (MicrobatchRange{2, 28}));
  EXPECT_EQ(schedule.completeness, Completeness::kEvaluate);
}

struct BadScheduleText {
  absl::string_view text, expected;
};

TEST(ScheduleText, BadText_NamesLineColumnAndToken) {
  for (const BadScheduleText& bad :
       {BadScheduleText{"", "no actions"},
        {"# a comment alone\n", "no actions"},
        {"0F0\n1F0,1X1\n", "line 2, column 5: \"1X1\": expected <stage>"},
        {"0F0,0BB1", "line 1, column 5: \"0BB1\""},
        {"0F0,0B", "line 1, column 5: \"0B\": expected the microbatch after I"},
        {"70000F0", "a stage below 65536"},
        {"[0F9223372036854775807,FLUSH]*3+1", "column 2: \"0F9223372036854775807\""},
        {"0F281474976710656", "a microbatch below 281474976710656"},
        {"[0F1]*281474976710657+1", "expected a period"},
        {"[0F1]*3+281474976710657", "expected a period"},
        {"[0F1]*281474976710656+2", "expected a period"},
        {"# penstock schedule 1 range=0+281474976710657\n0F0", "expected range="},
        {"# penstock schedule 1 range=1+281474976710656\n0F0", "numbered below 281474976710656"},
        {"[0F9]*281474976710656+1,FLUSH", "numbered below 281474976710656"},
        {"0F0,[0F1", "line 1, column 9: \"\": expected ]*<copies>+<microbatches>"},
        {"0F0,[0F1]", "column 9: \"]\": expected a period"},
        {"0F0,[0F1]*3", "column 9: \"]*3\": expected a period"},
        {"[0F1]*3+-1", "expected a period"},
        {"0F1]*3+1", "expected a period"},
        {"[0F1]*3+1,[0F9]*2+1", "column 11: \"[\": expected one period"},
        {"0F0\n2F0\n", "no worker has an action of stage 1 of 3"},
        {"# penstock schedule 1 color=red\n0F0",
         "line 1, column 23: \"color=red\": expected one of"},
        {"# penstock schedule 1 group\n0F0", "column 23: \"group\": expected one of name="},
        {"# penstock schedule 1 stages\n0F0", "column 23: \"stages\": expected one of name="},
        {"# penstock schedule 1 weights=double\n0F0",
         "expected weights=single, stash, delayed:<microbatches>:<versions>, predicted:"},
        {"# penstock schedule 1 weights=delayed:0:1\n0F0", "expected weights="},
        {"# penstock schedule 1 weights=delayed:4\n0F0", "expected weights="},
        {"# penstock schedule 1 weights=predicted:0\n0F0", "expected weights="},
        {"# penstock schedule 1 weights=corrected:1\n0F0", "expected weights="},
        {"# penstock schedule 1 weights=drawn:14\n0F0", "or drawn:<versions>:<seed>"},
        {"# penstock schedule 1 weights=drawn:-1:0\n0F0", "or drawn:<versions>:<seed>"},
        {"# penstock schedule 1 range=0+0\n0F0", "expected range="},
        {"# penstock schedule 1 range=5\n0F0", "expected range="},
        {"# penstock schedule 1 stages=0,x\n0F0", "expected the worker of each stage"},
        {"# penstock schedule 1 group=gradient:sum\n0F0", "expected group="},
        {"# penstock schedule 1 name=a/b\n0F0", "expected a name of letters"},
        {"0F0\n# penstock schedule 1 name=a\n", "line 2, column 1"}}) {
    EXPECT_THAT(ParseSchedule(bad.text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(bad.expected))))
        << bad.text;
  }
}

TEST(ScheduleText, RandomDamage_NeverCrashes) {
  RandomStream random(4, 0);
  const std::string good = PrintSchedule(CatalogSchedule("pipedream", 3, 1, {0, 20}));
  constexpr absl::string_view kAlphabet = "0123456789FIWB[]*+,=# \n_SENDRCV";
  const std::string numbers[] = {"9223372036854775807", "9223372036854775808",
                                 absl::StrCat(kMicrobatchMax), absl::StrCat(kMicrobatchMax - 1)};
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (uint64_t i = 1 + random.Below(4); i > 0; --i) {
      text[random.Below(text.size())] = kAlphabet[random.Below(kAlphabet.size())];
    }
    // Makes every second one hold a number that is too large, or just not.
    const size_t digit = text.find_first_of("0123456789", random.Below(text.size()));
    if (round % 2 == 0 && digit != std::string::npos) {
      text.replace(digit, 1, numbers[random.Below(std::size(numbers))]);
    }
    const absl::StatusOr<Schedule> parsed = ParseSchedule(text);
    // Whatever parses prints to something that parses to the same, and the verifier survives it.
    if (!parsed.ok()) continue;
    EXPECT_THAT(ParseSchedule(PrintSchedule(*parsed)), IsOkAndHolds(Normalized(*parsed))) << text;
    (void)Verify(*parsed, {.channel_capacity = 4, .actions_max = 10'000});
  }
}

TEST(Digest, AnyChange_ChangesIt) {
  const Schedule schedule = CatalogSchedule("pipedream", 3, 1, {0, 1'000'000'000});
  const std::string digest = DigestOf(schedule);
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(DigestOf(schedule), digest);

  Schedule changed = schedule;
  changed.weight_policy = kSingleVersion;
  EXPECT_NE(DigestOf(changed), digest);
  changed = schedule;
  changed.topology.groups = TiedOptions(3, 1).topology.groups;
  EXPECT_NE(DigestOf(changed), digest);
  changed = schedule;
  std::swap(changed.programs[1].period[0], changed.programs[1].period[1]);
  EXPECT_NE(DigestOf(changed), digest);
  changed = schedule;
  ++changed.programs[2].repeats;
  EXPECT_NE(DigestOf(changed), digest);
  EXPECT_NE(DigestOf(CatalogSchedule("pipedream", 3, 1, {0, 999'999'999})), digest);
}

TEST(Digest, Cuts_AreAPartOfIt) {
  const auto digest = [](const std::vector<MicrobatchRange>& ranges) {
    ScheduleDigest all;
    for (const MicrobatchRange range : ranges) all.Add(CatalogSchedule("1f1b", 2, 2, range));
    return all.Hex();
  };
  EXPECT_NE(digest({{0, 8}}), digest({{0, 4}, {4, 4}}));
  EXPECT_NE(digest({{0, 2}, {2, 6}}), digest({{0, 4}, {4, 4}}));
  EXPECT_EQ(digest({{0, 4}, {4, 4}}), digest({{0, 4}, {4, 4}}));
}

}  // namespace
}  // namespace penstock
