#include "services/coordinator/disk_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLong{30};

// Each directory is a disk.
std::string Itself(const std::string& directory) { return directory; }

// A disk that hangs until the test lets it go.
class Hanging {
 public:
  ~Hanging() { LetGo(); }
  void LetGo() {
    if (!std::exchange(let_go_, true)) go_.set_value();
  }
  // The task shares what it waits for, so it may outlive the test's own.
  std::function<void()> Task() {
    return [going = going_] { going.wait(); };
  }

 private:
  std::promise<void> go_;
  std::shared_future<void> going_ = go_.get_future().share();
  bool let_go_ = false;
};

TEST(DiskThreadsTest, OneDiskHangs_TheOthersWork) {
  Hanging hanging;
  DiskThreads disks(Itself);
  ASSERT_THAT(disks.Submit("/hung", hanging.Task()), IsOk());
  const auto done = std::make_shared<std::promise<void>>();
  ASSERT_THAT(disks.Submit("/fine", [done] { done->set_value(); }), IsOk());
  EXPECT_EQ(done->get_future().wait_for(kLong), std::future_status::ready);
  hanging.LetGo();
  EXPECT_TRUE(disks.Stop(kLong));
}

TEST(DiskThreadsTest, TasksOfOneDisk_AreDoneInOrderAndBeforeTheEnd) {
  std::vector<int> order;
  DiskThreads disks(Itself);
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(disks.Submit("/a", [&order, i] { order.push_back(i); }), IsOk());
  }
  EXPECT_TRUE(disks.Stop(kLong));
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(disks.Submit("/a", [] {}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
}

TEST(DiskThreadsTest, Stop_DoesNotWaitLongForADiskThatHangs) {
  Hanging hanging;
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  DiskThreads disks(Itself);
  ASSERT_THAT(disks.Submit("/hung", hanging.Task()), IsOk());
  ASSERT_THAT(disks.Submit("/hung", [ran] { *ran = true; }), IsOk());
  EXPECT_FALSE(disks.Stop(std::chrono::milliseconds(50)));
  EXPECT_FALSE(disks.Stop(kLong))
      << "nothing is left to wait for, and it is still not known to have ended";
  EXPECT_EQ(ran.use_count(), 1) << "what waited behind it is gone";
  EXPECT_FALSE(*ran);
}

TEST(DiskThreadsTest, ManyDisks_TakeTheThreadsOfThoseWithoutWork) {
  DiskThreads disks(Itself);
  for (size_t i = 0; i < 4 * DiskThreads::kDisksMax; ++i) {
    const auto done = std::make_shared<std::promise<void>>();
    ASSERT_THAT(disks.Submit(absl::StrCat("/", i), [done] { done->set_value(); }), IsOk());
    ASSERT_EQ(done->get_future().wait_for(kLong), std::future_status::ready);
  }
  EXPECT_TRUE(disks.Stop(kLong));
}

TEST(DiskThreadsTest, ManyDisksHang_AnotherIsRefusedNamingThem) {
  Hanging hanging;
  DiskThreads disks(Itself);
  for (size_t i = 0; i < DiskThreads::kDisksMax; ++i) {
    ASSERT_THAT(disks.Submit(absl::StrCat("/hung-", i), hanging.Task()), IsOk());
  }
  EXPECT_THAT(disks.Submit("/another", [] {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("/another"), HasSubstr("/hung-0"), HasSubstr("16"))));
  EXPECT_THAT(disks.Submit("/hung-0", [] {}), IsOk()) << "it has a thread";
  hanging.LetGo();
  EXPECT_TRUE(disks.Stop(kLong));
}

TEST(DiskThreadsTest, TooMuchWaitsForADisk_IsRefusedNamingIt) {
  Hanging hanging;
  DiskThreads disks(Itself);
  const auto begun = std::make_shared<std::promise<void>>();
  ASSERT_THAT(disks.Submit("/hung",
                           [begun, wait = hanging.Task()] {
                             begun->set_value();
                             wait();
                           }),
              IsOk());
  begun->get_future().wait();
  for (size_t i = 0; i < DiskThreads::kTasksMax; ++i) {
    ASSERT_THAT(disks.Submit("/hung", [] {}), IsOk());
  }
  EXPECT_THAT(disks.Submit("/hung", [] {}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the disk at /hung")));
  hanging.LetGo();
  EXPECT_TRUE(disks.Stop(kLong));
}

TEST(MountPoint, IsTheLongestThatThePathIsBelow) {
  const std::string mountinfo =
      "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "30 22 0:40 / /data rw - nfs4 server:/data rw\n"
      "31 30 0:41 / /data/near rw,noatime shared:3 - xfs /dev/sdb1 rw\n"
      "32 22 0:42 / /my\\040disk rw - ext4 /dev/sdc1 rw\n"
      "\n"
      "half a line\n";
  EXPECT_EQ(MountPointOf(mountinfo, "/home/x"), "/");
  EXPECT_EQ(MountPointOf(mountinfo, "/data"), "/data");
  EXPECT_EQ(MountPointOf(mountinfo, "/data/job/a"), "/data");
  EXPECT_EQ(MountPointOf(mountinfo, "/data2/job"), "/") << "only begins alike";
  EXPECT_EQ(MountPointOf(mountinfo, "/data/near/job"), "/data/near");
  EXPECT_EQ(MountPointOf(mountinfo, "/my disk/job"), "/my disk");
  EXPECT_EQ(MountPointOf("", "/data"), "/");
}

TEST(MountPoint, OfThisMachine_IsOnThePath) {
  EXPECT_EQ(NameDisk("/proc/self"), "/proc");
  EXPECT_THAT(NameDisk("some/where"), ::testing::StartsWith("/"));
}

}  // namespace
}  // namespace penstock
