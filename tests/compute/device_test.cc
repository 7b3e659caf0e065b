#include "compute/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

TEST(ParseDevice, Names_AreRead) {
  EXPECT_THAT(ParseDevice("auto"), IsOkAndHolds(Device{Device::Kind::kAuto}));
  EXPECT_THAT(ParseDevice("cpu"), IsOkAndHolds(Device{Device::Kind::kCpu}));
  EXPECT_THAT(ParseDevice("cuda:0"), IsOkAndHolds(Device{Device::Kind::kCuda, 0}));
  EXPECT_THAT(ParseDevice("cuda:12"), IsOkAndHolds(Device{Device::Kind::kCuda, 12}));
}

TEST(ParseDevice, AnythingElse_IsRefusedWithWhatIsAllowed) {
  for (const char* text :
       {"", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:x", "CPU", "cuda:99999999999"}) {
    EXPECT_THAT(ParseDevice(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                            testing::HasSubstr("auto, cpu, or cuda:N")))
        << text;
  }
}

std::vector<std::string> DevicesOf(const std::string& device, int workers,
                                   const std::vector<int>& gpus) {
  std::vector<std::string> devices;
  for (int worker = 0; worker < workers; ++worker) {
    devices.push_back(DeviceOfWorker(device, worker, gpus));
  }
  return devices;
}

TEST(DeviceOfWorker, Auto_GoesRoundTheGpus) {
  EXPECT_THAT(DevicesOf("auto", 5, {0, 1, 3}),
              ElementsAre("cuda:0", "cuda:1", "cuda:3", "cuda:0", "cuda:1"));
  EXPECT_THAT(DevicesOf("auto", 2, {0, 1, 2, 3}), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(DevicesOf("auto", 2, {0}), ElementsAre("auto", "auto"));
  EXPECT_THAT(DevicesOf("auto", 2, {}), ElementsAre("auto", "auto"));
}

TEST(DeviceOfWorker, NamedDevice_IsEverybodys) {
  EXPECT_THAT(DevicesOf("cuda:1", 2, {0, 1}), ElementsAre("cuda:1", "cuda:1"));
  EXPECT_THAT(DevicesOf("cpu", 2, {0, 1}), ElementsAre("cpu", "cpu"));
}

TEST(UsesGpu, AutoDoesWhereThereIsOne) {
  EXPECT_TRUE(UsesGpu("cuda:0", {}));
  EXPECT_TRUE(UsesGpu("auto", {0}));
  EXPECT_FALSE(UsesGpu("auto", {}));
  EXPECT_FALSE(UsesGpu("cpu", {0}));
}

TEST(WorkersOnDeviceOf, CountsThoseOfTheSameGpu) {
  const std::vector<int> gpus = {0, 1};
  EXPECT_EQ(WorkersOnDeviceOf("auto", 0, 5, gpus), 3);
  EXPECT_EQ(WorkersOnDeviceOf("auto", 1, 5, gpus), 2);
  EXPECT_EQ(WorkersOnDeviceOf("cuda:1", 0, 5, gpus), 5);
  EXPECT_EQ(WorkersOnDeviceOf("auto", 0, 4, {0}), 4);
  EXPECT_EQ(WorkersOnDeviceOf("auto", 0, 4, {}), 1);
  EXPECT_EQ(WorkersOnDeviceOf("cpu", 0, 4, gpus), 1);
}

TEST(MakeBackendOn, Auto_IsSomethingToComputeOn) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeBackendOn(Device(), 1));
  EXPECT_FALSE(backend->name().empty());
}

TEST(MakeBackendOn, GpuThatIsNotThere_IsNotReplacedByTheCpu) {
  EXPECT_THAT(MakeBackendOn({Device::Kind::kCuda, 1000}, 1),
              StatusIs(absl::StatusCode::kUnavailable, testing::_));
}

}  // namespace
}  // namespace penstock
