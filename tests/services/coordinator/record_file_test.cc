#include "services/coordinator/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "services/documents/step_record_text.h"
#include "tests/support/full_disk.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class RecordFileTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() / "metrics"; }
  void Put(const std::string& text) { std::ofstream(path(), std::ios::binary) << text; }
  std::string Text() const {
    std::ifstream file(path(), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // Opens the file before `step` and closes it again.
  std::string Kept(RecordLayout layout, int64_t step) {
    EXPECT_THAT(RecordFile::Open(path(), layout, step, OpenLockFile), IsOk());
    return Text();
  }

  TestDirectory directory_;
};

TEST_F(RecordFileTest, JsonLines_StayUpToTheFirstStepThatIsWritten) {
  const std::string two = "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.0}\n";
  Put(two + "{\"step\":3,\"loss\":1.0}\n{\"step\":4,\"lo");
  EXPECT_EQ(Kept(RecordLayout::kJsonLines, 3), two);
  EXPECT_EQ(Kept(RecordLayout::kJsonLines, 1), "");
}

TEST_F(RecordFileTest, TornLine_IsCutOff) {
  Put("{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"lo");
  EXPECT_EQ(Kept(RecordLayout::kJsonLines, 10), "{\"step\":1,\"loss\":2.0}\n");
  Put("{\"step\":1,\"loss\":2.0}\nnot a record\n{\"step\":2,\"loss\":2.0}\n");
  EXPECT_EQ(Kept(RecordLayout::kJsonLines, 10), "{\"step\":1,\"loss\":2.0}\n");
}

TEST_F(RecordFileTest, CsvHeader_Stays) {
  Put("step,loss\n1,2.0\n2,1.0\n3");
  EXPECT_EQ(Kept(RecordLayout::kCsv, 2), "step,loss\n1,2.0\n");
  EXPECT_EQ(Kept(RecordLayout::kCsv, 1), "step,loss\n");
}

TEST_F(RecordFileTest, LongFile_IsReadInPieces) {
  const std::string rest = ",\"loss\":1.0" + std::string(80, ' ') + "}\n";
  std::string lines;
  for (int64_t step = 1; step <= 30'000; ++step) {
    lines += "{\"step\":" + std::to_string(step) + rest;
  }
  ASSERT_GT(lines.size(), size_t{2} << 20);
  Put(lines);
  EXPECT_EQ(Kept(RecordLayout::kJsonLines, 30'001).size(), lines.size());
  const std::string half = Kept(RecordLayout::kJsonLines, 15'001);
  EXPECT_EQ(half, lines.substr(0, half.size()));
  EXPECT_THAT(half.substr(half.size() - 200), HasSubstr("{\"step\":15000,"));
}

TEST_F(RecordFileTest, Events_StayUpToTheFirstStepThatIsWritten) {
  std::string two = TensorboardHeader(1.0);
  for (int64_t step = 1; step <= 2; ++step) two += TensorboardRecord({.step = step});
  const std::string third = TensorboardRecord({.step = 3});
  Put(two + third);
  EXPECT_EQ(Kept(RecordLayout::kTensorboard, 3), two);
  Put(two + third.substr(0, third.size() - 1));
  EXPECT_EQ(Kept(RecordLayout::kTensorboard, 4), two) << "the end is torn";
  Put("something else that is longer than a head");
  EXPECT_EQ(Kept(RecordLayout::kTensorboard, 4), "");
}

TEST_F(RecordFileTest, FullDisk_LeavesWholeRecordsAndIsTriedAgain) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      RecordFile file, RecordFile::Open(path(), RecordLayout::kJsonLines, 1, OpenLockFile));
  ASSERT_THAT(file.Append("{\"step\":1}\n"), IsOk());
  absl::Status failed;
  {
    FullDisk disk(15);
    failed = file.Append("{\"step\":2}\n");
  }
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(Text(), "{\"step\":1}\n");
  EXPECT_THAT(file.Append("{\"step\":2}\n"), IsOk());
  EXPECT_EQ(Text(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(RecordFileTest, SecondWriter_IsRefused) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordFile file,
                                RecordFile::Open(path(), RecordLayout::kCsv, 1, OpenLockFile));
  const auto second = RecordFile::Open(path(), RecordLayout::kCsv, 1, OpenLockFile);
  EXPECT_THAT(second.status().ToString(), HasSubstr("another process"));
}

}  // namespace
}  // namespace penstock
