// Rounding to fp8, against the numbers that the formats have.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/bf16.h"
#include "compute/cpu/fp8_operands.h"
#include "compute/cpu/kernels/best.h"
#include "compute/cpu/product.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

uint16_t Bf16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  EXPECT_EQ(bits & 0xFFFF, 0u) << value << " is not a number of bf16";
  return static_cast<uint16_t>(bits >> 16);
}

std::vector<float> Rounded(Fp8 format, const std::vector<float>& values) {
  std::vector<uint16_t> numbers;
  for (const float value : values) numbers.push_back(Bf16Bits(value));
  RoundOperandToFp8(format, numbers, numbers.data());
  std::vector<float> rounded;
  for (const uint16_t number : numbers) rounded.push_back(FromBf16(number));
  return rounded;
}

// The positive finite numbers, ascending: sign, exponent and mantissa as the formats' paper has them.
std::vector<float> NumbersOf(Fp8 format) {
  const int mantissa_bits = format == Fp8::kE4M3 ? 3 : 2;
  const int bias = format == Fp8::kE4M3 ? 7 : 15;
  const int last = format == Fp8::kE4M3 ? 0x7E : 0x7B;  // S.1111.110 and S.11110.11
  std::vector<float> numbers;
  for (int code = 0; code <= last; ++code) {
    const int exponent = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    numbers.push_back(std::ldexp(static_cast<float>(whole),
                                 (exponent == 0 ? 1 : exponent) - bias - mantissa_bits));
  }
  return numbers;
}

TEST(Fp8, Numbers_StayAndWhatLiesBetweenGoesToTheNearest) {
  for (const Fp8 format : {Fp8::kE4M3, Fp8::kE5M2}) {
    const std::vector<float> numbers = NumbersOf(format);
    EXPECT_EQ(numbers.back(), format == Fp8::kE4M3 ? 448.0f : 57344.0f);
    for (size_t code = 0; code < numbers.size(); ++code) {
      EXPECT_EQ(RoundToFp8(format, 0, numbers[code]), numbers[code]);
      EXPECT_EQ(RoundToFp8(format, 0, -numbers[code]), -numbers[code]);
      if (code + 1 == numbers.size()) break;
      const float low = numbers[code], high = numbers[code + 1];
      const float middle = (low + high) / 2;
      const float even =
          code % 2 == 0 ? low : high;  // the bit of the mantissa that decides is the code's last
      EXPECT_EQ(RoundToFp8(format, 0, middle), even) << low << ", " << high;
      EXPECT_EQ(RoundToFp8(format, 0, std::nextafter(middle, 0.0f)), low);
      EXPECT_EQ(RoundToFp8(format, 0, std::nextafter(middle, 1e9f)), high);
    }
  }
}

TEST(Fp8, Scale_IsTheLargestPowerOfTwoThatFits) {
  for (const Fp8 format : {Fp8::kE4M3, Fp8::kE5M2}) {
    const double most = NumbersOf(format).back();
    for (const float largest : {1.0f, 1.75f, 1.7500001f, 448.0f, 449.0f, 0.3f, 57344.0f, 1e-20f,
                                3e38f, std::numeric_limits<float>::max()}) {
      const int exponent = Fp8ScaleExponent(format, std::bit_cast<uint32_t>(largest));
      EXPECT_LE(std::ldexp(double{largest}, exponent), most) << largest;
      EXPECT_GT(std::ldexp(double{largest}, exponent + 1), most) << largest;
    }
    EXPECT_EQ(Fp8ScaleExponent(format, 0), 0);
    EXPECT_EQ(Fp8ScaleExponent(format, std::bit_cast<uint32_t>(1e-42f)), 100);
  }
}

// The scale of [3, ...] is 2^7 in E4M3, because 3 * 128 = 384 fits below 448 and twice that does not: the grid near 1 * 128 is
// in steps of 16 / 128. The largest of [0.75, ...] in E5M2 goes to 49152 by 2^16: steps of 2^13 / 2^16.
TEST(Fp8, Operands_HaveTheirOwnScale) {
  EXPECT_THAT(Rounded(Fp8::kE4M3, {3.0f, 1.0625f, -1.1875f, 0.0f, 0.001007080078125f}),
              ElementsAre(3.0f, 1.0f, -1.25f, 0.0f, 0.0009765625f));
  EXPECT_THAT(Rounded(Fp8::kE5M2, {0.75f, 0.6875f, -0.578125f, 1.0f / 4096}),
              ElementsAre(0.75f, 0.75f, -0.625f, 1.0f / 4096));
  EXPECT_THAT(Rounded(Fp8::kE4M3, {0.0f, -0.0f}), ElementsAre(0.0f, -0.0f));
}

// A run that diverges must not go unnoticed.
TEST(Fp8, OperandThatIsNotFinite_IsNaN) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(Rounded(Fp8::kE4M3, {1.0f, bad, 2.0f}), Each(::testing::IsNan()));
  }
}

// Every power of two gives the same operand, moved: no number is lost to where a tensor lies.
TEST(Fp8, Rounding_GoesWithPowersOfTwo) {
  const std::vector<float> values = {1.0f, 0.7109375f, -0.0791015625f, 0.3828125f};
  const std::vector<float> once = Rounded(Fp8::kE4M3, values);
  for (const int power : {-80, -20, -1, 1, 20, 100}) {
    std::vector<float> moved = values;
    for (float& value : moved) value = std::ldexp(value, power);
    moved = Rounded(Fp8::kE4M3, moved);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(moved[i], std::ldexp(once[i], power));
  }
}

TEST(Fp8, Products_AreThoseOfTheRoundedOperands) {
  CpuContext context(/*thread_count=*/1, *SupportedKernels().front());
  if (!context.has_bf16_products) GTEST_SKIP() << "this machine has no products of bf16";
  constexpr int64_t kRows = 16, kColumns = 32, kInner = 48;
  std::vector<float> left(kRows * kInner), right(kInner * kColumns);
  uint32_t seed = 1;
  for (std::vector<float>* values : {&left, &right}) {
    for (float& value : *values) {
      seed = seed * 1664525u + 1013904223u;
      value = static_cast<float>(static_cast<int32_t>(seed >> 24) - 128) / 64.0f;
    }
  }
  const auto bits = [](const std::vector<float>& values) {
    std::vector<uint16_t> numbers;
    for (const float value : values) numbers.push_back(Bf16Bits(value));
    return numbers;
  };
  for (const bool transposed : {false, true}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const MatrixProduct product,
                                  MatrixProduct::Create(context,
                                                        {.rows = kRows,
                                                         .columns = kColumns,
                                                         .inner = kInner,
                                                         .transposed_left = transposed,
                                                         .transposed_right = transposed,
                                                         .accumulate = true,
                                                         .left_fp8 = Fp8::kE5M2,
                                                         .right_fp8 = Fp8::kE4M3},
                                                        dnnl::memory::data_type::bf16));
    std::vector<float> result(kRows * kColumns, 1.0f);
    product.Run(bits(left).data(), bits(right).data(), result.data());
    const std::vector<float> a = Rounded(Fp8::kE5M2, left), b = Rounded(Fp8::kE4M3, right);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kColumns; ++c) {
        double sum = 1.0;
        for (int64_t k = 0; k < kInner; ++k) {
          sum += double{a[transposed ? k * kRows + r : r * kInner + k]} *
                 b[transposed ? c * kInner + k : k * kColumns + c];
        }
        ASSERT_NEAR(result[r * kColumns + c], sum, 1e-4) << r << ", " << c;
      }
    }
  }
}

}  // namespace
}  // namespace penstock
