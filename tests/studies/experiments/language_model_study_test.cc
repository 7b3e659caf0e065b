// The study from end to end with a model that trains in a moment.
#include "studies/experiments/language_model_study.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/backend.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "worker/reference.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kRuns[] = "results/runs";

// One run after the other in this thread; stops after so many microbatches.
class CountingContext : public TrainingContext {
 public:
  explicit CountingContext(int64_t microbatches_max = std::numeric_limits<int64_t>::max())
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
  absl::Status MicrobatchDone(double loss, int64_t tokens) override {
    EXPECT_GT(loss, 0.0);
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

class LanguageModelStudyTest : public ::testing::Test {
 protected:
  LanguageModelStudyTest() {
    std::string text;
    while (text.size() < 600) text += "To be, or not to be, that is the question: ";
    EXPECT_THAT(files_.WriteDurably("./text", {text}), IsOk());
  }

  // Four stages; 10 microbatches of PipeDream take 26 ticks, a round of LocalSGD with H = 2 takes 22.
  static LanguageModelStudy Tiny() {
    return {.text_path = "text",
            .blocks = 2,
            .width = 16,
            .heads = 2,
            .context = 8,
            .batch = 4,
            .microbatches = 10,
            .local_steps = {2}};
  }

  absl::StatusOr<StudyResult> Run(const LanguageModelStudy& study, CountingContext& context) {
    return RunLanguageModelStudy(study, kRuns, files_, context);
  }
  std::vector<std::string> Kept() { return *files_.List(kRuns); }

  MemoryFiles files_;
};

template <typename T>
T Cell(const StudyResult& result, size_t row, const std::string& column) {
  const auto& columns = result.table.columns;
  const size_t index = std::find(columns.begin(), columns.end(), column) - columns.begin();
  return std::get<T>(result.table.rows.at(row).at(index));
}

TEST_F(LanguageModelStudyTest, Default_TrainsBothMethodsAndComparesThem) {
  CountingContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(Tiny(), context));
  EXPECT_EQ(context.announced_, 10 + 8);
  EXPECT_EQ(context.done_, context.announced_);
  EXPECT_EQ(context.tokens_, 32);
  EXPECT_THAT(context.notes_, IsEmpty());

  ASSERT_THAT(result.table.rows, SizeIs(2));
  for (const auto& row : result.table.rows) EXPECT_EQ(row.size(), result.table.columns.size());
  EXPECT_EQ(Cell<std::string>(result, 0, "method"), "pipedream");
  EXPECT_EQ(Cell<int64_t>(result, 0, "microbatches"), 10);
  EXPECT_EQ(Cell<int64_t>(result, 0, "ticks"), 26);
  EXPECT_EQ(Cell<std::string>(result, 1, "method"), "local-sgd");
  EXPECT_EQ(Cell<int64_t>(result, 1, "local_steps"), 2);
  EXPECT_EQ(Cell<int64_t>(result, 1, "microbatches"), 8);
  EXPECT_EQ(Cell<int64_t>(result, 1, "ticks"), 22);
  // The first loss is that of a model that knows nothing of the 16 characters, whose scores vary by 1/3.
  ASSERT_THAT(result.charts, SizeIs(1));
  ASSERT_THAT(result.charts[0].chart.lines, SizeIs(2));
  for (const ChartLine& line : result.charts[0].chart.lines) {
    EXPECT_NEAR(line.points.front().y, std::log(16.0) + 1.0 / 6.0, 0.2);
    EXPECT_EQ(line.points.front().x, 4);
  }
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].claim, "PipeDream is below LocalSGD at the end of the budget");
  EXPECT_EQ(result.findings[0].agrees,
            Cell<double>(result, 0, "final_loss") < Cell<double>(result, 1, "final_loss"));
  EXPECT_THAT(Kept(), ElementsAre("local-sgd-h2-0.125-8.json", "pipedream-0.125-10.json"));
}

// The curve is what `penstock train --reference` trains, step by step.
TEST_F(LanguageModelStudyTest, Losses_AreThoseOfTheReference) {
  CountingContext context;
  LanguageModelStudy study = Tiny();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(study, context));
  study.vocabulary = 16;  // the run counted the text's characters itself
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  std::vector<double> finals;
  for (const LanguageModelMethod& method : MethodsOf(study)) {
    const ReferenceOptions options = {
        .spec = JobOf(study, method, 0.125), .stages = StagesOf(study), .data_root = "."};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ReferenceResult trained,
                                  TrainReference(options, files_, *backend));
    if (method.is_pipedream()) {
      double sum = 0.0;
      for (size_t step = 6; step < 10; ++step) sum += trained.steps[step].loss;
      finals.push_back(sum / 4);
    } else {
      ASSERT_THAT(trained.steps,
                  SizeIs(1));  // a round of 8, of which the curve ends with the last 4
      const auto& points = result.charts[0].chart.lines[1].points;
      EXPECT_NEAR((points[3].y + points[7].y) / 2, trained.steps[0].loss, 1e-12);
    }
  }
  EXPECT_NEAR(Cell<double>(result, 0, "final_loss"), finals[0], 1e-12);
}

