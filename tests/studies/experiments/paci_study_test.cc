// The study from end to end with a model that trains in a moment, and with curves that were made by hand.
#include "studies/experiments/paci_study.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "compute/backend.h"
#include "studies/experiments/kept_runs.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "worker/reference.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kPaciRuns[] = "results/paci-runs";

// One run after the other in this thread; stops after so many microbatches.
class PaciContext : public TrainingContext {
 public:
  explicit PaciContext(int64_t microbatches_max = std::numeric_limits<int64_t>::max())
      : microbatches_max_(microbatches_max) {}

  absl::Status ForEachRun(int64_t runs, int64_t microbatches,
                          const std::function<absl::Status(int64_t)>& train) override {
    announced_ = microbatches;
    for (int64_t i = 0; i < runs; ++i) {
      absl::Status status = train(i);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Status MicrobatchDone(double, int64_t tokens) override {
    tokens_ = tokens;
    return ++done_ < microbatches_max_ ? absl::OkStatus() : absl::CancelledError("stopped");
  }
  void Note(const std::string& line) override { notes_.push_back(line); }

  int64_t announced_ = 0;
  int64_t done_ = 0;
  int64_t tokens_ = 0;
  std::vector<std::string> notes_;

 private:
  const int64_t microbatches_max_;
};

class PaciStudyTest : public ::testing::Test {
 protected:
  PaciStudyTest() {
    while (text_.size() < 600) text_ += "To be, or not to be, that is the question: ";
    EXPECT_THAT(files_.WriteDurably("./text", {text_}), IsOk());
  }

  // 4 runs: 2 methods with 2 seeds, of 8 steps with 2 microbatches on 2 stages.
  static PaciStudy Tiny() {
    return {.text_path = "text",
            .optimizers = {"adamw"},
            .batches = {4},
            .steps = {8},
            .seeds = 2,
            .stages = 2,
            .microbatches = 2,
            .width = 16,
            .context = 8,
            .validation_samples = 8};
  }

  absl::StatusOr<StudyResult> Run(const PaciStudy& study, PaciContext& context,
                                  bool only_finished = false) {
    return RunPaciStudy(study, {.directory = kPaciRuns, .only_finished = only_finished}, files_,
                        context);
  }

  // Keeps a run whose loss after each validation's step is `loss` of it.
  void Keep(PaciStudy study, const std::string& method, int64_t seed,
            const std::function<double(int64_t step)>& loss) {
    study.text_sha256 = Sha256Hex(text_);
    const PaciSetting setting = SettingsOf(study).front();
    v1::TrainedRun run;
    *run.mutable_job() = JobOf(study, setting, method, seed);
    run.mutable_job()->mutable_data()->mutable_text()->clear_path();
    for (const LayerRange& stage : StagesOf(study)) run.add_stage_layers(stage.count);
    const int64_t every = ValidationInterval(study, setting);
    for (int64_t step = every; step <= setting.steps; step += every) {
      v1::TrainedRun::Validation& validation = *run.add_validations();
      validation.set_step(step);
      validation.set_loss(loss(step));
    }
    EXPECT_THAT(files_.CreateDirectories(kPaciRuns), IsOk());
    EXPECT_THAT(KeptRuns(files_, kPaciRuns)
                    .Keep(absl::StrCat(setting.name(), "-", method, "-seed", seed), run),
                IsOk());
  }

  std::vector<std::string> Kept() { return *files_.List(kPaciRuns); }

  std::string text_;
  MemoryFiles files_;
};

template <typename T>
T PaciCell(const StudyResult& result, size_t row, const std::string& column) {
  const auto& columns = result.table.columns;
  const size_t index = std::find(columns.begin(), columns.end(), column) - columns.begin();
  return std::get<T>(result.table.rows.at(row).at(index));
}

// The published pipeline with 32 steps and a validation after every second one: from one to the next Flush takes
// 2 x 15, PACI 2 x 8 + 7 = 23.
PaciStudy ThirtyTwoSteps() {
  return {.text_path = "text", .optimizers = {"adamw"}, .steps = {32}, .seeds = 1};
}

TEST_F(PaciStudyTest, SameLossAfterEveryStep_IsAsFastAsTheSteps) {
  const auto loss = [](int64_t step) { return 5.0 - static_cast<double>(step) / 32.0; };
  Keep(ThirtyTwoSteps(), "1f1b", 1, loss);
  Keep(ThirtyTwoSteps(), "paci", 1, loss);
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(ThirtyTwoSteps(), context));
  EXPECT_EQ(context.done_, 0);
  ASSERT_THAT(result.table.rows, SizeIs(3));
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_NEAR(PaciCell<double>(result, row, "over_flush_m8"), 30.0 / 23.0, 1e-9);
    EXPECT_NEAR(PaciCell<double>(result, row, "over_flush_m16"), 23.0 / 23.0, 1e-9);
    EXPECT_NEAR(PaciCell<double>(result, row, "over_zb_h1"), 2 * (8 + 7 / 3.0) / 23.0, 1e-9);
    EXPECT_NEAR(PaciCell<double>(result, row, "bound"), 30.0 / 23.0, 1e-9);
    EXPECT_NEAR(PaciCell<double>(result, row, "final_gap"), 0.0, 1e-9);
    EXPECT_EQ(PaciCell<std::string>(result, row, "reached"), "yes");
  }
  EXPECT_EQ(PaciCell<int64_t>(result, 0, "at_percent"), 80);
  EXPECT_NEAR(PaciCell<double>(result, 0, "loss"), 4.2, 1e-9);
  EXPECT_NEAR(PaciCell<double>(result, 2, "loss"), 4.0, 1e-9);
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_FALSE(result.findings[0].agrees);
  EXPECT_THAT(result.findings[0].evidence,
              HasSubstr("1.30, 1.30, 1.30, bound 1.304; 0.45 below at the least; over Flush m = 16 "
                        "1.00, 1.00, 1.00"));
}

