#include "data/text_streams.h"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

TEST(TextStreams, AStep_ReadsTheNextWindowOfEveryStream) {
  const TextStreams streams(103, 4,
                            6);  // streams of 25 tokens: four windows, and one token left out
  ASSERT_EQ(streams.windows(), 4);
  for (int64_t step = 0; step < 12; ++step) {
    for (int64_t row = 0; row < 4; ++row) {
      const int64_t sample = 4 * step + row;
      EXPECT_EQ(streams.OffsetOf(sample), 25 * row + 6 * (step % 4));
      EXPECT_EQ(streams.StartsAfresh(sample), step % 4 == 0);
    }
  }
}

TEST(TextStreams, SamplesThatGoOn_BeginWhereThoseOfTheStepBeforeEnd) {
  const TextStreams streams(1000, 7, 9);
  for (int64_t sample = 7; sample < 500; ++sample) {
    if (streams.StartsAfresh(sample)) continue;
    EXPECT_EQ(streams.OffsetOf(sample), streams.OffsetOf(sample - 7) + 9);
  }
}

TEST(TextStreams, AnEpoch_ReadsNoTokenTwiceAndLeavesOutLessThanAWindowOfEachStream) {
  const TextStreams streams(997, 5, 8);
  std::set<int64_t> read;
  for (int64_t sample = 0; sample < 5 * streams.windows(); ++sample) {
    for (int64_t t = 0; t < 8; ++t) {
      EXPECT_TRUE(read.insert(streams.OffsetOf(sample) + t).second);
    }
  }
  EXPECT_LT(*read.rbegin(), 997);
  EXPECT_GT(read.size(), 997u - 5 * 8 - 5);
  EXPECT_EQ(streams.OffsetOf(5 * streams.windows()), 0);
}

TEST(TextStreams, TooShortAText_HasNoWindow) {
  EXPECT_EQ(TextStreams(39, 4, 10).windows(), 0);
  EXPECT_EQ(TextStreams(40, 4, 10).windows(), 1);
}

}  // namespace
}  // namespace penstock
