#include "data/record_files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

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

// Record i has i % 4 values 100 i, 100 i + 1, ... of `words`, and the label i.
class SequenceFilesTest : public ::testing::Test {
 protected:
  void Write(int64_t records, int64_t shard_bytes_max) {
    auto writer = RecordWriter::Create(files_, kDirectory, {{"label", "I32", {}}}, shard_bytes_max,
                                       {{"words", "I32"}});
    ASSERT_THAT(writer, IsOk());
    for (int32_t i = 0; i < records; ++i) {
      const std::vector<int32_t> words = WordsOf(i);
      ASSERT_THAT((*writer)->Add({Bytes(&i, 1), Bytes(words.data(), words.size())}), IsOk());
    }
    ASSERT_THAT((*writer)->AddFile("notes.txt", "made for a test"), IsOk());
    ASSERT_THAT((*writer)->Finish(), IsOk());
  }
  static std::vector<int32_t> WordsOf(int32_t record) {
    std::vector<int32_t> words(record % 4);
    for (size_t k = 0; k < words.size(); ++k) words[k] = 100 * record + static_cast<int32_t>(k);
    return words;
  }
  static absl::Span<const std::byte> Bytes(const int32_t* values, size_t count) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values), 4 * count);
  }
  absl::StatusOr<std::unique_ptr<RecordFiles>> Open() {
    return RecordFiles::Open(files_, kDirectory, {});
  }
  // Of the only shard, whose offsets come first: the index is left alone, so that only the shard's own checks help.
  void SetOffset(int64_t record, int64_t offset) {
    const std::string path = std::string(kDirectory) + "/00000.safetensors";
    std::string shard = files_.Content(path);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, shard.data(), 8);
    std::memcpy(shard.data() + 8 + header_bytes + 8 * record, &offset, 8);
    ASSERT_THAT(files_.WriteDurably(path, {shard}), IsOk());
  }

  MemoryFiles files_;
};

TEST_F(SequenceFilesTest, ReadSequence_FromAnyShard_IsTheRecords) {
  for (const int64_t shard_bytes : {60, 100'000}) {
    ASSERT_THAT(files_.RemoveAll(kDirectory), IsOk());
    Write(/*records=*/23, shard_bytes);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto records, Open());
    const int words = records->FindSequence("words");
    const int label = records->FindTensor("label");
    EXPECT_EQ(records->FindSequence("label"), -1);
    for (int32_t i = 0; i < 23; ++i) {
      const std::vector<int32_t> expected = WordsOf(i);
      ASSERT_EQ(records->LengthOf(words, i), static_cast<int64_t>(expected.size()));
      std::vector<int32_t> read(expected.size());
      ASSERT_THAT(
          records->ReadSequence(
              words, i, absl::MakeSpan(reinterpret_cast<std::byte*>(read.data()), 4 * read.size())),
          IsOk());
      EXPECT_EQ(read, expected);
      int32_t value = -1;
      ASSERT_THAT(records->Read(label, i, absl::MakeSpan(reinterpret_cast<std::byte*>(&value), 4)),
                  IsOk());
      EXPECT_EQ(value, i);
    }
  }
}

TEST_F(SequenceFilesTest, Open_OffsetsThatLeadElsewhere_AreRefused) {
  Write(8, 100'000);  // 12 values
  const auto expect_refused = [&](int64_t record, int64_t offset, const char* reason) {
    const std::string path = std::string(kDirectory) + "/00000.safetensors";
    const std::string good = files_.Content(path);
    SetOffset(record, offset);
    EXPECT_THAT(Open().status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(reason)));
    ASSERT_THAT(files_.WriteDurably(path, {good}), IsOk());
    EXPECT_THAT(Open(), IsOk());
  };
  expect_refused(0, 1, "words.offsets goes from 1 to 12, expected 0 to 12");
  expect_refused(8, 13, "words.offsets goes from 0 to 13");
  expect_refused(8, 11, "words.offsets goes from 0 to 11");
  expect_refused(3, 0, "words.offsets: record 2 goes from 1 to 0");
  expect_refused(3, -5, "record 2 goes from 1 to -5");
  expect_refused(3, int64_t{1} << 60, "record 2 goes from 1 to");
  expect_refused(3, std::numeric_limits<int64_t>::min(), "record 2 goes from");
}

TEST_F(SequenceFilesTest, ListedFile_IsCheckedByItsDigest) {
  Write(8, 100'000);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto records, Open());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string notes,
                                records->ReadListedFile(files_, "notes.txt", 1000));
  EXPECT_EQ(notes, "made for a test");
  EXPECT_THAT(records->ReadListedFile(files_, "other.txt", 1000).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("lists no file other.txt")));
  ASSERT_THAT(files_.WriteDurably("/records/notes.txt", {"changed"}), IsOk());
  EXPECT_THAT(records->ReadListedFile(files_, "notes.txt", 1000).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/records/notes.txt is not")));
  EXPECT_THAT(RecordFiles::Open(files_, kDirectory, {.checked_bytes_max = kAllBytes}).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/records/notes.txt is not")));
}

TEST_F(SequenceFilesTest, ShardWithoutAnyValue_IsNotWritten) {
  auto writer = RecordWriter::Create(files_, kDirectory, {}, 1000, {{"words", "I32"}});
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Add({absl::Span<const std::byte>()}), IsOk());
  EXPECT_THAT((*writer)->Finish().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has a value of words")));
}

}  // namespace
}  // namespace penstock
