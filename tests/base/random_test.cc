#include "base/random.h"

#include <cmath>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

// From the known-answer file of the Random123 distribution (philox4x32, 10 rounds).
TEST(Philox, KnownAnswers_Match) {
  EXPECT_THAT(Philox(0, {0, 0, 0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox(0xffffffffffffffff, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(RandomStream, AnyOrder_GivesTheSameWords) {
  RandomStream stream(7, 3);
  std::vector<uint32_t> forwards;
  forwards.reserve(100);
  for (int i = 0; i < 100; ++i) forwards.push_back(stream.Next());
  for (int i = 99; i >= 0; --i) EXPECT_EQ(RandomStream(7, 3).At(i), forwards[i]);
}

TEST(RandomStream, OtherSeedOrPurpose_GivesOtherWords) {
  EXPECT_NE(RandomStream(7, 3).At(0), RandomStream(7, 4).At(0));
  EXPECT_NE(RandomStream(7, 3).At(0), RandomStream(8, 3).At(0));
  // Purposes are not reduced to 32 bits.
  EXPECT_NE(RandomStream(7, 3).At(0), RandomStream(7, 3 + (uint64_t{1} << 32)).At(0));
}

TEST(RandomStream, Below_StaysBelowAndReachesEverything) {
  RandomStream stream(1, 2);
  std::vector<int> hits(7);
  for (int i = 0; i < 7000; ++i) {
    const uint64_t value = stream.Below(7);
    ASSERT_LT(value, 7u);
    ++hits[value];
  }
  for (const int count : hits) EXPECT_NEAR(count, 1000, 150);  // 5 deviations
}

TEST(RandomStream, Moments_AreThoseOfTheDistribution) {
  constexpr int kSamples = 100'000;
  RandomStream stream(5, 0);
  double uniform = 0, normal = 0, normal_squared = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double u = stream.Uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform += u;
    const double n = stream.Normal();
    normal += n;
    normal_squared += n * n;
  }
  const double tolerance = 5 / std::sqrt(kSamples);
  EXPECT_NEAR(uniform / kSamples, 0.5, tolerance);
  EXPECT_NEAR(normal / kSamples, 0.0, tolerance);
  EXPECT_NEAR(normal_squared / kSamples, 1.0, 2 * tolerance);
}

}  // namespace
}  // namespace penstock
