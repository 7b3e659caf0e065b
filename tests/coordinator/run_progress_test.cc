#include "coordinator/run_progress.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace penstock {
namespace {

constexpr int64_t kNowMs = 1'790'000'000'000;

v1::StepDone Step(int64_t step, double loss) {
  v1::StepDone done;
  done.set_step(step);
  done.set_loss(loss);
  done.set_tokens(100);
  done.set_samples(5);
  return done;
}

TEST(RunProgress, TrainLoss_IsTheMeanOfTheLastTenSteps) {
  RunProgress progress(0, 1);
  for (int64_t step = 1; step <= 25; ++step) {
    EXPECT_TRUE(progress.OnStep(Step(step, static_cast<double>(step)), kNowMs));
  }
  v1::JobResult result;
  progress.WriteTo(result);
  EXPECT_DOUBLE_EQ(result.train_loss(), 20.5);  // mean of 16 .. 25
  EXPECT_EQ(result.steps(), 25);
  EXPECT_EQ(result.tokens(), 2500);
  EXPECT_EQ(result.samples(), 125);
  EXPECT_EQ(result.losses_size(), 25);
  EXPECT_FALSE(result.has_validation_loss());
}

TEST(RunProgress, OldStep_IsIgnored) {
  RunProgress progress(10, 1);
  EXPECT_FALSE(progress.OnStep(Step(10, 1.0), kNowMs));
  EXPECT_TRUE(progress.OnStep(Step(11, 1.0), kNowMs));
  EXPECT_FALSE(progress.OnStep(Step(11, 5.0), kNowMs));
}

TEST(RunProgress, LongRun_KeepsAnEvenlyThinnedCurve) {
  RunProgress progress(0, 1);
  constexpr int64_t kSteps = 100'000;
  for (int64_t step = 1; step <= kSteps; ++step) {
    progress.OnStep(Step(step, 0.5), kNowMs);
  }
  v1::JobResult result;
  progress.WriteTo(result);
  EXPECT_LE(result.losses_size(), RunProgress::kLossPointsMax + 1);
  EXPECT_GE(result.losses_size(), RunProgress::kLossPointsMax / 2 - 1);
  const int64_t stride = result.losses(1).step() - result.losses(0).step();
  for (int i = 1; i + 1 < result.losses_size(); ++i) {
    EXPECT_EQ(result.losses(i).step() - result.losses(i - 1).step(), stride);
  }
  EXPECT_EQ(result.losses(result.losses_size() - 1).step(), kSteps) << "the last one is there";
  EXPECT_LT(result.ByteSizeLong(), 1u << 19);
}

TEST(RunProgress, Reports_GiveSpeedAndBubble) {
  RunProgress progress(0, 1);
  progress.OnStep(Step(1, 1.0), kNowMs);
  v1::RunDone done;
  for (int stage = 0; stage < 2; ++stage) {
    v1::StageReport& report = *done.add_stages();
    report.set_stage(stage);
    report.set_worker(stage == 0 ? "w0" : "w1");
    report.set_window_seconds(stage == 0 ? 4.0 : 5.0);
    report.set_bubble_ratio(stage == 0 ? 0.1 : 0.3);
  }
  progress.OnReports(done.stages());
  v1::JobResult result;
  progress.WriteTo(result);
  EXPECT_DOUBLE_EQ(result.tokens_per_second(), 20.0);
  EXPECT_DOUBLE_EQ(result.samples_per_second(), 1.0);
  EXPECT_DOUBLE_EQ(result.bubble_ratio(), 0.2);
  EXPECT_EQ(result.per_stage_size(), 2);
}

// A worker with two stages has one device; what is not known of one is not known of all.
TEST(RunProgress, ProductRates_AreAddedUpOverWorkers) {
  RunProgress progress(0, 2);
  v1::RunDone done;
  for (int stage = 0; stage < 3; ++stage) {
    v1::StageReport& report = *done.add_stages();
    report.set_stage(stage);
    report.set_worker(stage == 1 ? "w1" : "w0");
    report.set_product_flops_per_second(stage == 1 ? 3e9 : 5e9);
  }
  progress.OnReports(done.stages());
  v1::JobResult result;
  progress.WriteTo(result);
  EXPECT_DOUBLE_EQ(result.product_flops_per_second(), 8e9);
  done.mutable_stages(1)->clear_product_flops_per_second();
  progress.OnReports(done.stages());
  progress.WriteTo(result);
  EXPECT_DOUBLE_EQ(result.product_flops_per_second(), 0);
}

TEST(RunProgress, Losses_KeepTheTimeOfTheirSteps) {
  RunProgress progress(0, 1);
  progress.OnStep(Step(1, 1.0), kNowMs);
  progress.OnStep(Step(2, 1.0), kNowMs + 500);
  v1::JobResult result;
  progress.WriteTo(result);
  EXPECT_EQ(result.losses(1).unix_ms() - result.losses(0).unix_ms(), 500);
}

TEST(RunProgress, SeveralStagesOnAWorker_ShareItsBubble) {
  RunProgress progress(0, 3);
  v1::RunDone done;
  for (int stage = 0; stage < 4; ++stage) {
    v1::StageReport& report = *done.add_stages();
    report.set_stage(stage);
    report.set_worker(stage % 2 == 0 ? "w0" : "w1");
    report.set_bubble_ratio(stage % 2 == 0 ? 0.5 : 0.75);  // busy all the time, and half of it
  }
  progress.OnReports(done.stages());
  v1::JobResult result;
  progress.WriteTo(result);
  EXPECT_DOUBLE_EQ(result.bubble_ratio(), 0.25);
}

// The window is as long as it was at the cut; steps have come since.
TEST(RunProgress, BetweenCuts_SpeedIsThatOfTheLastCut) {
  RunProgress progress(0, 1);
  const auto report = [&](int stage, double window_seconds) {
    v1::CutReached cut;
    cut.add_stages()->set_stage(stage);
    cut.mutable_stages(0)->set_window_seconds(window_seconds);
    progress.OnReports(cut.stages());
  };
  const auto speed = [&] {
    v1::JobResult result;
    progress.WriteTo(result);
    return result.tokens_per_second();
  };
  report(0, 5.0);  // the first stage passes the cut, the last steps are not reported yet
  EXPECT_DOUBLE_EQ(speed(), 0.0);
  for (int64_t step = 1; step <= 10; ++step) progress.OnStep(Step(step, 1.0), kNowMs);
  report(1, 5.0);
  EXPECT_DOUBLE_EQ(speed(), 200.0);
  for (int64_t step = 11; step <= 100; ++step) progress.OnStep(Step(step, 1.0), kNowMs);
  EXPECT_DOUBLE_EQ(speed(), 200.0);
  report(0, 50.0);
  EXPECT_DOUBLE_EQ(speed(), 200.0);
  report(1, 50.0);
  EXPECT_DOUBLE_EQ(speed(), 200.0);
}

v1::JobResult ResultOf(const RunProgress& progress) {
  v1::JobResult result;
  progress.WriteTo(result);
  return result;
}

v1::ValidationDone Validation(int64_t step, double loss) {
  v1::ValidationDone done;
  done.set_step(step);
  done.set_loss(loss);
  return done;
}

TEST(RunProgress, WorkOfAnEarlierProcess_CountsOnceAlsoWhereItIsDoneAgain) {
  v1::JobResult before;
  before.set_steps(30);
  before.set_samples(30 * 5);
  before.set_tokens(30 * 100);
  RunProgress progress(20, 1);
  progress.GoOnFrom(before);
  for (int64_t step = 21; step <= 30; ++step) {
    EXPECT_TRUE(progress.OnStep(Step(step, 1.0), kNowMs));
    EXPECT_EQ(progress.step(), step);
    EXPECT_EQ(ResultOf(progress).steps(), 30);
    EXPECT_EQ(ResultOf(progress).samples(), 30 * 5);
  }
  progress.OnStep(Step(31, 1.0), kNowMs);
  EXPECT_EQ(ResultOf(progress).steps(), 31);
  EXPECT_EQ(ResultOf(progress).samples(), 31 * 5);
  EXPECT_EQ(ResultOf(progress).tokens(), 31 * 100);
}

TEST(RunProgress, AnotherProcessTakesOver_GoesOnAsIfItWereTheSame) {
  const auto report = [](RunProgress& progress, double seconds) {
    google::protobuf::RepeatedPtrField<v1::StageReport> stages;
    stages.Add()->set_stage(1);
    stages[0].set_window_seconds(seconds);
    progress.OnReports(stages);
  };
  RunProgress before(10, 1);
  for (int64_t step = 11; step <= 20; ++step) before.OnStep(Step(step, 1.0), kNowMs);
  EXPECT_TRUE(before.OnValidation(Validation(20, 3.0)));
  report(before, 2.0);
  for (int64_t step = 21; step <= 25; ++step) before.OnStep(Step(step, 1.0), kNowMs);

  const v1::JobResult record = ResultOf(before);
  v1::RunUnderWay run;
  before.WriteTo(run);
  RunProgress after(25, 1);
  after.TakeOver(record, run);
  report(after, 2.0);  // once more, as a worker does that was not answered
  report(before, 2.0);
  EXPECT_EQ(ResultOf(after).SerializeAsString(), ResultOf(before).SerializeAsString());
  RunProgress later(25, 1);
  later.TakeOver(record, run);
  std::swap(after, later);
  EXPECT_EQ(ResultOf(after).SerializeAsString(), record.SerializeAsString());
  // What was told already, and is told again.
  EXPECT_FALSE(after.OnStep(Step(25, 1.0), kNowMs));
  EXPECT_FALSE(after.OnValidation(Validation(20, 3.0)));
  EXPECT_EQ(ResultOf(after).SerializeAsString(), record.SerializeAsString());
  for (RunProgress* progress : {&before, &after}) {
    for (int64_t step = 26; step <= 30; ++step) progress->OnStep(Step(step, 2.0), kNowMs);
    EXPECT_TRUE(progress->OnValidation(Validation(30, 2.5)));
    report(*progress, 4.0);
  }
  EXPECT_DOUBLE_EQ(ResultOf(after).tokens_per_second(), 20 * 100 / 4.0);
  EXPECT_EQ(ResultOf(after).SerializeAsString(), ResultOf(before).SerializeAsString());
}

TEST(RunProgress, ValidationAt_KnowsEachThatCounts) {
  RunProgress progress(0, 1);
  EXPECT_FALSE(progress.ValidationAt(0).has_value());
  for (const int64_t step : {10, 20, 30}) {
    progress.OnValidation(Validation(step, static_cast<double>(step)));
  }
  EXPECT_EQ(progress.ValidationAt(10), 10.0);
  EXPECT_EQ(progress.ValidationAt(30), 30.0);
  EXPECT_FALSE(progress.ValidationAt(25).has_value());
  EXPECT_TRUE(progress.OnStep(Step(30, 1.0), kNowMs));
  progress.BeginAgain(20, 80, 0);
  EXPECT_EQ(progress.ValidationAt(20), 20.0);
  EXPECT_FALSE(progress.ValidationAt(30).has_value()) << "of weights that are gone";
}

// What was saved last may be newer than what the record says.
TEST(RunProgress, EarlierProcessTrainedFurtherThanItsRecord_CountsThatToo) {
  v1::JobResult before;
  before.set_steps(10);
  before.set_samples(10 * 5);
  RunProgress progress(20, 1);
  progress.GoOnFrom(before);
  EXPECT_EQ(ResultOf(progress).steps(), 20);
  EXPECT_EQ(ResultOf(progress).samples(), 20 * 5);
}

TEST(RunProgress, StepsDoneAgain_CountOnceAndTheCurveIsThatOfTheRunThatGoesOn) {
  RunProgress progress(0, 1);
  for (int64_t step = 1; step <= 15; ++step) progress.OnStep(Step(step, 1.0), kNowMs);
  EXPECT_TRUE(progress.OnValidation(Validation(10, 1.0)));
  EXPECT_TRUE(progress.OnValidation(Validation(12, 1.0)));
  progress.BeginAgain(10, 80, 0);
  EXPECT_EQ(progress.step(), 10);
  EXPECT_EQ(progress.told_step(), 15);
  v1::JobResult result = ResultOf(progress);
  EXPECT_EQ(result.steps(), 15);
  EXPECT_EQ(result.tokens(), 15 * 100);
  ASSERT_EQ(result.losses_size(), 10);
  EXPECT_EQ(result.losses(9).step(), 10);
  EXPECT_EQ(result.validations_size(), 1);
  EXPECT_DOUBLE_EQ(result.train_loss(), 1.0);

  for (int64_t step = 11; step <= 16; ++step) {
    EXPECT_TRUE(progress.OnStep(Step(step, 2.0), kNowMs));
    if (step == 12) {
      EXPECT_FALSE(progress.OnValidation(Validation(12, 2.0)));
    }
  }
  EXPECT_TRUE(progress.OnValidation(Validation(16, 2.0)));
  result = ResultOf(progress);
  EXPECT_EQ(result.steps(), 16);
  EXPECT_EQ(result.tokens(), 16 * 100);
  ASSERT_EQ(result.losses_size(), 16);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(result.losses(i).step(), i + 1);
    EXPECT_DOUBLE_EQ(result.losses(i).loss(), i < 10 ? 1.0 : 2.0);
  }
  ASSERT_EQ(result.validations_size(), 3);
  EXPECT_DOUBLE_EQ(result.validations(1).loss(), 2.0);
  EXPECT_DOUBLE_EQ(result.train_loss(), (4 * 1.0 + 6 * 2.0) / 10);
}

