#include "coordinator/pulse_watch.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "coordinator/effects.h"

namespace penstock {
namespace {

constexpr int64_t kLimitNs = 3000 * kNsPerMs;

// Tells `pulses`, one for each heartbeat, 500 ms apart. Returns the number of the first after which it is stuck.
std::optional<size_t> StuckAfter(const std::vector<int64_t>& pulses, int64_t limit_ns = kLimitNs) {
  PulseWatch watch;
  for (size_t i = 0; i < pulses.size(); ++i) {
    const int64_t now_ns = static_cast<int64_t>(500 * i) * kNsPerMs;
    if (watch.OnHeartbeat(pulses[i], limit_ns, now_ns).has_value()) return i;
  }
  return std::nullopt;
}

TEST(PulseWatch, StandsStill_IsStuckAtTheLimit) {
  EXPECT_EQ(StuckAfter({10, 20, 30, 30, 30, 30, 30, 30, 30}), 8u) << "3 s after it brought 30";
  EXPECT_EQ(StuckAfter({30, 30, 30, 30, 30, 30}), std::nullopt);
}

// It waits for one that is stuck: its pulse goes on, only slowly.
TEST(PulseWatch, WaitsForAnother_IsNotStuck) {
  std::vector<int64_t> waits;
  for (int64_t i = 0; i < 1000; ++i) waits.push_back(1 + i / 2);
  EXPECT_EQ(StuckAfter(waits), std::nullopt);
}

// While it compiles, saves or is held, and in older builds, a pulse does not show.
TEST(PulseWatch, DoesNotShow_SaysNothing) {
  EXPECT_EQ(StuckAfter(std::vector<int64_t>(1000, 0)), std::nullopt);
  EXPECT_EQ(StuckAfter({7, 7, 7, 7, 7, 0, 7, 7, 7, 7, 7, 7}), std::nullopt)
      << "it begins again where it shows again";
}

TEST(PulseWatch, LongSteps_MayStandStillForFourOfThem) {
  EXPECT_EQ(PulseWatch::LimitNs(0.1), 3000 * kNsPerMs);
  EXPECT_EQ(PulseWatch::LimitNs(10.0), 40'000 * kNsPerMs);
  EXPECT_EQ(PulseWatch::LimitNs(std::nullopt), 60'000 * kNsPerMs) << "no step is known";
  EXPECT_EQ(PulseWatch::LimitNs(-1.0), 3000 * kNsPerMs);
  EXPECT_GT(PulseWatch::LimitNs(1e300), 0);
  EXPECT_EQ(StuckAfter(std::vector<int64_t>(80, 5), PulseWatch::LimitNs(10.0)), std::nullopt);
  EXPECT_EQ(StuckAfter(std::vector<int64_t>(90, 5), PulseWatch::LimitNs(10.0)), 80u);
}

// The coordinator, or the whole worker, stood still for 10 s. What was on its way before brings the same pulse once or twice.
TEST(PulseWatch, GapWithoutHeartbeats_SaysNothing) {
  PulseWatch watch;
  EXPECT_EQ(watch.OnHeartbeat(5, kLimitNs, 0), std::nullopt);
  EXPECT_EQ(watch.OnHeartbeat(5, kLimitNs, 10'000 * kNsPerMs), std::nullopt);
  EXPECT_EQ(watch.OnHeartbeat(5, kLimitNs, 10'001 * kNsPerMs), std::nullopt);
  EXPECT_EQ(watch.OnHeartbeat(6, kLimitNs, 10'500 * kNsPerMs), std::nullopt);
}

TEST(PulseWatch, SaysForHowLong) {
  PulseWatch watch;
  for (int64_t ms = 0; ms < 3000; ms += 500) {
    EXPECT_EQ(watch.OnHeartbeat(5, kLimitNs, ms * kNsPerMs), std::nullopt) << ms;
  }
  EXPECT_EQ(watch.OnHeartbeat(5, kLimitNs, 3100 * kNsPerMs), 3100 * kNsPerMs);
}

TEST(PulseWatch, Unsteady_MayStandStillForLonger) {
  EXPECT_EQ(PulseWatch::UnsteadyLimitNs(std::nullopt), 120'000 * kNsPerMs);
  EXPECT_EQ(PulseWatch::UnsteadyLimitNs(0.1), 120'000 * kNsPerMs);
  EXPECT_EQ(PulseWatch::UnsteadyLimitNs(10.0), 400'000 * kNsPerMs) << "ten times four steps";
}

}  // namespace
}  // namespace penstock
