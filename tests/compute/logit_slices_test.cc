// How a head on a GPU cuts its logits.
#include "compute/cuda/logit_slices.h"

#include <gtest/gtest.h>

namespace penstock::cuda {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(LogitSlices, LogitsOfHalfACache_AreOneSlice) {
  EXPECT_EQ(LogitSliceRows(256, 100'000, 50 * kMiB), 256);
  EXPECT_EQ(LogitSliceRows(100, 256 << 10, 50 * kMiB), 100);
}

// GPT-2 in bf16, 16 samples of 1024 tokens, and a vocabulary of 128,256, on an H200: 60 MiB.
TEST(LogitSlices, LargeVocabularies_TakeHalfOfTheCache) {
  EXPECT_EQ(LogitSliceRows(16'384, 2 * 50'304, 60 * kMiB), 256);
  EXPECT_EQ(LogitSliceRows(8'192, 2 * 128'256, 60 * kMiB), 128) << "122 fit, but not whole tiles";
}

TEST(LogitSlices, RowsThatCannotBeCutIntoEqualSlices_StayTogether) {
  EXPECT_EQ(LogitSliceRows(16'385, 2 * 50'304, 60 * kMiB), 16'385);
  EXPECT_EQ(LogitSliceRows(700, 2 * 50'304, 60 * kMiB), 700);
}

TEST(LogitSlices, OfManySizes_AreEqualAndFit) {
  for (int64_t rows = 64; rows <= 8'192; rows += 64) {
    for (int64_t row_bytes = 512; row_bytes <= 600'000; row_bytes = row_bytes * 3 / 2) {
      for (const int64_t cache : {4 * kMiB, 60 * kMiB, 126 * kMiB}) {
        const int64_t slice = LogitSliceRows(rows, row_bytes, cache);
        ASSERT_EQ(rows % slice, 0) << rows << ", " << row_bytes;
        if (slice == rows) continue;
        ASSERT_EQ(slice % kSliceRowsMultiple, 0);
        ASSERT_TRUE(slice == kSliceRowsMultiple || slice * row_bytes <= cache / 2);
        ASSERT_GT(rows * row_bytes, cache / 2);
      }
    }
  }
}

}  // namespace
}  // namespace penstock::cuda
