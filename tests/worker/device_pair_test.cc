// Tied gradients that two workers' devices sum as a group, or over edges where they cannot.
#include "worker/device_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/status_matchers.h"
#include "tests/worker/fake_groups.h"
#include "tests/worker/late_device.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class GroupedDevice : public LateDevice {
 public:
  GroupedDevice(uint64_t seed, std::unique_ptr<FakeGroups> groups)
      : LateDevice(seed), groups_(std::move(groups)) {}
  DeviceGroups* groups() override { return groups_.get(); }

 private:
  const std::unique_ptr<FakeGroups> groups_;  // null: this device joins none
};

class DevicePairTest : public ::testing::Test {
 protected:
  DevicePairTest() { AddTestText(files_); }

  // What the devices of the two workers have, in no particular order.
  using Edit = std::function<std::unique_ptr<FakeGroups>(int device)>;
  std::unique_ptr<FakeGroups> Groups(const std::string& device) {
    return std::make_unique<FakeGroups>(meeting_, device);
  }
  // Distinct devices, the groups of each changed by `edit`.
  std::unique_ptr<FakeGroups> Distinct(int device) {
    return Groups(device == 0 ? "left" : "right");
  }

  static v1::JobSpec Tied() {
    v1::JobSpec spec = SmallJob("1f1b");
    spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    return spec;
  }
  ClusterOptions Options(const v1::JobSpec& spec, const Edit& groups_of) {
    return {.spec = spec,
            .layers = EvenSplit(kLayers, 2),
            .on_notice =
                [this](int worker, const std::string& text) {
                  MutexLock lock(mutex_);
                  notices_[worker].push_back(text);
                },
            .make_backend =
                [this, groups_of] {
                  MutexLock lock(mutex_);
                  const int device = devices_++;
                  return std::make_unique<GroupedDevice>(device + 1, groups_of(device));
                }};
  }

  // Trains with the bits of the reference. Returns how the two workers' collective edges say that they went.
  std::vector<std::string> Paths(const v1::JobSpec& spec, const Edit& groups_of) {
    const auto serial = TrainSerially(spec, EvenSplit(kLayers, 2), {}, files_);
    EXPECT_THAT(serial, IsOk());
    TestCluster cluster(Options(spec, groups_of), files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
    EXPECT_EQ(cluster.WeightsSha256(), serial->weights_sha256);
    std::vector<std::string> paths;
    for (const v1::StageReport& report : cluster.Reports()) {
      for (const v1::EdgePath& edge : report.edges()) {
        if (edge.edge().find("collective") == 0) paths.push_back(edge.path());
      }
    }
    return paths;
  }
  void ExpectNotices(const std::string& text) {
    MutexLock lock(mutex_);
    for (int worker : {0, 1}) {
      EXPECT_THAT(notices_[worker], SizeIs(1));
      EXPECT_THAT(notices_[worker], Each(HasSubstr(text)));
    }
  }

  MemoryFiles files_;
  FakeMeeting meeting_;
  Mutex mutex_;
  int devices_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> notices_[2] ABSL_GUARDED_BY(mutex_);
};

TEST_F(DevicePairTest, DifferentDevices_SumAsAGroupToTheBitsOfTheReference) {
  EXPECT_THAT(Paths(Tied(), [&](int device) { return Distinct(device); }),
              ElementsAre("fake-group", "fake-group"));
  ExpectNotices("by fake-group");
}

TEST_F(DevicePairTest, DifferentDevicesAndClipping_HaveTheBitsOfTheReference) {
  v1::JobSpec spec = Tied();
  spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
  EXPECT_THAT(Paths(spec, [&](int device) { return Distinct(device); }), Each("fake-group"));
  {
    MutexLock lock(mutex_);
    devices_ = 0;
  }
  spec.mutable_training()->mutable_clip()->set_layer_norm(0.05);
  EXPECT_THAT(Paths(spec, [&](int device) { return Distinct(device); }), Each("fake-group"));
}

TEST_F(DevicePairTest, OneDeviceForBoth_SumOverTheirEdges) {
  EXPECT_THAT(Paths(Tied(), [&](int) { return Groups("the only one"); }), Each("host"));
  ExpectNotices("over host: both workers use one device");
}

TEST_F(DevicePairTest, OnlyOneHasGroups_SumOverTheirEdgesAndThatOneSaysWhy) {
  EXPECT_THAT(Paths(Tied(), [&](int d) { return d == 0 ? Distinct(d) : nullptr; }), Each("host"));
  MutexLock lock(mutex_);
  EXPECT_EQ(notices_[0].size() + notices_[1].size(), 1u);
}

TEST_F(DevicePairTest, OneHasNoLibrary_BothGoOverTheirEdgesAndSayWhy) {
  EXPECT_THAT(Paths(Tied(),
                    [&](int device) {
                      auto groups = Distinct(device);
                      if (device == 0) groups->can_make = absl::UnavailableError("no libnccl");
                      return groups;
                    }),
              Each("host"));
  MutexLock lock(mutex_);
  std::vector<std::string> all = notices_[0];
  all.insert(all.end(), notices_[1].begin(), notices_[1].end());
  EXPECT_THAT(all, Contains(HasSubstr("no libnccl")));
  EXPECT_THAT(all, Contains(HasSubstr("the other worker has none")));
}

TEST_F(DevicePairTest, OneCannotJoin_BothGoOverTheirEdgesAndSayWhy) {
  EXPECT_THAT(Paths(Tied(),
                    [&](int device) {
                      auto groups = Distinct(device);
                      if (device == 1) groups->can_join = absl::InternalError("no socket");
                      return groups;
                    }),
              Each("host"));
  MutexLock lock(mutex_);
  std::vector<std::string> all = notices_[0];
  all.insert(all.end(), notices_[1].begin(), notices_[1].end());
  EXPECT_THAT(all, Contains(HasSubstr("no socket")));
  EXPECT_THAT(all, Contains(HasSubstr("the other worker could not join")));
}

TEST_F(DevicePairTest, SumFails_RunEndsWithItsError) {
  TestCluster cluster(Options(Tied(),
                              [&](int device) {
                                auto groups = Distinct(device);
                                groups->can_sum = absl::InternalError("the sum failed");
                                return groups;
                              }),
                      files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  int failed = 0;
  for (const absl::Status& status : cluster.Join()) {
    EXPECT_FALSE(status.ok());
    failed += absl::IsInternal(status) ? 1 : 0;
  }
  EXPECT_GE(failed, 1);
}

TEST(JoinPair, ExchangeFails_IsTheError) {
  FakeMeeting meeting;
  FakeGroups groups(meeting, "left");
  EXPECT_THAT(JoinPair(&groups, 0, absl::Seconds(1),
                       [](const PairMessage&) -> absl::StatusOr<PairMessage> {
                         return absl::UnavailableError("worker right is gone");
                       })
                  .status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker right")));
}

TEST(JoinPair, PeerThatDoesNotJoin_EndsAtTheTimeout) {
  FakeMeeting meeting;
  FakeGroups groups(meeting, "left");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const DevicePair pair, JoinPair(&groups, 0, absl::Milliseconds(20),
                                                                [](const PairMessage& own) {
                                                                  PairMessage other = own;
                                                                  other.device[0] = 'r';
                                                                  return other;
                                                                }));
  EXPECT_EQ(pair.group, nullptr);
  EXPECT_THAT(pair.why_not, HasSubstr("did not come in time"));
}

}  // namespace
}  // namespace penstock
