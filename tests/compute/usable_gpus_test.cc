// Which GPUs of a machine are counted, with a driver that is played. A program of its own: it has one driver.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/backend.h"

namespace penstock {
namespace {

TEST(UsableGpus, ThoseThatThereIsCodeForAreCounted) {
  // Loaded before anybody looks for a driver, it is the driver.
  ASSERT_NE(dlopen(PENSTOCK_PLAYED_GPUS, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  EXPECT_THAT(UsableGpus(), ::testing::ElementsAre(0, 2));
}

}  // namespace
}  // namespace penstock
