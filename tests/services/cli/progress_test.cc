#include "services/cli/progress.h"

#include <gmock/gmock.h>

#include <sstream>

#include "services/cli/progress_display.h"
#include "tests/support/manual_clock.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecondNs = 1'000'000'000;

v1::JobEvent Step(int64_t step, int64_t at_ns, double loss = 2.5, int64_t tokens = 1000) {
  v1::JobEvent event;
  event.mutable_step_done()->set_step(step);
  event.mutable_step_done()->set_loss(loss);
  event.mutable_step_done()->set_tokens(tokens);
  event.mutable_step_done()->set_monotonic_ns(at_ns);
  return event;
}

v1::JobEvent Validation(int64_t step, double loss) {
  v1::JobEvent event;
  event.mutable_validation_done()->set_step(step);
  event.mutable_validation_done()->set_loss(loss);
  return event;
}

TEST(ProgressTest, Line_BeforeTheFirstStep_SaysTheState) {
  Progress progress(100);
  v1::JobEvent event;
  event.mutable_state_changed()->set_state(v1::JOB_STATE_PREPARING);
  progress.Add(event);
  EXPECT_EQ(progress.PlainLine(), "step 0/100  preparing");
}

TEST(ProgressTest, Line_WhileWaiting_SaysWhy) {
  Progress progress(100);
  v1::JobEvent event;
  event.mutable_state_changed()->set_state(v1::JOB_STATE_QUEUED);
  event.mutable_state_changed()->set_reason("waits for 2 workers");
  progress.Add(event);
  EXPECT_EQ(progress.PlainLine(), "step 0/100  queued  waits for 2 workers");
}

TEST(ProgressTest, Line_WhileRunning_HasLossSpeedAndRemainingTime) {
  Progress progress(100);
  for (int64_t step = 1; step <= 10; ++step) progress.Add(Step(step, step * kSecondNs / 2));
  EXPECT_DOUBLE_EQ(progress.work_per_second(), 2000);
  ASSERT_TRUE(progress.remaining_seconds().has_value());
  EXPECT_DOUBLE_EQ(*progress.remaining_seconds(), 45);
  EXPECT_EQ(progress.PlainLine(), "step 10/100  loss 2.5000  2.00 k tokens/s  45.0 s left");
}

TEST(ProgressTest, Line_WhileRecovering_SaysSoAndPromisesNothing) {
  Progress progress(100);
  for (int64_t step = 1; step <= 10; ++step) progress.Add(Step(step, step * kSecondNs / 2));
  v1::JobEvent event;
  event.mutable_state_changed()->set_state(v1::JOB_STATE_RECOVERING);
  progress.Add(event);
  EXPECT_EQ(progress.PlainLine(), "step 10/100  loss 2.5000  2.00 k tokens/s  recovering");
}

TEST(ProgressTest, Speed_OfAModelWithoutTokens_IsInSamples) {
  Progress progress(100);
  for (int64_t step = 1; step <= 10; ++step) {
    v1::JobEvent event = Step(step, step * kSecondNs / 2, 2.5, /*tokens=*/0);
    event.mutable_step_done()->set_samples(64);
    progress.Add(event);
  }
  EXPECT_EQ(progress.PlainLine(), "step 10/100  loss 2.5000  128 samples/s  45.0 s left");
}

