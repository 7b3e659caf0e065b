#include "data/record_files.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/sha256.h"
#include "data/record_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDirectory[] = "/records";
constexpr int64_t kAllBytes = int64_t{1} << 40;

// Record i has the pixels i, i + 1 and the label 10 i.
class RecordFilesTest : public ::testing::Test {
 protected:
  void Write(int64_t records, int64_t shard_bytes_max) {
    absl::StatusOr<std::unique_ptr<RecordWriter>> writer = RecordWriter::Create(
        files_, kDirectory, {{"image", "U8", {2, 1, 1}}, {"label", "I32", {}}}, shard_bytes_max);
    ASSERT_THAT(writer, IsOk());
    for (int32_t i = 0; i < records; ++i) {
      const std::byte pixels[] = {static_cast<std::byte>(i), static_cast<std::byte>(i + 1)};
      const int32_t label = 10 * i;
      std::byte bytes[4];
      std::memcpy(bytes, &label, 4);
      ASSERT_THAT((*writer)->Add({absl::MakeConstSpan(pixels), absl::MakeConstSpan(bytes)}),
                  IsOk());
    }
    ASSERT_THAT((*writer)->Finish(), IsOk());
  }
  absl::StatusOr<std::unique_ptr<RecordFiles>> Open(const RecordFilesOptions& options = {
                                                        .checked_bytes_max = kAllBytes}) {
    return RecordFiles::Open(files_, kDirectory, options);
  }

  MemoryFiles files_;
};

TEST_F(RecordFilesTest, Read_FromAnyShard_IsTheRecord) {
  Write(/*records=*/11, /*shard_bytes_max=*/24);  // four records of six bytes
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto records, Open());
  EXPECT_EQ(records->index().shards.size(), 3u);
  ASSERT_EQ(records->records(), 11);
  const int image = records->FindTensor("image");
  const int label = records->FindTensor("label");
  EXPECT_EQ(records->FindTensor("text"), -1);
  for (int32_t i = 0; i < 11; ++i) {
    std::byte pixels[2];
    ASSERT_THAT(records->Read(image, i, pixels), IsOk());
    EXPECT_EQ(static_cast<int>(pixels[1]), i + 1);
    int32_t value = -1;
    ASSERT_THAT(records->Read(label, i, absl::MakeSpan(reinterpret_cast<std::byte*>(&value), 4)),
                IsOk());
    EXPECT_EQ(value, 10 * i);
  }
}

TEST_F(RecordFilesTest, Create_WhereRecordsAre_LeavesThem) {
  Write(3, 1000);
  EXPECT_THAT(RecordWriter::Create(files_, kDirectory, {{"a", "U8", {}}}, 1000).status(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/records/index.json")));
}

TEST_F(RecordFilesTest, Open_AnotherIndex_NamesBothDigests) {
  Write(3, 1000);
  const std::string digest = Sha256Hex(files_.Content("/records/index.json"));
  EXPECT_THAT(Open({.sha256 = digest}), IsOk());
  EXPECT_THAT(Open({.sha256 = std::string(64, 'a')}).status(),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(digest), HasSubstr("aaaa"))));
}

TEST_F(RecordFilesTest, Open_ChangedValues_IsFoundIfContentsAreChecked) {
  Write(3, 1000);
  files_.Content("/records/00000.safetensors").back() ^= 1;
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("00000.safetensors is not the file of the index")));
  EXPECT_THAT(Open({.checked_bytes_max = 10}), IsOk());
}

TEST_F(RecordFilesTest, Open_ShardOfOtherRecords_IsNamedWithoutReadingIt) {
  Write(3, 1000);
  std::string& index = files_.Content("/records/index.json");
  const size_t place = index.find("\"records\": 3");
  ASSERT_NE(place, std::string::npos);
  index.replace(place, 12, "\"records\": 4");
  EXPECT_THAT(Open({}).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("00000.safetensors"), HasSubstr("image is U8 [3, 2, 1, 1]"),
                             HasSubstr("U8 [4, 2, 1, 1]"))));
}

TEST_F(RecordFilesTest, Open_CutShard_IsNamed) {
  Write(3, 1000);
  files_.Content("/records/00000.safetensors").pop_back();
  EXPECT_THAT(Open({}).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("00000.safetensors")));
}

TEST_F(RecordFilesTest, Open_NoIndexOrNoShard_IsNotFound) {
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/records/index.json")));
  Write(3, 1000);
  ASSERT_THAT(files_.RemoveAll("/records/00000.safetensors"), IsOk());
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("00000.safetensors")));
}

TEST_F(RecordFilesTest, Open_InterruptedCheck_Ends) {
  Write(3, 1000);
  EXPECT_THAT(Open({.checked_bytes_max = kAllBytes,
                    .progress =
                        [](int64_t done, int64_t all) {
                          EXPECT_EQ(done, all);
                          return absl::CancelledError("enough");
                        }})
                  .status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("enough")));
}

}  // namespace
}  // namespace penstock
