#include "services/coordinator/checkpoint_keeper.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

TEST(CheckpointKeeperTest, StartIsSought_DeadAttemptsAreClearedUp) {
  const std::string root =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("keeper-", getpid());
  const std::string staging = StagingPath(root, 5, "dead");
  std::filesystem::create_directories(staging);
  EXPECT_THAT(SweepAndFindStart(RealFiles(), {.root = root, .resume = "latest"}), IsOk());
  EXPECT_FALSE(std::filesystem::exists(staging));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace penstock
