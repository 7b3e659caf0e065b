// Products of shapes that are computed in different ways, against plain loops. Numbers are small and whole, so that every
// order of sums has the same result.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/cpu/kernels/best.h"
#include "compute/cpu/product.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

std::vector<float> WholeNumbers(int64_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(seed >> 24) % 9 - 4);
  }
  return values;
}

// Right operands on both sides of the 4 MiB from which they are packed.
TEST(MatrixProduct, SmallAndLargeRightOperands_AreMultipliedAlike) {
  CpuContext context(/*thread_count=*/1, *SupportedKernels().front());
  struct Case {
    int64_t rows, columns, inner;
    bool transposed_left, transposed_right;
  };
  for (const Case& size : {Case{64, 2050, 512, false, false}, Case{100, 3072, 400, true, false},
                           Case{63, 2050, 512, false, false}, Case{64, 2050, 512, false, true},
                           Case{64, 1000, 512, false, false}, Case{70, 1, 1 << 20, false, false}}) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(absl::StrCat(size.rows, " x ", size.columns, " x ", size.inner, ", ",
                                size.transposed_left, size.transposed_right, accumulate));
      const std::vector<float> left = WholeNumbers(size.rows * size.inner, 1);
      const std::vector<float> right = WholeNumbers(size.inner * size.columns, 2);
      const std::vector<float> before = WholeNumbers(size.rows * size.columns, 3);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const MatrixProduct product,
          MatrixProduct::Create(context,
                                {.rows = size.rows,
                                 .columns = size.columns,
                                 .inner = size.inner,
                                 .transposed_left = size.transposed_left,
                                 .transposed_right = size.transposed_right,
                                 .accumulate = accumulate},
                                dnnl::memory::data_type::f32));
      std::vector<float> result = before;
      product.Run(left.data(), right.data(), result.data());
      // Some of the rows.
      for (int64_t r = 0; r < size.rows; r += 9) {
        for (int64_t c = 0; c < size.columns; c += 7) {
          double sum = accumulate ? before[r * size.columns + c] : 0.0;
          for (int64_t k = 0; k < size.inner; ++k) {
            const float a = left[size.transposed_left ? k * size.rows + r : r * size.inner + k];
            const float b =
                right[size.transposed_right ? c * size.inner + k : k * size.columns + c];
            sum += static_cast<double>(a) * b;
          }
          ASSERT_EQ(result[r * size.columns + c], sum) << r << ", " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
