#include "worker/emulation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/manual_clock.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

class EmulationTest : public ::testing::Test {
 protected:
  // A pass whose arithmetic takes `arithmetic_ms`. Returns how long it took in all.
  int64_t PassMs(ActionKind kind, int32_t stage, int64_t arithmetic_ms) {
    const int64_t start_ns = clock_.now_ns;
    clock_.now_ns += arithmetic_ms * kMs;
    status_ = emulation_.Await(kind, StageId(stage), start_ns);
    return (clock_.now_ns - start_ns) / kMs;
  }

  ManualClock clock_{77};
  absl::Status status_;
  absl::Status cancelled_ = absl::CancelledError("stopped");
  int64_t cancelled_at_ns_ = std::numeric_limits<int64_t>::max();
  DeviceEmulation emulation_{
      {.stages = {{0.010, 0.020, 0.030, 0.040}, {0.100, 0.0, 0.0, 0.0}}, .workers = 2, .cores = 4},
      clock_,
      [this](absl::Duration time) { clock_.now_ns += absl::ToInt64Nanoseconds(time); },
      [this] { return clock_.now_ns < cancelled_at_ns_ ? absl::OkStatus() : cancelled_; }};
};

TEST_F(EmulationTest, EachPass_TakesItsTimeArithmeticIncluded) {
  EXPECT_EQ(PassMs(ActionKind::kForward, 0, 3), 10);
  EXPECT_EQ(PassMs(ActionKind::kRecompute, 0, 3), 10);
  EXPECT_EQ(PassMs(ActionKind::kBackwardInput, 0, 3), 20);
  EXPECT_EQ(PassMs(ActionKind::kBackwardWeight, 0, 0), 30);
  EXPECT_EQ(PassMs(ActionKind::kUpdate, 0, 3), 40);
  EXPECT_EQ(PassMs(ActionKind::kForward, 1, 100), 100);
}

// Its arithmetic takes 2 ms for each of two layers, the second of which is done after a third of the time.
TEST_F(EmulationTest, LayersOfAPass_AreDoneAfterTheirPartOfIt) {
  DeviceEmulation emulation(
      {.stages = {{0.010, 0.020, 0.030, 0.040}}, .weight_done = {{1.0, 1.0 / 3.0}}, .cores = 2},
      clock_, [this](absl::Duration time) { clock_.now_ns += absl::ToInt64Nanoseconds(time); },
      [] { return absl::OkStatus(); });
  const int64_t start_ns = clock_.now_ns;
  clock_.now_ns += 2 * kMs;
  EXPECT_THAT(emulation.AwaitLayer(StageId(0), 1, start_ns), IsOk());
  EXPECT_EQ(clock_.now_ns - start_ns, 10 * kMs);
  clock_.now_ns += 2 * kMs;
  EXPECT_THAT(emulation.AwaitLayer(StageId(0), 0, start_ns), IsOk());
  EXPECT_EQ(clock_.now_ns - start_ns, 30 * kMs);
  EXPECT_THAT(emulation.Await(ActionKind::kBackwardWeight, StageId(0), start_ns), IsOk());
  EXPECT_EQ(clock_.now_ns - start_ns, 30 * kMs);
  const int64_t next_ns = clock_.now_ns;
  EXPECT_THAT(emulation.Await(ActionKind::kForward, StageId(0), next_ns), IsOk());
  EXPECT_EQ(clock_.now_ns - next_ns, 10 * kMs);
}

// Waiting for layers is no arithmetic, which may take half of the cores.
TEST_F(EmulationTest, WaitsForLayers_DoNotCountAsArithmetic) {
  DeviceEmulation emulation(
      {.stages = {{0.010, 0.020, 0.030, 0.040}}, .weight_done = {{1.0}}, .workers = 2, .cores = 2},
      clock_, [this](absl::Duration time) { clock_.now_ns += absl::ToInt64Nanoseconds(time); },
      [] { return absl::OkStatus(); });
  for (int i = 0; i < 500; ++i) {
    const int64_t start_ns = clock_.now_ns;
    clock_.now_ns += 10 * kMs;
    ASSERT_THAT(emulation.AwaitLayer(StageId(0), 0, start_ns), IsOk());
    ASSERT_THAT(emulation.Await(ActionKind::kBackwardWeight, StageId(0), start_ns), IsOk());
  }
}

