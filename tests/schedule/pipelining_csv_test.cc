#include "schedule/pipelining_csv.h"

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// One step of `method` from microbatch 0 on.
Schedule StepOf(absl::string_view method, int32_t workers, int64_t microbatches) {
  return CatalogSteps(**FindMethod(method), workers, microbatches, 0, 1);
}

TEST(PipeliningCsvTest, SmallSteps_AreWrittenAsPyTorchDoes) {
  EXPECT_THAT(PrintPipeliningCsv(StepOf("gpipe", 2, 2)),
              IsOkAndHolds("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                           "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"));
  EXPECT_THAT(PrintPipeliningCsv(StepOf("1f1b", 2, 2)),
              IsOkAndHolds("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                           "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"));
  EXPECT_THAT(PrintPipeliningCsv(StepOf("1f1b", 1, 3)), IsOkAndHolds("0F0,0B0,0F1,0B1,0F2,0B2\n"));
}

// W follows I at once on the first stage alone, where no gradient has to leave.
TEST(PipeliningCsvTest, SplitBackwards_AreWrittenAsIAndW) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string text, PrintPipeliningCsv(StepOf("zb-h1", 4, 8)));
  EXPECT_THAT(text, HasSubstr("0RECV_B0,0B0,0F4,"));
  EXPECT_THAT(text, HasSubstr("1RECV_B0,1I0,1SEND_B0,"));
  EXPECT_THAT(text, HasSubstr("3F3,3I3,3SEND_B3,3W0,"));
}

// Every step that can be written comes back as it was.
TEST(PipeliningCsvTest, EveryMethodThatDrains_LoadsBackUnchanged) {
  std::set<std::string> written;
  for (const Method& method : Methods()) {
    for (const int32_t workers : {1, 2, 3, 4, 8}) {
      for (const int64_t microbatches : {1, 2, 5, 8, 24}) {
        const Schedule schedule = CatalogSteps(method, workers, microbatches, 0, 1);
        const absl::StatusOr<std::string> text = PrintPipeliningCsv(schedule);
        if (!text.ok()) continue;
        SCOPED_TRACE(testing::Message() << method.name << " on " << workers << " workers with "
                                        << schedule.range.count << " microbatches");
        written.emplace(method.name);
        const Schedule read = ScheduleFromText(*text);
        EXPECT_EQ(read.topology, schedule.topology);
        EXPECT_EQ(read.weight_policy, schedule.weight_policy);
        EXPECT_EQ(read.completeness, schedule.completeness);
        EXPECT_EQ(read.range, schedule.range);
        for (size_t i = 0; i < schedule.programs.size(); ++i) {
          EXPECT_EQ(Expand(read.programs[i]), Expand(schedule.programs[i])) << "worker " << i;
        }
        EXPECT_THAT(PrintPipeliningCsv(read), IsOkAndHolds(*text));
        EXPECT_THAT(Verify(read), IsOk());
      }
    }
  }
  EXPECT_THAT(written, IsSupersetOf({"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1",
                                     "zb-h2", "zb-v", "dualpipe-v"}));
}

TEST(PipeliningCsvTest, WhatItHasNoWordsFor_IsRefusedWithTheReason) {
  const auto expect = [](const Schedule& schedule, const std::string& reason) {
    EXPECT_THAT(PrintPipeliningCsv(schedule),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
  };
  expect(StepOf("pipedream", 3, 4), "no words for weights that are not the current ones");
  expect(StepOf("pipedream-2bw", 3, 4), "weights=delayed:4:1");
  expect(StepOf("local-sgd", 3, 6), "no words for 3 replicas");
  expect(CatalogSteps(**FindMethod("gpipe"), 2, 2, 0, 2),
         "an update within the range (0UPDATE before 0F2); it holds one step");
  expect(RecomputingSteps(**FindMethod("1f1b"), {.all = true}, 3, 4, 0, 1),
         "stages that do their forward again");
  expect(OffloadingSteps(**FindMethod("1f1b"), {.all = 2}, 4, 6, 0, 1),
         "stashes that wait on the host");
  const Method& method = **FindMethod("1f1b");
  expect(BuildSchedule(method, TiedOptions(3, 4), {0, 4}).value(), "stages that share parameters");
  ScheduleOptions clipped = {.topology = StraightPipeline(2), .microbatches_per_step = 2};
  clipped.global_norm = true;
  expect(BuildSchedule(method, clipped, {0, 2}).value(), "no words for NORM");
  Schedule broken = StepOf("gpipe", 2, 2);
  broken.programs.pop_back();
  EXPECT_THAT(PrintPipeliningCsv(broken), Not(IsOk()));
}

TEST(PipeliningCsvTest, TooLong_IsRefused) {
  const Method& method = **FindMethod("1f1b");
  const ScheduleOptions options = {.topology = StraightPipeline(2), .microbatches_per_step = 4};
  const Schedule schedule = BuildSchedule(method, options, {0, 4'000'000'000}).value();
  EXPECT_THAT(PrintPipeliningCsv(schedule),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 10000000")));
}

}  // namespace
}  // namespace penstock
