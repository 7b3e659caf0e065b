#include "services/transport/suspicion.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr StreamLimits kSuspicion = {.suspicion = absl::Seconds(5),
                                     .dial = absl::Seconds(2),
                                     .backoff_min = absl::Milliseconds(100),
                                     .backoff_max = absl::Milliseconds(400)};

Suspicion::TimePoint Moment(absl::Duration time) {
  return Suspicion::TimePoint(absl::ToChronoNanoseconds(absl::Hours(1) + time));
}
absl::Duration Ms(int64_t ms) { return absl::Milliseconds(ms); }

TEST(Suspicion, PausesGrow_UpToTheirBound) {
  Suspicion suspicion(kSuspicion);
  EXPECT_FALSE(suspicion.any());
  EXPECT_EQ(suspicion.OnBroken(Moment(Ms(0))), Ms(100));
  EXPECT_EQ(suspicion.OnBroken(Moment(Ms(110))), Ms(200));
  EXPECT_EQ(suspicion.OnBroken(Moment(Ms(320))), Ms(400));
  EXPECT_EQ(suspicion.OnBroken(Moment(Ms(730))), Ms(400));
  EXPECT_EQ(suspicion.Age(Moment(Ms(1000))), Ms(1000));
}

TEST(Suspicion, TimeIsOver_WhenAnotherPauseWouldGoBeyondIt) {
  Suspicion suspicion(kSuspicion);
  EXPECT_TRUE(suspicion.OnBroken(Moment(Ms(0))).has_value());
  EXPECT_TRUE(suspicion.OnBroken(Moment(Ms(4700))).has_value()) << "a pause of 200 ms";
  EXPECT_FALSE(suspicion.OnBroken(Moment(Ms(4910))).has_value()) << "400 ms, and 90 ms are left";
}

TEST(Suspicion, DialTimeout_IsWithinWhatIsLeft) {
  Suspicion suspicion(kSuspicion);
  EXPECT_TRUE(suspicion.OnBroken(Moment(Ms(0))).has_value());
  EXPECT_EQ(suspicion.DialTimeout(Moment(Ms(100))), Ms(2000));
  EXPECT_EQ(suspicion.DialTimeout(Moment(Ms(4100))), Ms(900));
}

TEST(Suspicion, WhileAStreamIsOpen_TimeStandsStill) {
  Suspicion suspicion(kSuspicion);
  EXPECT_TRUE(suspicion.OnBroken(Moment(Ms(0))).has_value());
  suspicion.OnOpen(Moment(Ms(1000)));
  EXPECT_TRUE(suspicion.OnBroken(Moment(absl::Hours(1))).has_value());
  EXPECT_EQ(suspicion.DialTimeout(Moment(absl::Hours(1) + Ms(3500))), Ms(500))
      << "1 s was spent before";
}

// A connection that always breaks before it has brought anything must end the run some time.
TEST(Suspicion, StreamsThatBringNothing_UseTheTimeUp) {
  Suspicion suspicion(kSuspicion);
  absl::Duration now = Ms(0);
  int streams = 0;
  for (; streams < 100; ++streams) {
    const auto pause = suspicion.OnBroken(Moment(now));
    if (!pause.has_value()) break;
    now += *pause;
    suspicion.OnOpen(Moment(now));
    now += Ms(1000);
  }
  EXPECT_EQ(streams, 13) << "100 ms, 200 ms, and 11 times 400 ms";
}

TEST(Suspicion, Clear_ForgetsAll) {
  Suspicion suspicion(kSuspicion);
  for (const int64_t ms : {0, 1000, 2000, 3000}) (void)suspicion.OnBroken(Moment(Ms(ms)));
  suspicion.OnOpen(Moment(Ms(3500)));
  suspicion.Clear();
  EXPECT_FALSE(suspicion.any());
  EXPECT_EQ(suspicion.OnBroken(Moment(Ms(9000))), Ms(100));
  EXPECT_EQ(suspicion.DialTimeout(Moment(Ms(12'100))), Ms(1900));
}

}  // namespace
}  // namespace penstock
