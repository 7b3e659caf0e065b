#include "compute/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

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
