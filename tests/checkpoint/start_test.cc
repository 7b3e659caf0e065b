#include "checkpoint/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FindStartTest : public ::testing::Test {
 protected:
  FindStartTest()
      : root_(std::filesystem::path(::testing::TempDir()) /
              absl::StrCat("start-", getpid(), "-",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~FindStartTest() override { std::filesystem::remove_all(root_); }

  // A checkpoint of one layer with one weight.
  std::string Commit(int64_t step) {
    LayerState layer{.layer = 0, .name = "head"};
    layer.weights = {{.name = "w", .shape = {1}, .values = {1.0f}}};
    const absl::StatusOr<std::vector<CheckpointFile>> written =
        WriteLayer(RealFiles(), StagingPath(root_, step, "tag"), layer);
    EXPECT_THAT(written, IsOk());
    Manifest manifest;
    manifest.job_id = "j";
    manifest.step = step;
    manifest.updates = 4 * step;
    manifest.extra_cuts = {step};
    manifest.fingerprint = fingerprint_;
    manifest.files = *written;
    const absl::StatusOr<CommittedCheckpoint> committed =
        CommitCheckpoint(RealFiles(), {.root = root_, .tag = "tag", .layers = 1}, manifest);
    EXPECT_THAT(committed, IsOk());
    return committed.ok() ? committed->directory : "";
  }
  absl::StatusOr<FoundStart> Find(const std::string& resume, int64_t steps = 100) {
    return FindStart(
        RealFiles(),
        {.root = root_, .resume = resume, .fingerprint = fingerprint_, .steps = steps});
  }

  const std::string root_;
  Fingerprint fingerprint_ = {{"model.width", "8"}};
};

TEST_F(FindStartTest, NewJob_StartsAnew) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const FoundStart start, Find(""));
  EXPECT_EQ(start.checkpoint, "");
  EXPECT_EQ(start.step, 0);
}

TEST_F(FindStartTest, Latest_WithoutAny_StartsAnew) { EXPECT_EQ(Find("latest")->checkpoint, ""); }

TEST_F(FindStartTest, Latest_FindsTheNewestAndItsCuts) {
  Commit(5);
  const std::string newest = Commit(10);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const FoundStart start, Find("latest"));
  EXPECT_EQ(start.checkpoint, newest);
  EXPECT_EQ(start.step, 10);
  EXPECT_EQ(start.updates, 40);
  EXPECT_EQ(start.extra_cuts, std::vector<int64_t>{10});
}

TEST_F(FindStartTest, Latest_DamagedNewest_FallsBackAndSaysSo) {
  const std::string older = Commit(5);
  const std::string newest = Commit(10);
  for (const auto& file : std::filesystem::directory_iterator(newest)) {
    if (file.path().extension() == ".safetensors") {
      std::filesystem::resize_file(file.path(), 7);
    }
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const FoundStart start, Find("latest"));
  EXPECT_EQ(start.checkpoint, older);
  ASSERT_EQ(start.notes.size(), 1u);
  EXPECT_THAT(start.notes[0], HasSubstr("step-000000000010"));
}

TEST_F(FindStartTest, Path_IsThatCheckpoint) {
  const std::string older = Commit(5);
  Commit(10);
  EXPECT_EQ(Find(older)->step, 5);
  EXPECT_THAT(Find(root_ + "/nothing"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing")));
}

TEST_F(FindStartTest, OtherModel_IsRefusedNamingTheField) {
  Commit(5);
  fingerprint_ = {{"model.width", "16"}};
  EXPECT_THAT(Find("latest"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("model.width"), HasSubstr("8"), HasSubstr("16"))));
}

TEST_F(FindStartTest, NewJobAmongOlderCheckpoints_IsRefused) {
  Commit(5);
  EXPECT_THAT(Find(""), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr(root_), HasSubstr("resume: latest"))));
}

TEST_F(FindStartTest, NewJobAmongDamagedCheckpoints_IsRefused) {
  Commit(5);
  std::filesystem::remove(root_ + "/step-000000000005/MANIFEST.json");
  EXPECT_THAT(Find(""), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(root_)));
}

TEST_F(FindStartTest, DirectoryThatIsAFile_IsRefused) {
  std::ofstream file(root_);
  for (const char* resume : {"", "latest"}) {
    EXPECT_THAT(Find(resume),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("checkpoint.directory: ")));
  }
}

TEST_F(FindStartTest, Names_TellWithoutReading) {
  EXPECT_THAT(CheckStartNames(RealFiles(), root_, ""), IsOk());
  EXPECT_THAT(CheckStartNames(RealFiles(), "", root_ + "/none"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("checkpoint.resume: ")));
  const std::string checkpoint = Commit(5);
  std::filesystem::remove(checkpoint + "/MANIFEST.json");
  EXPECT_THAT(CheckStartNames(RealFiles(), root_, ""),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("earlier job")));
  for (const std::string& resume : {std::string("latest"), checkpoint}) {
    EXPECT_THAT(CheckStartNames(RealFiles(), root_, resume), IsOk()) << "only reading would tell";
  }
}

TEST_F(FindStartTest, CheckpointAtTheEnd_IsAStart) {
  Commit(10);
  EXPECT_EQ(Find("latest", 10)->step, 10);
}

TEST_F(FindStartTest, CheckpointBeyondTheEnd_IsRefusedWithBothSteps) {
  const std::string directory = Commit(10);
  for (const std::string& resume : {std::string("latest"), directory}) {
    EXPECT_THAT(Find(resume, 9),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("checkpoint.resume: " + directory), HasSubstr("step 10"),
                               HasSubstr("training.steps (9)"))));
  }
}

TEST_F(FindStartTest, OnlyReads) {
  const std::string staging = StagingPath(root_, 5, "dead");
  std::filesystem::create_directories(staging);
  ASSERT_THAT(Find("latest"), IsOk());
  EXPECT_TRUE(std::filesystem::exists(staging));
}

}  // namespace
}  // namespace penstock
