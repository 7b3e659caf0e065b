#include "services/coordinator/directory_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/coordinator/checkpoint_keeper.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DirectoryLockTest : public ::testing::Test {
 protected:
  const TestDirectory own_;
  const std::string directory_ = own_.path();
};

TEST_F(DirectoryLockTest, Taken_IsRefusedNamingDirectoryAndHolder) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto lock, DirectoryLock::Take(directory_));
  EXPECT_THAT(
      DirectoryLock::Take(directory_).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(directory_), HasSubstr(absl::StrCat("process ", getpid())))));
  EXPECT_TRUE(IsHeldByAnother(DirectoryLock::Take(directory_).status()));
  lock.reset();
  EXPECT_THAT(DirectoryLock::Take(directory_).status(), IsOk());
  EXPECT_FALSE(IsHeldByAnother(DirectoryLock::Take(directory_ + "-none").status()));
}

TEST_F(DirectoryLockTest, Link_IsTheSameDirectory) {
  const std::string link = directory_ + "-link";
  std::filesystem::create_directory_symlink(directory_, link);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto lock, DirectoryLock::Take(directory_));
  EXPECT_THAT(DirectoryLock::Take(link).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(link)));
  std::filesystem::remove(link);
}

// Somebody who may write in the directory must not make us overwrite another file, or make one, or wait.
TEST_F(DirectoryLockTest, SomethingElseUnderTheLocksName_IsRefusedAndLeftAlone) {
  const std::string path = JoinPath(directory_, DirectoryLock::kFileName);
  const std::string other = directory_ + "-precious";
  const absl::Status written = RealFiles().WriteDurably(other, {"precious"});
  ASSERT_THAT(written, IsOk());
  for (const std::string& target : {other, directory_ + "-none"}) {
    std::filesystem::create_symlink(target, path);
    EXPECT_THAT(DirectoryLock::Take(directory_).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("symbolic link")));
    std::filesystem::remove(path);
  }
  EXPECT_THAT(RealFiles().Read(other, 100), IsOkAndHolds(std::string("precious")));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "-none"));
  std::filesystem::remove(other);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(DirectoryLock::Take(directory_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no regular file")));
}

TEST_F(DirectoryLockTest, NoDirectory_IsAnErrorThatNamesIt) {
  EXPECT_THAT(DirectoryLock::Take(directory_ + "/none").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none")));
}

TEST_F(DirectoryLockTest, HolderIsKilled_FreesIt) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto lock = DirectoryLock::Take(directory_);
    const char said = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &said, 1) == 1) {
      pause();
    }
    _exit(1);
  }
  char said = 0;
  ASSERT_EQ(read(ready[0], &said, 1), 1);
  ASSERT_EQ(said, 'y');
  EXPECT_THAT(
      DirectoryLock::Take(directory_).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(absl::StrCat("process ", holder))));
  kill(holder, SIGKILL);
  ASSERT_EQ(waitpid(holder, nullptr, 0), holder);
  EXPECT_THAT(DirectoryLock::Take(directory_).status(), IsOk());
  close(ready[0]);
  close(ready[1]);
}

// A coordinator that was restarted goes on with an attempt whose workers are writing.
TEST_F(DirectoryLockTest, DirectoryOfAnAdoptedAttempt_KeepsWhatItStages) {
  const std::string dead = StagingPath(directory_, 5, "job-1-11");
  const std::string writing = StagingPath(directory_, 5, "job-1-12");
  for (const std::string& staging : {dead, writing}) std::filesystem::create_directories(staging);
  const FindCheckpoint find{
      .job_id = "job-1", .query = {.root = directory_}, .adopted_tag = "job-1-12"};
  DirectoryLease lease;
  EXPECT_THAT(ClaimAndFindStart(RealFiles(), find, lease), IsOk());
  EXPECT_NE(lease, nullptr);
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(writing));
}

// What another process is writing is not swept away.
TEST_F(DirectoryLockTest, DirectoryInUse_IsNotSweptByAStart) {
  const FindCheckpoint find{.job_id = "job-1", .query = {.root = directory_}};
  const std::string staging = StagingPath(directory_, 5, "writing");
  DirectoryLease first, second;
  ASSERT_THAT(ClaimAndFindStart(RealFiles(), find, first), IsOk());
  std::filesystem::create_directories(staging);
  EXPECT_THAT(ClaimAndFindStart(RealFiles(), find, second),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(directory_)));
  EXPECT_EQ(second, nullptr);
  EXPECT_TRUE(std::filesystem::exists(staging));
  first.reset();
  EXPECT_THAT(ClaimAndFindStart(RealFiles(), find, second), IsOk());
  EXPECT_FALSE(std::filesystem::exists(staging));
}

}  // namespace
}  // namespace penstock
