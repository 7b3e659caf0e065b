#include "coordinator/run_progress.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace penstock {
namespace {

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
    EXPECT_TRUE(progress.OnStep(Step(step, static_cast<double>(step))));
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
  EXPECT_FALSE(progress.OnStep(Step(10, 1.0)));
  EXPECT_TRUE(progress.OnStep(Step(11, 1.0)));
  EXPECT_FALSE(progress.OnStep(Step(11, 5.0)));
}

TEST(RunProgress, LongRun_KeepsAnEvenlyThinnedCurve) {
  RunProgress progress(0, 1);
  constexpr int64_t kSteps = 100'000;
  for (int64_t step = 1; step <= kSteps; ++step) {
    progress.OnStep(Step(step, 0.5));
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
  progress.OnStep(Step(1, 1.0));
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
  for (int64_t step = 1; step <= 10; ++step) progress.OnStep(Step(step, 1.0));
  report(1, 5.0);
  EXPECT_DOUBLE_EQ(speed(), 200.0);
  for (int64_t step = 11; step <= 100; ++step) progress.OnStep(Step(step, 1.0));
  EXPECT_DOUBLE_EQ(speed(), 200.0);
  report(0, 50.0);
  EXPECT_DOUBLE_EQ(speed(), 200.0);
  report(1, 50.0);
  EXPECT_DOUBLE_EQ(speed(), 200.0);
}

TEST(RunProgress, WorkOfAnEarlierProcess_CountsUpToTheStepThatItGoesOnFrom) {
  v1::JobResult before;
  before.set_steps(30);
  before.set_samples(30 * 5);
  before.set_tokens(30 * 100);
  RunProgress progress(20, 1);
  progress.GoOnFrom(before);
  progress.OnStep(Step(21, 1.0));
  v1::JobResult result;
  progress.WriteTo(result);
  EXPECT_EQ(result.samples(), 21 * 5);
  EXPECT_EQ(result.tokens(), 21 * 100);
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
