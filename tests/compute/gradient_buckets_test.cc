#include "compute/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "model/families/gpt.h"

namespace penstock {
namespace {

using ::testing::SizeIs;

ModelGraph GptOf(bool tied, int layers) {
  GptConfig config;
  config.layers = layers;
  config.width = 10;
  config.heads = 2;
  config.context = 3;
  config.vocabulary = 7;
  config.tied_head = tied;
  return *BuildGpt(config);
}

std::vector<GradientBucket> BucketsOf(const ModelGraph& model, LayerRange layers,
                                      int64_t bytes_min) {
  return GradientBucketsOf(ParameterArena(model, layers), layers, bytes_min);
}

// The embeddings have 112 floats, and the half of a block behind them 496.
TEST(GradientBuckets, LayersFromTheLastToTheFirst_UntilABucketIsLargeEnough) {
  const ModelGraph model = GptOf(false, 1);
  const std::vector<GradientBucket> two = BucketsOf(model, {0, 2}, 4 * 112);
  ASSERT_THAT(two, SizeIs(2));
  EXPECT_EQ(two[0].first, 112);
  EXPECT_EQ(two[0].count, 496);
  EXPECT_EQ(two[0].layer, 1);
  EXPECT_EQ(two[1].first, 0);
  EXPECT_EQ(two[1].count, 112);
  EXPECT_EQ(two[1].layer, 0);
  // The embeddings alone would be too small: they go with what lies behind them.
  const std::vector<GradientBucket> one = BucketsOf(model, {0, 2}, 4 * 113);
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_EQ(one[0].first, 0);
  EXPECT_EQ(one[0].count, 608);
  EXPECT_EQ(one[0].layer, 0);
}

TEST(GradientBuckets, AnySize_AllGradientsOnce_WholeOneAfterTheOther) {
  for (const bool tied : {false, true}) {
    const ModelGraph model = GptOf(tied, 6);
    for (int first = 0; first < model.size(); ++first) {
      for (int count = 1; first + count <= model.size(); ++count) {
        for (const int64_t bytes_min :
             {int64_t{1}, int64_t{1000}, int64_t{5000}, kBucketBytesMin}) {
          const LayerRange layers = {first, count};
          const ParameterArena arena(model, layers);
          const std::vector<GradientBucket> buckets = GradientBucketsOf(arena, layers, bytes_min);
          ASSERT_FALSE(buckets.empty());
          EXPECT_LE(static_cast<int64_t>(buckets.size()), kBucketsMax);
          std::set<int64_t> ends = {0};
          int64_t floats = 0;
          for (size_t i = 0; i < buckets.size(); ++i) {
            floats += buckets[i].count;
            ends.insert(buckets[i].first + buckets[i].count);
            EXPECT_TRUE(i == 0 || buckets[i].layer <= buckets[i - 1].layer);
            EXPECT_EQ(buckets[i].first % 16, 0);
          }
          EXPECT_EQ(floats, arena.gradient_count());
          EXPECT_EQ(*ends.rbegin(), arena.gradient_count());
          for (const GradientBucket& bucket : buckets) EXPECT_EQ(ends.count(bucket.first), 1u);
          // No gradient is in a bucket that is whole before its layer is.
          for (int layer = 0; layer < count; ++layer) {
            for (const int64_t offset : arena.gradient_offsets(layer)) {
              for (const GradientBucket& bucket : buckets) {
                const bool inside = offset >= bucket.first && offset < bucket.first + bucket.count;
                EXPECT_TRUE(!inside || bucket.layer <= layer);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