TEST_F(LanguageModelStudyTest, CutOff_GoesOnFromFinishedRunsToTheSameResult) {
  CountingContext whole;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult expected, Run(Tiny(), whole));
  ASSERT_THAT(files_.RemoveAll(kRuns), IsOk());

  CountingContext cut(13);  // in the middle of the second run
  EXPECT_THAT(Run(Tiny(), cut),
              StatusIs(absl::StatusCode::kCancelled,
                       "interrupted; 1 of 2 runs are in results/runs, and the same command goes on "
                       "from there"));
  EXPECT_THAT(Kept(), ElementsAre("pipedream-0.125-10.json"));

  CountingContext rest;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(Tiny(), rest));
  EXPECT_EQ(rest.announced_, 8);
  EXPECT_EQ(rest.done_, 8);
  EXPECT_THAT(rest.notes_, ElementsAre(HasSubstr("1 of 2 runs are in results/runs already")));
  EXPECT_EQ(result.table.rows, expected.table.rows);

  CountingContext nothing;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult again, Run(Tiny(), nothing));
  EXPECT_EQ(nothing.done_, 0);
  EXPECT_EQ(again.table.rows, expected.table.rows);
}

TEST_F(LanguageModelStudyTest, HalfAFile_IsTrainedAgain) {
  CountingContext first;
  ASSERT_THAT(Run(Tiny(), first), IsOk());
  ASSERT_THAT(files_.WriteDurably(absl::StrCat(kRuns, "/pipedream-0.125-10.json"), {"{\"job\""}),
              IsOk());
  CountingContext second;
  ASSERT_THAT(Run(Tiny(), second), IsOk());
  EXPECT_EQ(second.done_, 10);
}

TEST_F(LanguageModelStudyTest, RunsOfAnotherText_AreRefused) {
  CountingContext context;
  ASSERT_THAT(Run(Tiny(), context), IsOk());
  ASSERT_THAT(files_.WriteDurably("./other", {std::string(700, 'x')}), IsOk());
  LanguageModelStudy study = Tiny();
  study.text_path = "other";
  CountingContext second;
  EXPECT_THAT(Run(study, second),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job.data.text.sha256")));
  EXPECT_EQ(second.done_, 0);
  // The same text by another name is the same.
  ASSERT_THAT(files_.WriteDurably("./copy", {*files_.Read("./text", 1 << 20)}), IsOk());
  study.text_path = "copy";
  CountingContext third;
  EXPECT_THAT(Run(study, third), IsOk());
  EXPECT_EQ(third.done_, 0);
}

TEST_F(LanguageModelStudyTest, SeveralSteps_AreJudgedByTheRule) {
  LanguageModelStudy study = Tiny();
  study.microbatches = 20;  // two rounds at least
  study.local_steps = {1, 2};
  study.learning_rates = {0.125, 1e30};  // the second one diverges
  CountingContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, Run(study, context));
  ASSERT_THAT(result.table.rows, SizeIs(6));
  for (size_t row = 0; row < 6; ++row) {
    const bool good = row % 2 == 0;
    EXPECT_EQ(Cell<std::string>(result, row, "chosen"), good ? "yes" : "no");
    EXPECT_EQ(std::isfinite(Cell<double>(result, row, "final_loss")), good);
    if (good) continue;
    EXPECT_EQ(Cell<std::string>(result, row, "stable"), "no");
  }
  EXPECT_THAT(result.charts[0].chart.lines, SizeIs(3));
  ASSERT_THAT(result.findings, SizeIs(2));
  EXPECT_EQ(result.findings[1].claim, "the rule chooses 0.125 for every method");
  EXPECT_TRUE(result.findings[1].agrees);
  // What diverged is finished.
  CountingContext again;
  ASSERT_THAT(Run(study, again), IsOk());
  EXPECT_EQ(again.done_, 0);
}

TEST_F(LanguageModelStudyTest, BadInput_IsRefusedBeforeAnythingIsTrained) {
  CountingContext context;
  LanguageModelStudy study = Tiny();
  study.text_path = "absent";
  EXPECT_THAT(Run(study, context), StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  ASSERT_THAT(files_.WriteDurably("./short", {"To be"}), IsOk());
  study.text_path = "short";
  EXPECT_THAT(Run(study, context),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("short")));
  study = Tiny();
  study.microbatches = 7;
  EXPECT_THAT(Run(study, context),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("give at least 8")));
  EXPECT_EQ(context.done_, 0);
  EXPECT_FALSE(files_.Exists(kRuns));
}

TEST_F(LanguageModelStudyTest, DiskFull_IsAnErrorThatNamesTheFile) {
  CountingContext context;
  files_.FailFrom(1, absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Run(Tiny(), context),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk full")));
}

}  // namespace
}  // namespace penstock
