#include "base/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/test_directory.h"

namespace penstock {
namespace {

class HostMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = directory_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int64_t Bytes() const { return HostMemoryBytes(directory_.path()); }

  const TestDirectory directory_;
};

TEST_F(HostMemoryTest, WithoutControlGroups_IsThatOfTheHost) {
  EXPECT_GT(Bytes(), int64_t{1} << 26);
  Write("proc/self/cgroup", "0::/user\n");
  Write("sys/fs/cgroup/user/memory.max", "max\n");
  EXPECT_GT(Bytes(), int64_t{1} << 26);
}

TEST_F(HostMemoryTest, LeastLimitOfAllGroupsAround_Counts) {
  Write("proc/self/cgroup", "0::/pods/one/worker\n");
  Write("sys/fs/cgroup/pods/memory.max", "2000000\n");
  Write("sys/fs/cgroup/pods/one/memory.max", "1000000\n");
  Write("sys/fs/cgroup/pods/one/worker/memory.max", "max\n");
  EXPECT_EQ(Bytes(), 1'000'000);
}

TEST_F(HostMemoryTest, InAContainer_ItsGroupIsWhatIsMounted) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "3000000\n");
  EXPECT_EQ(Bytes(), 3'000'000);
  Write("proc/self/cgroup", "0::/of/the/host\n");
  EXPECT_EQ(Bytes(), 3'000'000) << "though its path is that outside";
}

TEST_F(HostMemoryTest, FirstVersionOfControlGroups_Counts) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4000000\n");
  EXPECT_EQ(Bytes(), 4'000'000);
}

TEST_F(HostMemoryTest, UnreadableLines_AreLeftOut) {
  const int64_t all = Bytes();
  Write("proc/self/cgroup", "nonsense\n\n0::\n1:memory:no-slash\n");
  Write("sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_EQ(Bytes(), all);
}

}  // namespace
}  // namespace penstock