TEST(RunProgress, EndsBeforeItHasComeAsFarAsBefore_CountsWhatIsThere) {
  RunProgress progress(0, 1);
  for (int64_t step = 1; step <= 15; ++step) progress.OnStep(Step(step, 1.0), kNowMs);
  progress.BeginAgain(10, 80, 0);
  progress.OnStep(Step(11, 1.0), kNowMs);
  progress.EndHere();
  EXPECT_EQ(ResultOf(progress).steps(), 11);
  EXPECT_EQ(ResultOf(progress).tokens(), 11 * 100);
  EXPECT_EQ(ResultOf(progress).samples(), 11 * 5);
}

// The window is that of the new workers, whatever they do again.
TEST(RunProgress, StepsDoneAgain_CountForTheSpeed) {
  RunProgress progress(0, 1);
  for (int64_t step = 1; step <= 15; ++step) progress.OnStep(Step(step, 1.0), kNowMs);
  progress.BeginAgain(10, 80, 0);
  for (int64_t step = 11; step <= 14; ++step) progress.OnStep(Step(step, 1.0), kNowMs);
  v1::CutReached cut;
  cut.add_stages()->set_stage(0);
  cut.mutable_stages(0)->set_window_seconds(2.0);
  progress.OnReports(cut.stages());
  EXPECT_DOUBLE_EQ(ResultOf(progress).tokens_per_second(), 200.0);
}

