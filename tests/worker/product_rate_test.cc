#include "worker/product_rate.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"

namespace penstock {
namespace {

// The clock ticks once from the beginning of a product to its end.
TEST(ProductRate, IsTheOperationsOfAProductByItsTime) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Backend> backend, MakeCpuBackend(1));
  TickingClock clock(1'000'000);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const double rate,
                                MeasureProductRate(*backend, Precision::kF32, clock));
  EXPECT_DOUBLE_EQ(rate, 2.0 * 512 * 512 * 512 * 1e3);
}

TEST(ProductRate, OfAGivenSize_CountsItsOperations) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Backend> backend, MakeCpuBackend(1));
  TickingClock clock(1'000'000);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const double rate,
                                MeasureProductRate(*backend, Precision::kF32, 64, clock));
  EXPECT_DOUBLE_EQ(rate, 2.0 * 64 * 64 * 64 * 1e3);
}

TEST(ProductRate, LeavesNothingInMemory) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Backend> backend, MakeCpuBackend(1));
  TickingClock clock(1'000'000);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const double rate,
                                MeasureProductRate(*backend, Precision::kBf16, clock));
  EXPECT_GT(rate, 0);
  EXPECT_EQ(backend->pool().stats().bytes_in_use, 0);
}

}  // namespace
}  // namespace penstock
