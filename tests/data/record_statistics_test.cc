#include "data/record_statistics.h"

#include <gtest/gtest.h>

#include <cstring>

#include "data/record_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// Records 0 to 99: pixels i and i + 2, label i % 4, and a tensor of a type that is not looked at.
class RecordStatisticsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<RecordWriter>> writer = RecordWriter::Create(
        files_, "/records", {{"image", "U8", {2}}, {"label", "I32", {}}, {"wide", "F64", {}}}, 100);
    ASSERT_THAT(writer, IsOk());
    for (int32_t i = 0; i < 100; ++i) {
      const std::byte pixels[] = {static_cast<std::byte>(i), static_cast<std::byte>(i + 2)};
      const int32_t label = i % 4;
      std::byte bytes[4];
      std::memcpy(bytes, &label, 4);
      const std::byte wide[8] = {};
      ASSERT_THAT((*writer)->Add({absl::MakeConstSpan(pixels), absl::MakeConstSpan(bytes),
                                  absl::MakeConstSpan(wide)}),
                  IsOk());
    }
    ASSERT_THAT((*writer)->Finish(), IsOk());
    auto records = RecordFiles::Open(files_, "/records", {});
    ASSERT_THAT(records, IsOk());
    records_ = *std::move(records);
  }

  MemoryFiles files_;
  std::unique_ptr<RecordFiles> records_;
};

TEST_F(RecordStatisticsTest, OfAllRecords_AreExact) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordStatistics statistics,
                                StatisticsOf(*records_, 1000, nullptr));
  EXPECT_EQ(statistics.records, 100);
  const TensorStatistics& image = statistics.tensors[0];
  EXPECT_EQ(image.min, 0);
  EXPECT_EQ(image.max, 101);
  EXPECT_DOUBLE_EQ(image.mean, 50.5);
  // The variance of 0 to 99, (100² - 1) / 12, and of ±1 around it.
  EXPECT_NEAR(image.deviation * image.deviation, 9999.0 / 12 + 1, 1e-9);
  EXPECT_TRUE(image.counts.empty());
  EXPECT_EQ(statistics.tensors[1].counts,
            (std::map<int64_t, int64_t>{{0, 25}, {1, 25}, {2, 25}, {3, 25}}));
  EXPECT_FALSE(statistics.tensors[2].known);
}

TEST_F(RecordStatisticsTest, OfSomeRecords_AreSpreadOverAll) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordStatistics statistics,
                                StatisticsOf(*records_, 10, nullptr));
  EXPECT_EQ(statistics.records, 10);
  EXPECT_EQ(statistics.tensors[0].min, 0);
  EXPECT_EQ(statistics.tensors[0].max, 92);
}

}  // namespace
}  // namespace penstock