TEST(RunProgress, RangesDoneAgain_LoseTheirOrders) {
  RunProgress progress(0, 1);
  for (const int64_t first : {0, 40, 80}) {
    v1::WorkerOrder order;
    order.set_first_microbatch(first);
    progress.OnOrder(0, order);
  }
  for (int64_t step = 1; step <= 15; ++step) progress.OnStep(Step(step, 1.0), kNowMs);
  progress.BeginAgain(5, 40, 1);
  ASSERT_EQ(ResultOf(progress).order_size(), 1);
  EXPECT_EQ(ResultOf(progress).order(0).first_microbatch(), 0);
}

TEST(RunProgress, OrdersOfWorkers_ComeOutByRangeAndWorkerWhoeverIsFirst) {
  RunProgress progress(0, 1);
  const auto told = [&](int32_t worker, int64_t first, const std::string& blocks) {
    v1::WorkerOrder order;
    order.set_first_microbatch(first);
    order.set_microbatches(8);
    order.set_blocks(blocks);
    progress.OnOrder(worker, order);
  };
  told(1, 8, "d");
  told(1, 0, "b");
  told(0, 8, "c");
  told(0, 0, "a");
  v1::JobResult result;
  progress.WriteTo(result);
  progress.WriteTo(result);
  ASSERT_EQ(result.order_size(), 4);
  std::string blocks;
  for (const v1::WorkerOrder& order : result.order()) blocks += order.blocks();
  EXPECT_EQ(blocks, "abcd");
  EXPECT_EQ(result.order(2).first_microbatch(), 8);
  EXPECT_EQ(result.order(3).worker_index(), 1);
}

TEST(RunProgress, WeightsDigest_NeedsAllLayersAndIgnoresWhoSentThem) {
  RunProgress progress(0, 1);
  v1::RunDone one, other;
  v1::LayerDigest& second = *one.add_layers();
  second.set_layer(1);
  second.set_sha256("bb");
  progress.OnLayers(one.layers());
  EXPECT_EQ(progress.WeightsSha256(2), "");
  v1::LayerDigest& first = *other.add_layers();
  first.set_layer(0);
  first.set_sha256("aa");
  progress.OnLayers(other.layers());
  EXPECT_EQ(progress.WeightsSha256(2), Sha256Hex("aabb"));
}

}  // namespace
}  // namespace penstock
