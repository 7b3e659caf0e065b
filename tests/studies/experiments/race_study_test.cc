// A race between recorded curves, as a study.
#include "studies/experiments/race_study.h"

#include <gmock/gmock.h>

#include <variant>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

TEST(RaceStudy, Rows_SayWhoIsFirstAndWhatTheChoiceCosts) {
  SerialContext context;
  const RaceStudy study = {.seeds = 1,
                           .stages = {2, 4},
                           .ticks = 480,
                           .size = {.rows = 100, .width = 16},
                           .noise = 0.0,
                           .shares = {0.5, 1e-9}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, RunRaceStudy(study, context));
  // Nobody comes to a billionth of the gap.
  ASSERT_EQ(result.table.rows.size(), 2u);
  for (const std::vector<StudyCell>& row : result.table.rows) {
    EXPECT_EQ(std::get<double>(row[1]), 0.5);
    const auto ticks = std::get<int64_t>(row[3]);
    EXPECT_GT(ticks, 0);
    EXPECT_LE(ticks, study.ticks);
    // Half of the gap is reached in the first round, so the first is chosen.
    EXPECT_EQ(row[4], row[2]);
    EXPECT_EQ(std::get<double>(row[5]), 1.0);
  }
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_TRUE(result.findings[0].agrees);
}

}  // namespace
}  // namespace penstock