TEST(ProgressTest, Speed_CountsTheLastSecondsOnly) {
  Progress progress(1000);
  for (int64_t step = 1; step <= 5; ++step) progress.Add(Step(step, step * 100 * kSecondNs));
  for (int64_t i = 1; i <= 100; ++i)
    progress.Add(Step(5 + i, 500 * kSecondNs + i * kSecondNs / 10));
  EXPECT_NEAR(progress.work_per_second(), 10'000, 1);
}

// After a new split another worker tells the steps, whose clock began at another time.
TEST(ProgressTest, Speed_IsOfOneClockOnly) {
  Progress progress(1000);
  for (int64_t step = 1; step <= 5; ++step) progress.Add(Step(step, step * kSecondNs));
  v1::JobEvent planned;
  planned.mutable_planned()->set_method("1f1b");
  progress.Add(planned);
  progress.Add(Step(6, 1'000'000 * kSecondNs));
  EXPECT_EQ(progress.work_per_second(), 0) << "one step has no speed";
  progress.Add(Step(7, 1'000'000 * kSecondNs + kSecondNs / 2));
  EXPECT_DOUBLE_EQ(progress.work_per_second(), 2000);
  // Even if nobody says so.
  progress.Add(Step(8, 3 * kSecondNs));
  progress.Add(Step(9, 4 * kSecondNs));
  EXPECT_DOUBLE_EQ(progress.work_per_second(), 1000);
}

TEST(ProgressTest, RemainingTime_AfterResume_CountsOwnStepsOnly) {
  Progress progress(100);
  progress.Add(Step(91, 0));
  progress.Add(Step(92, kSecondNs));
  EXPECT_DOUBLE_EQ(*progress.remaining_seconds(), 8);
}

TEST(ProgressTest, RemainingTime_CountsCuts) {
  const std::vector<int64_t> cuts = {4, 8};
  Progress progress(8, cuts);
  for (int64_t step = 1; step <= 4; ++step) progress.Add(Step(step, step * kSecondNs));
  progress.Add(Step(5, 15 * kSecondNs));  // a second, and ten of the cut
  EXPECT_DOUBLE_EQ(*progress.remaining_seconds(), 3 * 1 + 10);
}

TEST(ProgressTest, Line_NarrowTerminal_LeavesOutWhatDoesNotFit) {
  Progress progress(100);
  for (int64_t step = 1; step <= 50; ++step) progress.Add(Step(step, step * kSecondNs));
  v1::JobResult result;
  for (const auto& [worker, bubble] : {std::pair("w0", 0.08), {"w1", 0.12}}) {
    v1::StageReport& report = *result.add_per_stage();
    report.set_worker(worker);
    report.set_bubble_ratio(bubble);
  }
  progress.SetStages(result);
  EXPECT_THAT(progress.Line(120), HasSubstr("bubble 8 | 12 %"));
  for (int columns = 20; columns < 120; ++columns) {
    const std::string line = progress.Line(columns);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    EXPECT_THAT(line, HasSubstr("step 50/100 [==="));
  }
  EXPECT_THAT(progress.Line(40), Not(HasSubstr("bubble")));
}

TEST(ProgressTest, Add_Validation_IsANoteAndStaysOnTheLine) {
  Progress progress(100);
  progress.Add(Step(1, 0));
  EXPECT_EQ(progress.Add(Validation(1, 2.25)), "step 1: validation loss 2.2500");
  EXPECT_THAT(progress.PlainLine(), HasSubstr("validation 2.2500"));
}

TEST(ProgressTest, Add_ValidationWithMetrics_NotesAllAndKeepsTheFirstOnTheLine) {
  Progress progress(100);
  progress.Add(Step(1, 0));
  v1::JobEvent event = Validation(1, 2.25);
  for (const auto& [name, value] : {std::pair("accuracy", 0.3412), {"top5", 0.7}, {"new", 0.5}}) {
    v1::MetricValue& metric = *event.mutable_validation_done()->add_metrics();
    metric.set_name(name);
    metric.set_value(value);
  }
  EXPECT_EQ(progress.Add(event),
            "step 1: validation loss 2.2500, accuracy 34.1 %, top-5 70.0 %, new 50.0 %");
  EXPECT_THAT(progress.PlainLine(), HasSubstr("validation 2.2500  accuracy 34.1 %"));
  EXPECT_THAT(progress.PlainLine(), Not(HasSubstr("top-5")));
}

TEST(ProgressDisplayTest, Update_Terminal_RedrawsOneLine) {
  std::ostringstream out;
  std::ostringstream err;
  Console console{out, err, /*err_is_terminal=*/true, 80};
  ManualClock clock;
  Progress progress(100);
  {
    ProgressDisplay display(console, clock);
    for (int64_t step = 1; step <= 100; ++step) {
      clock.now_ns += kSecondNs / 100;
      progress.Add(Step(step, clock.now_ns));
      display.Update(progress);
    }
    display.Note("a note");
  }
  EXPECT_EQ(out.str(), "");
  const std::string shown = err.str();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 2);  // the note, and the end
  EXPECT_LE(std::count(shown.begin(), shown.end(), '\r'), 12);
}

TEST(ProgressDisplayTest, Update_File_WritesALineNowAndThen) {
  std::ostringstream out;
  std::ostringstream err;
  Console console{out, err, /*err_is_terminal=*/false, 80};
  ManualClock clock;
  Progress progress(1000);
  {
    ProgressDisplay display(console, clock);
    for (int64_t step = 1; step <= 1000; ++step) {
      clock.now_ns += kSecondNs / 20;
      progress.Add(Step(step, clock.now_ns));
      display.Update(progress);
    }
    display.Finish(progress);
  }
  const std::string shown = err.str();
  EXPECT_THAT(shown, Not(HasSubstr("\r")));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  const auto lines = std::count(shown.begin(), shown.end(), '\n');
  EXPECT_GE(lines, 5);
  EXPECT_LE(lines, 6);
  EXPECT_THAT(shown, HasSubstr("step 1000/1000"));
}

}  // namespace
}  // namespace penstock
