#include "studies/theory/bound.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock {
namespace {

constexpr BoundInput kInput = {.stages = 4,
                               .delta = 14,
                               .learning_rate = 0.25,
                               .smoothness = 2.0,
                               .start_gap = 3.0,
                               .block_gradient = 5.0};

TEST(TheoremBoundTest, Terms_AreThoseOfTheTheorem) {
  const BoundTerms terms = TheoremBound(kInput, 100);
  EXPECT_DOUBLE_EQ(terms.start, 2 * 4 * 3.0 / (0.25 * 100));
  EXPECT_DOUBLE_EQ(terms.noise, 0.25 * 4 * 2.0 * 25);
  EXPECT_DOUBLE_EQ(terms.stale, std::pow(0.25 * 2.0 * 14 * 5.0, 2));
  EXPECT_DOUBLE_EQ(terms.sum(), terms.start + terms.noise + terms.stale);
}

TEST(TheoremStepTest, Step_BalancesTheFirstTermsAndIsBelowOneOverL) {
  EXPECT_DOUBLE_EQ(TheoremStep(kInput, 1), std::sqrt(2 * 3.0 / (2.0 * 25)));
  EXPECT_DOUBLE_EQ(TheoremStep(kInput, 100), std::sqrt(2 * 3.0 / (2.0 * 25 * 100)));
  BoundInput flat = kInput;
  flat.block_gradient = 1e-3;
  EXPECT_DOUBLE_EQ(TheoremStep(flat, 1), 0.5);
  // Where the square root decides, start and noise are equal: the best step without staleness.
  BoundInput balanced = kInput;
  balanced.learning_rate = TheoremStep(kInput, 100);
  const BoundTerms terms = TheoremBound(balanced, 100);
  EXPECT_NEAR(terms.start, terms.noise, 1e-9 * terms.noise);
}

}  // namespace
}  // namespace penstock
