// PipeDream's experiment on its published profiles.
#include "studies/experiments/pipedream_study.h"

#include <gmock/gmock.h>

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

std::vector<ProfiledModel> PublishedModels() {
  absl::StatusOr<std::vector<ProfiledModel>> models = ReadPipeDreamModels(
      RealFiles(), JoinPath(PENSTOCK_SOURCE_DIR, "tests/planner/graph/profiles"));
  EXPECT_TRUE(models.ok()) << models.status();
  return *std::move(models);
}

double Number(const StudyTable& table, const std::vector<StudyCell>& row,
              absl::string_view column) {
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i] == column) return std::get<double>(row[i]);
  }
  ADD_FAILURE() << "no column " << column;
  return 0;
}

std::string TextOf(const StudyResult& result) {
  std::string text;
  const auto cell_text = [](const StudyCell& cell) {
    if (const auto* number = std::get_if<int64_t>(&cell)) return absl::StrCat(*number);
    if (const auto* number = std::get_if<double>(&cell)) return absl::StrFormat("%.5g", *number);
    return std::get<std::string>(cell);
  };
  for (const std::string& column : result.table.columns) absl::StrAppend(&text, column, "\t");
  for (const std::vector<StudyCell>& row : result.table.rows) {
    text.back() = '\n';
    for (const StudyCell& cell : row) absl::StrAppend(&text, cell_text(cell), "\t");
  }
  text.back() = '\n';
  for (const Finding& finding : result.findings) {
    absl::StrAppend(&text, finding.agrees ? "agrees " : "DIFFERS ", finding.claim, "\n  ",
                    finding.evidence, "\n");
  }
  return text;
}

// GNMT-16 has 16,886 cuts, which takes too long for a test.
TEST(PipeDreamStudy, FourModels_AreAsRecorded) {
  PipeDreamStudy study = {.models = PublishedModels()};
  std::erase_if(study.models, [](const ProfiledModel& model) { return !model.in_grid; });
  SerialContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, RunPipeDreamStudy(study, context));
  ASSERT_GE(result.table.rows.size(), 36u);
  for (const std::vector<StudyCell>& row : result.table.rows) {
    const double workers = static_cast<double>(std::get<int64_t>(row[2]));
    for (const char* way :
         {"data_parallel", "reduce_after", "model_parallel", "gpipe", "pipedream"}) {
      const double speed = Number(result.table, row, way);
      EXPECT_GT(speed, 0) << way;
      EXPECT_LE(speed, workers * (1 + 1e-6)) << way;
    }
    // What drains is slower than what overlaps, and one minibatch at a time no faster than one worker.
    EXPECT_LE(Number(result.table, row, "reduce_after"),
              Number(result.table, row, "data_parallel") * (1 + 1e-6));
    EXPECT_LE(Number(result.table, row, "model_parallel"), 1 + 1e-6);
  }
  ExpectEqualsGolden("studies/pipedream.txt", TextOf(result));
}

// By hand from the profile: 138,357,544 parameters of 4 bytes, 672.5 ms of computing.
TEST(PipeDreamStudy, DataParallelismOfVgg16_SendsAndTakesWhatCanBeCounted) {
  PipeDreamStudy study = {.models = PublishedModels(), .workers = {8}, .gigabits_per_second = {10}};
  study.models.resize(1);
  SerialContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, RunPipeDreamStudy(study, context));
  const std::vector<StudyCell>& row = result.table.rows[0];  // the largest minibatch is first
  EXPECT_EQ(std::get<int64_t>(row[2]), 8);
  EXPECT_EQ(std::get<int64_t>(row[1]), 128);
  const double parameter_bytes = 4.0 * 138'357'544;
  const double sent = 2 * 7 / 8.0 * parameter_bytes;
  EXPECT_NEAR(Number(result.table, row, "data_parallel_mb") * 1e6, sent, 1);
  const double one_worker_s = Number(result.table, row, "one_worker_ms") * 1e-3;
  const double reduced_s = one_worker_s + sent / 1.25e9;
  EXPECT_NEAR(Number(result.table, row, "reduce_after"), 8 * one_worker_s / reduced_s, 1e-6);
}

TEST(PipeDreamStudy, MissingProfile_IsNamed) {
  EXPECT_THAT(ReadPipeDreamModels(RealFiles(), "/nowhere").status().message(),
              testing::HasSubstr("/nowhere/vgg16.txt"));
}

}  // namespace
}  // namespace penstock
