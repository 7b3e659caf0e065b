#include "data/length_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace penstock {
namespace {

// Record i of n is the (n - 1 - i)-th by length, so that records and ranks differ.
std::vector<int64_t> ByLength(int64_t records) {
  std::vector<int64_t> by_length(records);
  std::iota(by_length.rbegin(), by_length.rend(), 0);
  return by_length;
}
int64_t RankOf(int64_t record, int64_t records) { return records - 1 - record; }

std::vector<int64_t> Records(const LengthBuckets& order, int64_t first, int64_t samples) {
  LengthBuckets::Reader reader(order);
  std::vector<int64_t> records;
  for (int64_t i = 0; i < samples; ++i) records.push_back(reader.RecordOf(first + i));
  return records;
}

struct Sizes {
  int64_t records, batch, buckets;
};
std::vector<Sizes> ManySizes() {
  std::vector<Sizes> sizes;
  for (const int64_t records : {1, 2, 3, 7, 16, 64, 65, 127, 1000}) {
    for (const int64_t batch : {1, 2, 3, 8, 64}) {
      for (const int64_t buckets : {1, 2, 5, 16, 1000}) {
        if (batch <= records) sizes.push_back({records, batch, buckets});
      }
    }
  }
  return sizes;
}

TEST(LengthBuckets, EpochOfAnySize_HasEachRecordAtMostOnceAndAllButTheRemainder) {
  for (const Sizes& s : ManySizes()) {
    const LengthBuckets order(ByLength(s.records), {s.batch, s.buckets, /*seed=*/7});
    EXPECT_EQ(order.samples_per_epoch(), s.records / s.batch * s.batch);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<int64_t> records =
          Records(order, epoch * order.samples_per_epoch(), order.samples_per_epoch());
      const std::set<int64_t> different(records.begin(), records.end());
      EXPECT_EQ(different.size(), records.size())
          << s.records << " " << s.batch << " " << s.buckets;
      EXPECT_TRUE(*different.begin() >= 0 && *different.rbegin() < s.records);
    }
  }
}

// The ranks of a batch lie within one bucket; what an epoch leaves out widens it by less than a batch.
TEST(LengthBuckets, BatchOfAnySize_IsOfOneBucket) {
  for (const Sizes& s : ManySizes()) {
    const LengthBuckets order(ByLength(s.records), {s.batch, s.buckets, /*seed=*/7});
    const int64_t batches = order.batches_per_epoch();
    const int64_t bucket_batches = (batches + order.buckets() - 1) / order.buckets();
    for (int64_t batch = 0; batch < 2 * batches; ++batch) {
      std::vector<int64_t> ranks;
      for (const int64_t record : Records(order, batch * s.batch, s.batch)) {
        ranks.push_back(RankOf(record, s.records));
      }
      const auto [first, last] = std::minmax_element(ranks.begin(), ranks.end());
      EXPECT_LT(*last - *first, (bucket_batches + 1) * s.batch)
          << s.records << " " << s.batch << " " << s.buckets;
    }
  }
}

TEST(LengthBuckets, Buckets_MakeBatchesNarrower) {
  const auto width = [](int64_t buckets) {
    const LengthBuckets order(ByLength(1024), {.batch = 8, .buckets = buckets, .seed = 3});
    int64_t sum = 0;
    for (int64_t batch = 0; batch < order.batches_per_epoch(); ++batch) {
      const std::vector<int64_t> records = Records(order, 8 * batch, 8);
      const auto [first, last] = std::minmax_element(records.begin(), records.end());
      sum += *last - *first;
    }
    return static_cast<double>(sum) / static_cast<double>(order.batches_per_epoch());
  };
  // Of 8 records of a range of n, the outer ones are 7/9 n apart on average.
  EXPECT_NEAR(width(1), 7.0 / 9.0 * 1024, 60);
  EXPECT_NEAR(width(16), 7.0 / 9.0 * 64, 4);
}

TEST(LengthBuckets, AnySplitIntoReads_IsTheSame) {
  const LengthBuckets order(ByLength(100), {.batch = 8, .buckets = 3, .seed = 5});
  const std::vector<int64_t> whole = Records(order, 0, 300);
  for (int64_t i = 299; i >= 0; --i) EXPECT_EQ(Records(order, i, 1)[0], whole[i]) << i;
}

TEST(LengthBuckets, Epochs_DifferInBatchesTheirOrderAndWhatTheyLeaveOut) {
  const LengthBuckets order(ByLength(103), {.batch = 10, .buckets = 2, .seed = 5});
  std::set<std::vector<int64_t>> batches;
  std::set<int64_t> left_out;
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    std::vector<int64_t> records = Records(order, epoch * 100, 100);
    std::vector<int64_t> first(records.begin(), records.begin() + 10);
    std::sort(first.begin(), first.end());
    batches.insert(first);
    std::sort(records.begin(), records.end());
    for (int64_t record = 0; record < 103; ++record) {
      if (!std::binary_search(records.begin(), records.end(), record)) left_out.insert(record);
    }
  }
  EXPECT_EQ(batches.size(), 50u);
  EXPECT_GT(left_out.size(), 50u);
  EXPECT_NE(Records(order, 0, 100),
            Records(LengthBuckets(ByLength(103), {.batch = 10, .buckets = 2, .seed = 6}), 0, 100));
}

// Every record is about as often in every batch of an epoch as any other.
TEST(LengthBuckets, Place_OfARecord_IsUniform) {
  constexpr int64_t kEpochs = 2000;
  const LengthBuckets order(ByLength(64), {.batch = 4, .buckets = 4, .seed = 5});
  std::vector<int64_t> in_batch(16, 0);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> records = Records(order, epoch * 64, 64);
    const auto place = std::find(records.begin(), records.end(), 17) - records.begin();
    ++in_batch[place / 4];
  }
  double chi_squared = 0.0;
  for (const int64_t count : in_batch) {
    const double expected = kEpochs / 16.0;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 37.7);  // 15 degrees of freedom: one in a thousand is above
}

}  // namespace
}  // namespace penstock
