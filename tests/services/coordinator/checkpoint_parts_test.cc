// Files of checkpoints that come to the coordinator part by part, and what a worker may not do with them.
#include "services/coordinator/checkpoint_parts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/confined_files.h"
#include "checkpoint/manifest.h"
#include "services/rpc/data_part.h"
#include "services/rpc/limits.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kStaging[] = "/step-000000000007.tmp-job-1";
constexpr char kCommitted[] = "/step-000000000007";
constexpr int64_t kBytesMax = 1 << 20;

v1::WritePartRequest Part(const std::string& path, int64_t size_bytes, int64_t offset,
                          const std::string& bytes) {
  v1::WritePartRequest request;
  request.set_path(path);
  request.set_size_bytes(size_bytes);
  request.set_offset(offset);
  SetPart(bytes, request);
  return request;
}

class CheckpointPartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(files_, ConfinedFiles::Open({root_}));
    parts_ = std::make_unique<CheckpointParts>(*files_);
  }

  // What is held then.
  absl::StatusOr<int64_t> Write(const v1::WritePartRequest& request) {
    absl::StatusOr<v1::WritePartResponse> response = parts_->Write(request);
    if (!response.ok()) return response.status();
    return response->held_bytes();
  }
  absl::StatusOr<std::string> Read(const std::string& path, int64_t offset, int64_t bytes_max) {
    v1::ReadPartRequest request;
    request.set_path(path);
    request.set_offset(offset);
    request.set_bytes_max(bytes_max);
    absl::StatusOr<v1::ReadPartResponse> response = parts_->Read(request);
    if (!response.ok()) return response.status();
    EXPECT_THAT(CheckPart(*response), IsOk());
    return response->bytes();
  }

  const TestDirectory directory_;
  const std::string root_ = directory_.path() / "root";
  const std::string path_ = root_ + kStaging + "/layer-000-any.safetensors";
  std::unique_ptr<ConfinedFiles> files_;
  std::unique_ptr<CheckpointParts> parts_;
};

TEST_F(CheckpointPartsTest, FileInParts_HasItsNameOnceItIsWhole) {
  EXPECT_THAT(Write(Part(path_, 6, 0, "abc")), IsOkAndHolds(3));
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_THAT(Write(Part(path_, 6, 3, "def")), IsOkAndHolds(6));
  EXPECT_THAT(files_->Read(path_, kBytesMax), IsOkAndHolds("abcdef"));
  EXPECT_FALSE(fs::exists(path_ + ".part"));
  EXPECT_THAT(Read(path_, 0, 4), IsOkAndHolds("abcd"));
  EXPECT_THAT(Read(path_, 4, 100), IsOkAndHolds("ef"));
  EXPECT_THAT(Read(path_, 7, 1), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("6 bytes")));
}

TEST_F(CheckpointPartsTest, EmptyFile_IsWholeAtOnce) {
  EXPECT_THAT(Write(Part(path_, 0, 0, "")), IsOkAndHolds(0));
  EXPECT_THAT(Read(path_, 0, 1), IsOkAndHolds(""));
}

TEST_F(CheckpointPartsTest, PartsThatComeAgainOrTooEarly_ChangeNothingAndAreToldWhereToGoOn) {
  EXPECT_THAT(Write(Part(path_, 9, 3, "def")), IsOkAndHolds(0)) << "nothing is there";
  EXPECT_THAT(Write(Part(path_, 9, 0, "abc")), IsOkAndHolds(3));
  EXPECT_THAT(Write(Part(path_, 9, 6, "ghi")), IsOkAndHolds(3)) << "a gap";
  EXPECT_THAT(Write(Part(path_, 9, 3, "def")), IsOkAndHolds(6));
  EXPECT_THAT(Write(Part(path_, 9, 3, "def")), IsOkAndHolds(6)) << "again";
  EXPECT_THAT(Write(Part(path_, 9, 6, "ghi")), IsOkAndHolds(9));
  EXPECT_THAT(Write(Part(path_, 9, 6, "ghi")), IsOkAndHolds(9)) << "the last one again";
  EXPECT_THAT(files_->Read(path_, kBytesMax), IsOkAndHolds("abcdefghi"));
}

TEST_F(CheckpointPartsTest, FirstPart_BeginsTheFileOnceMore) {
  EXPECT_THAT(Write(Part(path_, 6, 0, "abc")), IsOkAndHolds(3));
  EXPECT_THAT(Write(Part(path_, 4, 0, "xy")), IsOkAndHolds(2));
  EXPECT_THAT(Write(Part(path_, 4, 2, "z!")), IsOkAndHolds(4));
  EXPECT_THAT(files_->Read(path_, kBytesMax), IsOkAndHolds("xyz!"));
}

TEST_F(CheckpointPartsTest, FirstPartThatComesAgainLate_LeavesAFileThatIsWhole) {
  EXPECT_THAT(Write(Part(path_, 6, 0, "abc")), IsOkAndHolds(3));
  EXPECT_THAT(Write(Part(path_, 6, 3, "def")), IsOkAndHolds(6));
  EXPECT_THAT(Write(Part(path_, 6, 0, "abc")), IsOkAndHolds(6));
  EXPECT_THAT(files_->Read(path_, kBytesMax), IsOkAndHolds("abcdef"));
  EXPECT_FALSE(fs::exists(path_ + ".part"));
}

