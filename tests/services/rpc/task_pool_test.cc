#include "services/rpc/task_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace penstock {
namespace {

TEST(TaskPool, QueuedTasks_AllRunBeforeItEnds) {
  std::atomic<int> runs = 0;
  {
    TaskPool pool(3, 1000, "test");
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(pool.Submit([&] { ++runs; }));
  }
  EXPECT_EQ(runs, 1000);
}

TEST(TaskPool, FullQueue_RefusesAndAcceptsAgainLater) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> started;
  std::promise<void> drained;
  TaskPool pool(1, 2, "test");
  ASSERT_TRUE(pool.Submit([&, open] {
    started.set_value();
    open.wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(pool.Submit([] {}));
  EXPECT_TRUE(pool.Submit([&] { drained.set_value(); }));
  EXPECT_FALSE(pool.Submit([] { FAIL() << "a refused task ran"; }));
  gate.set_value();
  drained.get_future().wait();
  EXPECT_TRUE(pool.Submit([] {}));
}

}  // namespace
}  // namespace penstock
