#include "compute/clip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace penstock {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<float> FactorsOf(const Clip& clip, const std::vector<double>& squared) {
  std::vector<float> factors(squared.size(), -1.0f);
  ClipFactors(clip, squared, CombinedNorm(squared), absl::MakeSpan(factors));
  return factors;
}

TEST(CombinedNorm, IsTheRootOfTheSum) { EXPECT_DOUBLE_EQ(CombinedNorm({9.0, 16.0, 0.0}), 5.0); }

TEST(CombinedNorm, ManySmallLayersBesideALargeOne_AreNotLost) {
  std::vector<double> squared(1001, 1.0);
  squared.front() = 1e15;
  EXPECT_EQ(CombinedNorm(squared), std::sqrt(1e15 + 1000));
}

TEST(ClipFactor, NormBelowTheLimit_ChangesNothing) {
  EXPECT_EQ(ClipFactor(0.0, 1.0), 1.0f);
  EXPECT_EQ(ClipFactor(1.0, 1.0), 1.0f);
}

TEST(ClipFactor, NormAboveTheLimit_BringsItDownToIt) {
  EXPECT_EQ(ClipFactor(4.0, 1.0), 0.25f);
  EXPECT_EQ(ClipFactor(10.0, 5.0), 0.5f);
}

TEST(ClipFactor, NormThatIsNotANumber_IsNotHidden) {
  EXPECT_TRUE(std::isnan(ClipFactor(std::numeric_limits<double>::quiet_NaN(), 1.0)));
}

TEST(ClipFactors, None_IsOneEverywhere) {
  EXPECT_THAT(FactorsOf({Clip::Kind::kNone, 0.0}, {100.0, 200.0}), Each(1.0f));
}

TEST(ClipFactors, GlobalNorm_IsOneFactorForAll) {
  EXPECT_THAT(FactorsOf({Clip::Kind::kGlobalNorm, 1.0}, {9.0, 16.0}), Each(0.2f));
}

TEST(ClipFactors, LayerNorm_ScalesEachLayerByItself) {
  EXPECT_THAT(FactorsOf({Clip::Kind::kLayerNorm, 1.0}, {0.25, 4.0, 16.0}),
              ElementsAre(1.0f, 0.5f, 0.25f));
}

}  // namespace
}  // namespace penstock
