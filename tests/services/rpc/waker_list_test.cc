#include "services/rpc/waker_list.h"

#include <gtest/gtest.h>

#include <memory>

namespace penstock {
namespace {

TEST(WakerList, WakeAll_ReachesThoseAlive) {
  WakerList list;
  int woken = 0;
  const auto stays = std::make_shared<WakeTarget>([&] { ++woken; });
  auto goes = std::make_shared<WakeTarget>([&] { woken += 100; });
  list.Add(StreamWaker(stays));
  list.Add(StreamWaker(goes));
  goes.reset();
  list.WakeAll();
  list.WakeAll();
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(list.size(), 1u);
}

// Streams come and go for weeks without any news.
TEST(WakerList, Add_ForgetsStreamsThatAreOver) {
  WakerList list;
  for (int i = 0; i < 1000; ++i) {
    const auto stream = std::make_shared<WakeTarget>([] {});
    list.Add(StreamWaker(stream));
    EXPECT_EQ(list.size(), 1u);
  }
}

}  // namespace
}  // namespace penstock