TEST_F(CheckpointPartsTest, FirstPartThatComesAfterTheCommit_DoesNotBringTheStagingDirectoryBack) {
  const auto commit = [&](int64_t epoch) {
    const Manifest manifest = {.job_id = "job", .epoch = epoch, .step = 7};
    fs::create_directories(root_ + kCommitted);
    ASSERT_THAT(
        files_->WriteDurably(root_ + kCommitted + "/MANIFEST.json", {SerializeManifest(manifest)}),
        IsOk());
  };
  commit(1);
  EXPECT_THAT(Write(Part(path_, 6, 0, "abc")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is committed")));
  EXPECT_THAT(Write(Part(path_, 6, 3, "def")), IsOkAndHolds(0)) << "a later part";
  EXPECT_FALSE(fs::exists(root_ + kStaging));
  commit(2);
  EXPECT_THAT(Write(Part(path_, 6, 0, "abc")), IsOkAndHolds(3)) << "that of another attempt";
}

TEST_F(CheckpointPartsTest, CoordinatorThatIsStartedAgain_GoesOnWhereTheDiskEnds) {
  EXPECT_THAT(Write(Part(path_, 6, 0, "abc")), IsOkAndHolds(3));
  parts_ = std::make_unique<CheckpointParts>(*files_);
  EXPECT_THAT(Write(Part(path_, 6, 3, "def")), IsOkAndHolds(6));
  parts_ = std::make_unique<CheckpointParts>(*files_);
  EXPECT_THAT(Write(Part(path_, 6, 3, "def")), IsOkAndHolds(6)) << "the answer was lost";
}

TEST_F(CheckpointPartsTest, CoordinatorThatEndedBeforeAFileHadItsName_GivesItTheName) {
  fs::create_directories(root_ + kStaging);
  ASSERT_THAT(files_->WriteDurably(path_ + ".part", {"abcdef"}), IsOk());
  EXPECT_THAT(Write(Part(path_, 6, 3, "def")), IsOkAndHolds(6));
  EXPECT_THAT(files_->Read(path_, kBytesMax), IsOkAndHolds("abcdef"));
}

TEST_F(CheckpointPartsTest, RemainsOfALargerFile_AreNotTakenForThisOne) {
  fs::create_directories(root_ + kStaging);
  ASSERT_THAT(files_->WriteDurably(path_ + ".part", {"abcdefghi"}), IsOk());
  EXPECT_THAT(Write(Part(path_, 6, 3, "def")), IsOkAndHolds(0));
}

TEST_F(CheckpointPartsTest, OnlyStagedFilesAreWritten) {
  const std::string committed = root_ + kCommitted + "/layer-000-any.safetensors";
  fs::create_directories(root_ + kCommitted);
  ASSERT_THAT(files_->WriteDurably(committed, {"kept"}), IsOk());
  for (const std::string& path :
       {committed, root_ + "/any", root_ + kStaging + "/.." + kCommitted + "/any",
        root_ + kCommitted + kStaging + "/any", path_ + ".part", root_ + kStaging, std::string()}) {
    EXPECT_THAT(Write(Part(path, 1, 0, "x")),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("may not write")))
        << path;
  }
  EXPECT_THAT(files_->Read(committed, kBytesMax), IsOkAndHolds("kept"));
  EXPECT_THAT(Read(committed, 0, 10), IsOkAndHolds("kept")) << "it may be read";
}

TEST_F(CheckpointPartsTest, NothingOutsideOfTheRootIsWrittenOrRead) {
  const std::string outside = directory_.path();
  ASSERT_THAT(RealFiles().WriteDurably(outside + "/secret", {"s"}), IsOk());
  fs::create_directory(outside + kStaging);
  fs::create_symlink(outside + kStaging, root_ + "/step-000000000009.tmp-job-1");
  fs::create_symlink(outside + "/secret", root_ + "/secret");
  for (const std::string& path :
       {outside + kStaging + "/any", root_ + "/.." + kStaging + "/any",
        root_ + "/step-000000000009.tmp-job-1/any", root_ + "/none" + kStaging + "/any"}) {
    EXPECT_THAT(Write(Part(path, 1, 0, "x")), Not(IsOk())) << path;
  }
  EXPECT_TRUE(fs::is_empty(outside + kStaging));
  EXPECT_FALSE(fs::exists(root_ + "/none"));
  for (const std::string& path :
       {outside + "/secret", root_ + "/../secret", root_ + "/secret", root_, std::string()}) {
    EXPECT_THAT(Read(path, 0, 10), Not(IsOk())) << path;
  }
}

TEST_F(CheckpointPartsTest, PartsThatCannotBe_AreRefused) {
  const std::string large(rpc_limits::kDataPartBytesMax + 1, 'x');
  for (const v1::WritePartRequest& request :
       {Part(path_, 1 << 30, 0, large), Part(path_, 2, 0, "abc"), Part(path_, 2, 3, "a"),
        Part(path_, 2, -1, "a"), Part(path_, -1, 0, ""), Part(path_, 2, 0, ""),
        Part(path_, int64_t{1} << 50, 0, "a"), Part(path_, 4, int64_t{1} << 62, "a")}) {
    EXPECT_THAT(Write(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path_)));
  }
  EXPECT_FALSE(fs::exists(root_ + kStaging));
}

TEST(CheckpointPartsOnAFullDisk, SayWhatToDoAndGoOnAfterwards) {
  MemoryFiles files;
  ASSERT_THAT(files.CreateDirectories("/root"), IsOk());
  CheckpointParts parts(files);
  const std::string path = absl::StrCat("/root", kStaging, "/any");
  EXPECT_THAT(parts.Write(Part(path, 6, 0, "abc")), IsOk());
  files.SetCapacity(3);
  EXPECT_THAT(parts.Write(Part(path, 6, 3, "def")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("free space")));
  files.SetCapacity(100);
  EXPECT_THAT(parts.Write(Part(path, 6, 3, "def")), IsOk());
  EXPECT_THAT(files.Read(path, kBytesMax), IsOkAndHolds("abcdef"));
}

}  // namespace
}  // namespace penstock