TEST_F(EmulationTest, ArithmeticThatTakesLonger_IsNotWaitedFor) {
  EXPECT_EQ(PassMs(ActionKind::kForward, 0, 15), 15);
  EXPECT_EQ(PassMs(ActionKind::kUpdate, 1, 2), 2);
}

TEST_F(EmulationTest, CancelledPass_EndsSoonAndSaysWhy) {
  DeviceEmulation slow(
      {.stages = {{60.0, 0.0, 0.0, 0.0}}, .workers = 1, .cores = 2}, clock_,
      [this](absl::Duration time) { clock_.now_ns += absl::ToInt64Nanoseconds(time); },
      [this] { return clock_.now_ns < cancelled_at_ns_ ? absl::OkStatus() : cancelled_; });
  const int64_t start_ns = clock_.now_ns;
  cancelled_at_ns_ = start_ns + 3'000 * kMs;
  EXPECT_THAT(slow.Await(ActionKind::kForward, StageId(0), start_ns),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
  EXPECT_LE(clock_.now_ns - start_ns, 3'500 * kMs);
}

TEST_F(EmulationTest, UpToHalfOfTheCores_Goes) {
  // Two workers, four cores: each may compute all the time.
  for (int i = 0; i < 500; ++i) {
    PassMs(ActionKind::kForward, 0, 10);
    ASSERT_THAT(status_, IsOk());
  }
}

TEST_F(EmulationTest, MoreThanHalfOfTheCores_IsRefusedWithWhatWouldDo) {
  int passes = 0;
  while (status_.ok() && passes < 1000) {
    PassMs(ActionKind::kForward, 0, 20);
    ++passes;
  }
  EXPECT_EQ(passes, DeviceEmulation::kPassesBetweenChecks);
  EXPECT_THAT(status_, StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("2 workers on 4 cores would need 4 of them"),
                                      HasSubstr("at least 2 times as long"))));
}

TEST_F(EmulationTest, SlowWarmUp_IsForgiven) {
  for (int i = 0; i < DeviceEmulation::kWarmUpPasses; ++i) PassMs(ActionKind::kForward, 0, 1000);
  for (int i = 0; i < 500; ++i) PassMs(ActionKind::kForward, 0, 1);
  EXPECT_THAT(status_, IsOk());
}

// Times of the passes of a worker, in milliseconds.
std::vector<double> JitteredMs(double jitter, uint64_t seed, int32_t worker, int passes) {
  ManualClock clock{0};
  std::vector<double> times;
  DeviceEmulation emulation(
      {.stages = {{0.100, 0.100, 0.100, 0.0}},
       .jitter = jitter,
       .seed = seed,
       .worker = WorkerId(worker)},
      clock, [&](absl::Duration time) { times.push_back(absl::ToDoubleMilliseconds(time)); },
      [] { return absl::OkStatus(); });
  for (int i = 0; i < passes; ++i) {
    EXPECT_THAT(emulation.Await(ActionKind::kForward, StageId(0), clock.now_ns), IsOk());
  }
  return times;
}

TEST(EmulationJitter, Times_LieEvenlyAroundTheirMean) {
  const std::vector<double> times = JitteredMs(0.3, /*seed=*/1, /*worker=*/2, 20'000);
  double sum = 0.0;
  double squares = 0.0;
  for (const double ms : times) {
    EXPECT_GE(ms, 70.0 - 1e-6);
    EXPECT_LE(ms, 130.0 + 1e-6);
    sum += ms;
    squares += (ms - 100.0) * (ms - 100.0);
  }
  // Even over a width of 60: the deviation is 60 / sqrt(12). Of so many the mean is within 0.5 by four sigmas.
  EXPECT_NEAR(sum / 20'000, 100.0, 0.5);
  EXPECT_NEAR(std::sqrt(squares / 20'000), 60.0 / std::sqrt(12.0), 0.3);
}

TEST(EmulationJitter, Times_FollowFromSeedAndWorker) {
  const std::vector<double> times = JitteredMs(0.3, 1, 2, 50);
  EXPECT_EQ(JitteredMs(0.3, 1, 2, 50), times);
  EXPECT_NE(JitteredMs(0.3, 2, 2, 50), times);
  EXPECT_NE(JitteredMs(0.3, 1, 3, 50), times);
  EXPECT_EQ(JitteredMs(0.0, 1, 2, 50), std::vector<double>(50, 100.0));
}

}  // namespace
}  // namespace penstock