TEST_F(PaciStudyTest, FlushThatLearnsFasterByStep_CostsThatFactor) {
  Keep(ThirtyTwoSteps(), "1f1b", 1,
       [](int64_t step) { return 5.0 - 1.25 * static_cast<double>(step) / 32.0; });
  Keep(ThirtyTwoSteps(), "paci", 1,
       [](int64_t step) { return 5.0 - static_cast<double>(step) / 32.0; });
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(ThirtyTwoSteps(), context));
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_NEAR(PaciCell<double>(result, row, "over_flush_m8"), 30.0 / 23.0 / 1.25, 1e-9);
    EXPECT_NEAR(PaciCell<double>(result, row, "final_gap"), 0.25, 1e-9);
  }
}

TEST_F(PaciStudyTest, FlushThatNeverGetsThere_CountsWithItsWholeTime) {
  Keep(ThirtyTwoSteps(), "1f1b", 1,
       [](int64_t step) { return 5.0 - 0.85 * static_cast<double>(step) / 32.0; });
  Keep(ThirtyTwoSteps(), "paci", 1,
       [](int64_t step) { return 5.0 - static_cast<double>(step) / 32.0; });
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(ThirtyTwoSteps(), context));
  EXPECT_EQ(PaciCell<std::string>(result, 0, "reached"), "yes");
  EXPECT_NEAR(PaciCell<double>(result, 0, "over_flush_m8"), 30.0 / 23.0 / 0.85, 1e-9);
  EXPECT_EQ(PaciCell<std::string>(result, 1, "reached"), "no");
  EXPECT_NEAR(PaciCell<double>(result, 1, "over_flush_m8"), 30.0 / 23.0 / 0.9, 1e-9);
  EXPECT_EQ(PaciCell<std::string>(result, 2, "reached"), "no");
  EXPECT_NEAR(PaciCell<double>(result, 2, "over_flush_m8"), 30.0 / 23.0, 1e-9);
  EXPECT_THAT(result.findings[0].evidence, HasSubstr("1.53, at least 1.45, at least 1.30"));
}

