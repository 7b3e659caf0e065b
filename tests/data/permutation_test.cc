#include "data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

namespace penstock {
namespace {

std::vector<int64_t> All(const Permutation& permutation, int64_t size) {
  std::vector<int64_t> all;
  for (int64_t place = 0; place < size; ++place) all.push_back(permutation.At(place));
  return all;
}

TEST(Permutation, OfAnySize_HasEveryNumberOnce) {
  std::vector<int64_t> sizes = {1000, 1023, 1024, 1025, 4097, 50'000, 65'537};
  for (int64_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const int64_t size : sizes) {
    for (uint64_t number = 0; number < 3; ++number) {
      const std::vector<int64_t> all = All(Permutation(size, 7, number), size);
      const std::set<int64_t> distinct(all.begin(), all.end());
      ASSERT_EQ(static_cast<int64_t>(distinct.size()), size);
      ASSERT_EQ(*distinct.begin(), 0);
      ASSERT_EQ(*distinct.rbegin(), size - 1);
    }
  }
}

TEST(Permutation, OfAnotherSeedOrNumber_IsAnother) {
  const std::vector<int64_t> all = All(Permutation(1000, 1, 0), 1000);
  EXPECT_EQ(All(Permutation(1000, 1, 0), 1000), all);
  // Two independent orders of many numbers agree at one place on average.
  for (const Permutation& other :
       {Permutation(1000, 1, 1), Permutation(1000, 2, 0), Permutation(1000, 1, 1'000'000)}) {
    int same = 0;
    for (int64_t place = 0; place < 1000; ++place) same += other.At(place) == all[place];
    EXPECT_LT(same, 10);
  }
}

TEST(Permutation, OfTheLargestSizes_StaysBelowThem) {
  const int64_t size = (int64_t{1} << 40) + 12'345;
  const Permutation permutation(size, 3, 5);
  std::set<int64_t> seen;
  for (int64_t place = size - 1000; place < size; ++place) {
    const int64_t value = permutation.At(place);
    EXPECT_TRUE(value >= 0 && value < size);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

// Over many permutations each of the 24 orders of four numbers comes equally often: chi-squared with 23 degrees of
// freedom is above 50 in one of a thousand tests.
TEST(Permutation, OfFewNumbers_AllOrdersAreEquallyLikely) {
  constexpr int kPermutations = 24'000;
  std::map<std::vector<int64_t>, int> counts;
  for (int number = 0; number < kPermutations; ++number) {
    ++counts[All(Permutation(4, 11, number), 4)];
  }
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared = 0.0;
  for (const auto& [order, count] : counts) chi_squared += std::pow(count - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi_squared, 50.0);
}

// Neighbours are as far from each other as two random numbers, size / 3 on average, and go up as often as down.
TEST(Permutation, OfManyNumbers_NeighboursAreUnrelated) {
  constexpr int64_t kSize = 100'000;
  const std::vector<int64_t> all = All(Permutation(kSize, 5, 0), kSize);
  double distance = 0.0;
  int64_t rises = 0;
  for (int64_t place = 1; place < kSize; ++place) {
    distance += static_cast<double>(std::abs(all[place] - all[place - 1]));
    rises += all[place] > all[place - 1];
  }
  EXPECT_NEAR(distance / kSize, kSize / 3.0, kSize * 0.005);
  EXPECT_NEAR(static_cast<double>(rises), kSize / 2.0, kSize * 0.005);
}

}  // namespace
}  // namespace penstock
