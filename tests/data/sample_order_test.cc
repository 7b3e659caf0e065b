#include "data/sample_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace penstock {
namespace {

std::vector<int64_t> Epoch(SampleOrder order, int64_t epoch, int64_t records) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < records; ++i) all.push_back(order.RecordOf(epoch * records + i));
  return all;
}

size_t Distinct(const std::vector<int64_t>& values) {
  return std::set<int64_t>(values.begin(), values.end()).size();
}

TEST(SampleOrder, Shuffled_HasEveryRecordOnceInEveryEpoch) {
  const SampleOrder order(OrderKind::kShuffled, 101, 9);
  std::set<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<int64_t> all = Epoch(order, epoch, 101);
    EXPECT_EQ(Distinct(all), 101u);
    epochs.insert(all);
  }
  EXPECT_EQ(epochs.size(), 20u);
}

TEST(SampleOrder, Shuffled_IsTheSameFromAnyBeginning) {
  SampleOrder ascending(OrderKind::kShuffled, 10, 9);
  std::vector<int64_t> all;
  for (int64_t sample = 0; sample < 50; ++sample) all.push_back(ascending.RecordOf(sample));
  for (int64_t sample = 49; sample >= 0; --sample) {
    SampleOrder resumed(OrderKind::kShuffled, 10, 9);
    EXPECT_EQ(resumed.RecordOf(sample), all[sample]);
    EXPECT_EQ(ascending.RecordOf(sample), all[sample]);
  }
}

TEST(SampleOrder, Sequential_GoesRound) {
  EXPECT_EQ(Epoch(SampleOrder(OrderKind::kSequential, 3, 9), 4, 3),
            (std::vector<int64_t>{0, 1, 2}));
}

TEST(SampleOrder, Random_HasRecordsTwiceAndReachesAll) {
  const SampleOrder order(OrderKind::kRandom, 50, 9);
  // Of 50 draws about 63 % are distinct.
  EXPECT_LT(Distinct(Epoch(order, 0, 50)), 45u);
  EXPECT_EQ(Distinct(Epoch(order, 0, 1000)), 50u);
  EXPECT_NE(Epoch(order, 0, 50), Epoch(SampleOrder(OrderKind::kRandom, 50, 10), 0, 50));
}

}  // namespace
}  // namespace penstock
