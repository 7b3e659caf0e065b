#include "services/transport/link_meter.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

LinkMeter::TimePoint At(int64_t ns) {
  return LinkMeter::TimePoint(std::chrono::nanoseconds(1'000'000 + ns));
}

TEST(LinkMeter, WaitsAndTransfers_AddUp) {
  LinkMeter meter;
  meter.AddWait(At(0), At(30));
  meter.AddWait(At(100), At(112));
  meter.AddTransfer(At(0), At(500));
  EXPECT_EQ(meter.wait_ns(), 42);
  EXPECT_EQ(meter.transfer_ns(), 500);
  EXPECT_EQ(meter.round_trip_ns(), 0) << "there was none";
}

TEST(LinkMeter, RoundTrip_IsTheShortestOfTheRecentOnes) {
  LinkMeter meter;
  meter.AddRoundTrip(At(0), At(900));
  EXPECT_EQ(meter.round_trip_ns(), 900);
  meter.AddRoundTrip(At(0), At(70));
  meter.AddRoundTrip(At(0), At(800));
  EXPECT_EQ(meter.round_trip_ns(), 70);
  // The network has become slower: the short one is forgotten, though not at once.
  for (int i = 3; i < LinkMeter::kRoundTrips; ++i) meter.AddRoundTrip(At(0), At(300));
  meter.AddRoundTrip(At(0), At(300));
  EXPECT_EQ(meter.round_trip_ns(), 70);
  for (int i = 0; i < 2 * LinkMeter::kRoundTrips; ++i) meter.AddRoundTrip(At(0), At(300));
  EXPECT_EQ(meter.round_trip_ns(), 300);
}

}  // namespace
}  // namespace penstock
