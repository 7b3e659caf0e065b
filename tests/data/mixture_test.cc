#include "data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// By hand: of the third sample 1.5 and 0.75 and 0.75 are due, of which 1, 1 and 0 have been given.
TEST(Mixture, SmallWeights_GiveTheOrderByHand) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Mixture mixture, Mixture::Create({2.0, 1.0, 1.0}));
  const std::vector<int> sources = {0, 1, 2, 0, 0, 1, 2, 0};
  std::vector<int64_t> given(3, 0);
  for (size_t sample = 0; sample < sources.size(); ++sample) {
    const Mixture::Place place = mixture.PlaceOf(static_cast<int64_t>(sample));
    EXPECT_EQ(place.source, sources[sample]) << sample;
    EXPECT_EQ(place.sample, given[place.source]++);
  }
}

TEST(Mixture, EverySource_GivesItsSamplesInOrderAndItsShareOfAnyStretch) {
  const std::vector<double> weights = {0.7, 0.2, 0.09, 0.01};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Mixture mixture, Mixture::Create(weights));
  std::vector<int64_t> given(4, 0);
  for (int64_t sample = 0; sample < 20'000; ++sample) {
    const Mixture::Place place = mixture.PlaceOf(sample);
    ASSERT_EQ(place.sample, given[place.source]++);
    for (int source = 0; source < 4; ++source) {
      const double due = weights[source] * static_cast<double>(sample + 1);
      // A sample of each source may be due, and in each period of 4,096 the last one is rounded.
      ASSERT_LT(std::abs(static_cast<double>(given[source]) - due), 4.0 + sample / 4096.0);
    }
  }
  for (const int64_t end : {0, 1, 4095, 4096, 4097, 20'000}) {
    int64_t all = 0;
    for (int source = 0; source < 4; ++source) all += mixture.SamplesBelow(end, source);
    EXPECT_EQ(all, end);
  }
  for (int source = 0; source < 4; ++source) {
    EXPECT_EQ(mixture.SamplesBelow(20'000, source), given[source]);
  }
}

TEST(Mixture, WeightsThatGiveNothing_AreRefused) {
  for (const double weight : {0.0, -1.0, 1e-9, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(
        Mixture::Create({1.0, weight}),
        StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("weight"), HasSubstr("4096"))))
        << weight;
  }
}

}  // namespace
}  // namespace penstock