TEST_F(PaciStudyTest, Seeds_AreAveragedBeforeTheyAreCompared) {
  PaciStudy study = ThirtyTwoSteps();
  study.seeds = 2;
  for (const int64_t seed : {1, 2}) {
    Keep(study, "paci", seed, [](int64_t step) { return 5.0 - static_cast<double>(step) / 32.0; });
    const double factor = seed == 1 ? 1.0 : 1.5;
    Keep(study, "1f1b", seed,
         [factor](int64_t step) { return 5.0 - factor * static_cast<double>(step) / 32.0; });
  }
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(study, context));
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_NEAR(PaciCell<double>(result, row, "over_flush_m8"), 30.0 / 23.0 / 1.25, 1e-9);
    EXPECT_NEAR(PaciCell<double>(result, row, "least"), 30.0 / 23.0 / 1.5, 1e-9);
    EXPECT_NEAR(PaciCell<double>(result, row, "greatest"), 30.0 / 23.0, 1e-9);
  }
  // The first chart has the mean over the three losses.
  ASSERT_THAT(result.charts, SizeIs(2));
  const LineChart& lengths = result.charts[0].chart;
  ASSERT_THAT(lengths.lines, SizeIs(3));
  EXPECT_EQ(lengths.lines[0].label, "adamw 0.0003, batch 8");
  ASSERT_THAT(lengths.lines[0].points, SizeIs(1));
  EXPECT_EQ(lengths.lines[0].points[0].x, 32.0);
  EXPECT_NEAR(lengths.lines[0].points[0].y, 30.0 / 23.0 / 1.25, 1e-9);
  EXPECT_NEAR(lengths.lines[0].points[0].low, 30.0 / 23.0 / 1.5, 1e-9);
  EXPECT_EQ(lengths.lines[1].label, "bound 1.304");
}

TEST_F(PaciStudyTest, SeveralBatches_HaveAChartOverThem) {
  PaciStudy study = ThirtyTwoSteps();
  for (const int64_t batch : {8, 16}) {
    study.batches = {batch};
    const double factor = batch == 8 ? 1.0 : 1.25;
    Keep(study, "paci", 1, [](int64_t step) { return 5.0 - static_cast<double>(step) / 32.0; });
    Keep(study, "1f1b", 1,
         [factor](int64_t step) { return 5.0 - factor * static_cast<double>(step) / 32.0; });
  }
  study.batches = {8, 16};
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(study, context));
  ASSERT_THAT(result.charts, SizeIs(4));
  EXPECT_EQ(result.charts[1].name, "batch");
  const LineChart& batches = result.charts[1].chart;
  ASSERT_THAT(batches.lines, SizeIs(3));
  EXPECT_EQ(batches.lines[0].label, "adamw 0.0003, 32 steps");
  ASSERT_THAT(batches.lines[0].points, SizeIs(2));
  EXPECT_EQ(batches.lines[0].points[1].x, 16.0);
  EXPECT_NEAR(batches.lines[0].points[0].y, 30.0 / 23.0, 1e-9);
  EXPECT_NEAR(batches.lines[0].points[1].y, 30.0 / 23.0 / 1.25, 1e-9);
}

TEST_F(PaciStudyTest, Losses_AreThoseOfTheReference) {
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(Tiny(), context));
  EXPECT_EQ(context.announced_, 4 * 8 * 2);
  EXPECT_EQ(context.done_, context.announced_);
  EXPECT_EQ(context.tokens_, 2 * 8);
  EXPECT_THAT(context.notes_, IsEmpty());
  EXPECT_THAT(Kept(), ElementsAre("adamw-0.0003-batch4-8-1f1b-seed1.json",
                                  "adamw-0.0003-batch4-8-1f1b-seed2.json",
                                  "adamw-0.0003-batch4-8-paci-seed1.json",
                                  "adamw-0.0003-batch4-8-paci-seed2.json"));
  for (const auto& row : result.table.rows) EXPECT_EQ(row.size(), result.table.columns.size());

  PaciStudy study = Tiny();
  study.text_sha256 = Sha256Hex(text_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  double sum = 0.0;
  for (const int64_t seed : {1, 2}) {
    const ReferenceOptions options = {.spec = JobOf(study, SettingsOf(study).front(), "paci", seed),
                                      .stages = StagesOf(study),
                                      .data_root = "."};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ReferenceResult trained,
                                  TrainReference(options, files_, *backend));
    ASSERT_THAT(trained.validations, SizeIs(8));
    sum += trained.validations.back().evaluation.loss;
  }
  EXPECT_DOUBLE_EQ(PaciCell<double>(result, 2, "loss"), sum / 2);
}

