// Products of shapes that are computed in different ways, against plain loops. Numbers are small and whole, so that every
// order of sums has the same result.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/bf16.h"
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

struct Case {
  int64_t rows, columns, inner;
  bool packs;  // B; of bf16 on CPUs with tiles
  bool transposed_left = false, transposed_right = false;
};

// `Number`: float or Bf16, which has all numbers above. The products are those of Run, of two halves of the rows by RunAll,
// and of a prepared right operand.
template <typename Number>
void ExpectProducts(CpuContext& context, const Case& size) {
  constexpr bool kFloat = std::is_same_v<Number, float>;
  const auto type = kFloat ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  const std::vector<float> left = WholeNumbers(size.rows * size.inner, 1);
  const std::vector<float> right = WholeNumbers(size.inner * size.columns, 2);
  const std::vector<float> before = WholeNumbers(size.rows * size.columns, 3);
  const auto rounded = [](const std::vector<float>& values) {
    std::vector<Number> numbers(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (kFloat) {
        numbers[i] = values[i];
      } else {
        numbers[i] = ToBf16(values[i]);
      }
    }
    return numbers;
  };
  const std::vector<Number> a = rounded(left), b = rounded(right);
  for (const bool accumulate : {false, true}) {
    SCOPED_TRACE(absl::StrCat(size.rows, " x ", size.columns, " x ", size.inner, ", ",
                              size.transposed_left, size.transposed_right, accumulate, kFloat));
    ProductShape shape = {.rows = size.rows,
                          .columns = size.columns,
                          .inner = size.inner,
                          .transposed_left = size.transposed_left,
                          .transposed_right = size.transposed_right,
                          .accumulate = accumulate};
    std::vector<std::vector<float>> results;
    const auto run = [&](const ProductShape& of, auto&& body) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const MatrixProduct product,
                                    MatrixProduct::Create(context, of, type));
      results.push_back(before);
      body(product, results.back().data());
    };
    run(shape, [&](const MatrixProduct& product, float* result) {
      product.Run(a.data(), b.data(), result);
    });
    if (!size.transposed_left && size.rows % 2 == 0) {
      ProductShape half = shape;
      half.rows /= 2;
      run(half, [&](const MatrixProduct& product, float* result) {
        product.RunAll(2, a.data(), b.data(), result);
      });
    }
    shape.prepared = true;
    run(shape, [&](const MatrixProduct& product, float* result) {
      EXPECT_EQ(product.prepared_bytes() > 0, size.packs && (kFloat || context.has_bf16_tiles));
      std::vector<char> memory(product.prepared_bytes() + 64);
      void* place = memory.data();
      size_t space = memory.size();
      std::align(64, product.prepared_bytes(), place, space);
      const void* const prepared = product.Prepare(b.data(), place);
      product.RunPrepared(a.data(), prepared, result);
    });
    // Some of the rows.
    for (int64_t r = 0; r < size.rows; r += 9) {
      for (int64_t c = 0; c < size.columns; c += 7) {
        double sum = accumulate ? before[r * size.columns + c] : 0.0;
        for (int64_t k = 0; k < size.inner; ++k) {
          const float x = left[size.transposed_left ? k * size.rows + r : r * size.inner + k];
          const float y = right[size.transposed_right ? c * size.inner + k : k * size.columns + c];
          sum += static_cast<double>(x) * y;
        }
        for (size_t i = 0; i < results.size(); ++i) {
          ASSERT_EQ(results[i][r * size.columns + c], sum) << i << ": " << r << ", " << c;
        }
      }
    }
  }
}

// Right operands on both sides of the 4 MiB from which they are packed, and as many rows as it takes.
TEST(MatrixProduct, SmallAndLargeRightOperands_AreMultipliedAlike) {
  CpuContext context(/*thread_count=*/1, *SupportedKernels().front());
  for (const Case& size :
       {Case{64, 2050, 512, true}, Case{128, 2050, 512, true}, Case{100, 3072, 400, true, true},
        Case{63, 2050, 512, false}, Case{64, 2050, 512, false, false, true},
        Case{64, 1000, 512, false}, Case{70, 1, 1 << 20, true}}) {
    ExpectProducts<float>(context, size);
  }
}

// Right operands with a short side, which tiles multiply in blocks of 64 rows, and long ones, on both sides of each limit.
void ExpectNarrowAndLongProducts(int threads) {
  CpuContext context(threads, *SupportedKernels().front());
  const bool packs = threads == 1;
  for (const Case& size :
       {Case{256, 768, 256, packs}, Case{256, 768, 256, packs, false, true},
        Case{128, 768, 384, packs}, Case{128, 770, 385, false}, Case{192, 500, 96, packs},
        Case{160, 500, 96, false}, Case{64, 500, 96, false}, Case{192, 768, 256, false, true},
        Case{128, 384, 256, false}, Case{384, 64, 200, packs}, Case{128, 256, 512, packs},
        Case{128, 257, 600, false}, Case{256, 256, 2048, packs}, Case{256, 300, 2048, false},
        Case{256, 300, 2050, false, false, true}, Case{256, 300, 2047, false},
        Case{256, 1100, 2048, false}, Case{127, 300, 2048, false},
        Case{128, 64, 2047, false, true}}) {
    ExpectProducts<Bf16>(context, size);
  }
}

TEST(MatrixProduct, NarrowAndLongRightOperandsOfBf16_AreMultipliedAlike) {
  if (!CpuContext(1, *SupportedKernels().front()).has_bf16_products) {
    GTEST_SKIP() << "this machine has no products in bf16";
  }
  ExpectNarrowAndLongProducts(/*threads=*/1);
  ExpectNarrowAndLongProducts(/*threads=*/2);
}

}  // namespace
}  // namespace penstock
