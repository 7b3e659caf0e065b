// Stochastic rounding against its definition, written with the scalar Philox of base/.
#include "compute/rounding.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "compute/backend.h"
#include "compute/bf16.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The random word of an element, as rounding.h numbers them.
uint32_t WordOf(const StochasticRounding& r, int64_t element) {
  const int64_t group = element / 64;
  const int64_t word = element % 64 / 16;
  const int64_t lane = element % 16;
  return Philox(r.key,
                {static_cast<uint32_t>(16 * group + lane), static_cast<uint32_t>(r.parameter),
                 static_cast<uint32_t>(r.parameter >> 32), r.version})[word];
}

class RoundingTest : public ::testing::Test {
 protected:
  std::vector<uint16_t> Round(const std::vector<float>& values, const StochasticRounding& r) {
    std::vector<uint16_t> rounded(values.size(), 0xDEAD);
    backend_->ConvertToBf16(rounded.data(), values.data(), static_cast<int64_t>(values.size()), r);
    return rounded;
  }
  std::unique_ptr<Backend> backend_ = *MakeCpuBackend(1);
};

constexpr StochasticRounding kRounding = {KeyOfRounding(7), 0x123456789ABCDEF0, 42};

TEST_F(RoundingTest, EveryElement_IsRoundedByItsOwnWord) {
  RandomStream random(5, 5);
  for (const int64_t count : {1, 15, 16, 17, 63, 64, 65, 1000, 40'000}) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.Normal());
    const std::vector<uint16_t> rounded = Round(values, kRounding);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(rounded[i], StochasticBf16(BitsOf(values[i]), WordOf(kRounding, i)))
          << i << " of " << count;
    }
  }
}

TEST_F(RoundingTest, Mean_OfManyRoundings_IsTheValue) {
  const int64_t count = 1 << 16;
  for (const float value : {1.0f + 0x1p-9f, -1.0f - 0x1p-10f, 3.14159274f, 1e-30f, -1.99999988f}) {
    const std::vector<uint16_t> rounded = Round(std::vector<float>(count, value), kRounding);
    const float below = FromBf16(static_cast<uint16_t>(BitsOf(value) >> 16));
    const float above = FromBf16(static_cast<uint16_t>((BitsOf(value) >> 16) + 1));
    const double share = (double{value} - below) / (double{above} - below);
    double sum = 0.0;
    for (const uint16_t half : rounded) {
      const float got = FromBf16(half);
      ASSERT_TRUE(got == below || got == above) << got;
      sum += (double{got} - below) / (double{above} - below);
    }
    const double deviation = std::sqrt(share * (1 - share) / count);
    EXPECT_NEAR(sum / count, share, 5 * deviation) << value;
  }
}

TEST_F(RoundingTest, SpecialValues_Stay) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, -2.5f, infinity, -infinity};
  for (uint32_t version = 0; version < 20; ++version) {
    StochasticRounding rounding = kRounding;
    rounding.version = version;
    const std::vector<uint16_t> rounded = Round(values, rounding);
    EXPECT_EQ(rounded, (std::vector<uint16_t>{0x0000, 0x8000, 0x3F80, 0xC020, 0x7F80, 0xFF80}));
    std::vector<float> nans(40, std::nanf(""));
    for (const uint16_t half : Round(nans, rounding)) EXPECT_GT(half & 0x7FFF, 0x7F80);
  }
}

TEST_F(RoundingTest, SameNames_GiveTheSameBits_OthersDoNot) {
  const std::vector<float> values(1000, 1.0f + 0x1p-9f);
  const std::vector<uint16_t> rounded = Round(values, kRounding);
  EXPECT_EQ(Round(values, kRounding), rounded);
  StochasticRounding other = kRounding;
  other.version += 1;
  EXPECT_NE(Round(values, other), rounded);
  other = kRounding;
  other.parameter ^= uint64_t{1} << 40;
  EXPECT_NE(Round(values, other), rounded);
  other = kRounding;
  other.key = KeyOfRounding(8);
  EXPECT_NE(Round(values, other), rounded);
}

TEST_F(RoundingTest, AnyNumberOfThreads_GivesTheSameBits) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer cannot see how OpenMP's threads wait for each other";
#endif
  const auto backend = *MakeCpuBackend(3);
  std::vector<float> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  std::vector<uint16_t> rounded(values.size());
  backend->ConvertToBf16(rounded.data(), values.data(), static_cast<int64_t>(values.size()),
                         kRounding);
  EXPECT_EQ(rounded, Round(values, kRounding));
}

}  // namespace
}  // namespace penstock