TEST_F(PaciStudyTest, CutOff_GoesOnFromFinishedRunsToTheSameResult) {
  PaciContext whole;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult expected, Run(Tiny(), whole));
  ASSERT_THAT(files_.RemoveAll(kPaciRuns), IsOk());

  PaciContext cut(20);  // in the middle of the second run
  EXPECT_THAT(Run(Tiny(), cut),
              StatusIs(absl::StatusCode::kCancelled,
                       "interrupted; 1 of 4 runs are in results/paci-runs, and the same command "
                       "goes on from there"));
  EXPECT_THAT(Kept(), ElementsAre("adamw-0.0003-batch4-8-1f1b-seed1.json"));
  PaciContext nothing_yet;
  EXPECT_THAT(Run(Tiny(), nothing_yet, /*only_finished=*/true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has not all runs of any of the 1 settings")));

  PaciContext rest;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(Tiny(), rest));
  EXPECT_EQ(rest.done_, 3 * 8 * 2);
  EXPECT_THAT(rest.notes_, ElementsAre(HasSubstr("1 of 4 runs are in results/paci-runs already")));
  EXPECT_EQ(result.table.rows, expected.table.rows);
}

TEST_F(PaciStudyTest, OnlyFinished_LeavesOutSettingsThatMissARun) {
  PaciContext whole;
  ASSERT_THAT(Run(Tiny(), whole), IsOk());
  PaciStudy study = Tiny();
  study.steps = {8, 16};
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result,
                                Run(study, context, /*only_finished=*/true));
  EXPECT_EQ(context.done_, 0);
  EXPECT_THAT(context.notes_, ElementsAre("1 of 2 settings have all their runs"));
  EXPECT_THAT(result.table.rows, SizeIs(3));
}

TEST_F(PaciStudyTest, RunThatDiverged_IsNamedAndFinished) {
  PaciStudy study = Tiny();
  study.learning_rates = {1e30};
  study.seeds = 1;
  PaciContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(study, context));
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(PaciCell<std::string>(result, row, "over_flush_m2"), "-");
    EXPECT_EQ(PaciCell<std::string>(result, row, "reached"), "paci diverged");
  }
  EXPECT_FALSE(result.findings[0].agrees);
  EXPECT_EQ(result.findings[0].evidence, "paci diverged with at least one of the seeds");
  EXPECT_THAT(result.charts[0].chart.lines, IsEmpty());
  PaciContext again;
  ASSERT_THAT(Run(study, again), IsOk());
  EXPECT_EQ(again.done_, 0);
}

TEST_F(PaciStudyTest, BadInput_IsRefusedBeforeAnythingIsTrained) {
  PaciContext context;
  PaciStudy study = Tiny();
  study.text_path = "absent";
  EXPECT_THAT(Run(study, context), StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  ASSERT_THAT(files_.WriteDurably("./short", {"To be"}), IsOk());
  study.text_path = "short";
  EXPECT_THAT(Run(study, context),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("short")));
  study = Tiny();
  study.batches = {3};
  EXPECT_THAT(Run(study, context),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training.batch (3)")));
  EXPECT_EQ(context.done_, 0);
  EXPECT_FALSE(files_.Exists(kPaciRuns));
}

}  // namespace
}  // namespace penstock
