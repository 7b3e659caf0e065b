#include "compute/message_compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr MessageCompression kInt8 = {MessageCompression::Kind::kInt8};
constexpr MessageCompression TopK(double keep) { return {MessageCompression::Kind::kTopK, keep}; }

struct Sent {
  std::vector<std::byte> message;
  std::vector<float> left;
  std::vector<float> expanded;
};

// Through a message and back.
Sent Send(const MessageCompression& compression, std::vector<float> values) {
  const auto elements = static_cast<int64_t>(values.size());
  Sent sent;
  sent.message.resize(CompressedBytes(compression, DType::kF32, elements));
  sent.left = std::move(values);
  EXPECT_THAT(Compress(compression, absl::MakeSpan(sent.left), absl::MakeSpan(sent.message)),
              IsOk());
  sent.expanded.resize(elements, 7.0f);
  EXPECT_THAT(Expand(compression, sent.message, DType::kF32, elements, sent.expanded.data()),
              IsOk());
  return sent;
}

std::vector<float> RandomNumbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random) * std::exp2(normal(random) * 4.0f);
  return numbers;
}

TEST(MessageCompression, Bytes_AreThoseOfTheFormat_AndNoneWhereNothingIsSaved) {
  EXPECT_EQ(CompressedBytes({}, DType::kF32, 1000), 0);
  EXPECT_EQ(CompressedBytes(kInt8, DType::kF32, 256), 4 + 256);
  EXPECT_EQ(CompressedBytes(kInt8, DType::kF32, 257), 8 + 257);
  EXPECT_EQ(CompressedBytes(kInt8, DType::kBf16, 1000), 16 + 1000);
  EXPECT_EQ(CompressedBytes(kInt8, DType::kF32, 1), 0);  // the signal of a frozen model's cut
  EXPECT_EQ(CompressedBytes(kInt8, DType::kBf16, 4), 0);
  EXPECT_EQ(CompressedBytes(kInt8, DType::kBf16, 5), 9);
  EXPECT_EQ(CompressedBytes(kInt8, DType::kF32, 0), 0);
  EXPECT_EQ(CompressedBytes(TopK(0.1), DType::kF32, 1000), (3 * 26 + 23) * 5);
  EXPECT_EQ(CompressedBytes(TopK(0.1), DType::kF32, 30), 15);     // 0.1 is a little more
  EXPECT_EQ(CompressedBytes(TopK(0.001), DType::kF32, 3), 5);     // one at least
  EXPECT_EQ(CompressedBytes(TopK(0.001), DType::kF32, 257), 10);  // of each run
  EXPECT_EQ(CompressedBytes(TopK(0.001), DType::kF32, 1), 0);
  EXPECT_EQ(CompressedBytes(TopK(0.5), DType::kF32, 512), 1280);
  EXPECT_EQ(CompressedBytes(TopK(0.5), DType::kBf16, 512), 0);
  EXPECT_EQ(CompressedBytes(TopK(0.25), DType::kBf16, 512), 640);
}

TEST(MessageCompression, Int8_IsTheNearestMultipleOfTheScale_TiesToEven) {
  std::vector<float> values(257, 0.0f);
  values[0] = 127.0f;  // a scale of 1
  values[1] = -63.5f;
  values[2] = 1.25f;
  values[3] = 0.5f;
  values[4] = 1.5f;
  values[5] = -2.5f;
  values[256] = -254.0f;  // a run of its own
  const Sent sent = Send(kInt8, values);
  float scales[2];
  std::memcpy(scales, sent.message.data(), sizeof(scales));
  EXPECT_THAT(scales, ElementsAre(1.0f, 2.0f));
  const auto* const numbers = reinterpret_cast<const int8_t*>(sent.message.data() + sizeof(scales));
  EXPECT_THAT(std::vector<int>(numbers, numbers + 6), ElementsAre(127, -64, 1, 0, 2, -2));
  EXPECT_EQ(numbers[256], -127);
  EXPECT_THAT(std::vector<float>(sent.expanded.begin(), sent.expanded.begin() + 6),
              ElementsAre(127.0f, -64.0f, 1.0f, 0.0f, 2.0f, -2.0f));
  EXPECT_EQ(sent.expanded[256], -254.0f);
  EXPECT_THAT(std::vector<float>(sent.left.begin(), sent.left.begin() + 6),
              ElementsAre(0.0f, 0.5f, 0.25f, 0.5f, -0.5f, -0.5f));
}

TEST(MessageCompression, TopK_HasTheGreatestMagnitudes_OfEqualOnesTheFirst) {
  const Sent sent = Send(TopK(0.4), {1.0f, -3.0f, 3.0f, 0.5f, -3.0f});
  float values[2];
  ASSERT_EQ(sent.message.size(), sizeof(values) + 2);
  std::memcpy(values, sent.message.data(), sizeof(values));
  EXPECT_THAT(values, ElementsAre(-3.0f, 3.0f));
  EXPECT_EQ(sent.message[8], std::byte{1});
  EXPECT_EQ(sent.message[9], std::byte{2});
  EXPECT_THAT(sent.expanded, ElementsAre(0.0f, -3.0f, 3.0f, 0.0f, 0.0f));
  EXPECT_THAT(sent.left, ElementsAre(1.0f, 0.0f, 0.0f, 0.5f, -3.0f));
}

TEST(MessageCompression, OfAnySize_WhatIsSentAndWhatIsLeft_AreTheNumbers) {
  for (const int64_t elements : {5, 31, 255, 256, 257, 1000, 5003}) {
    for (const MessageCompression& compression : {kInt8, TopK(0.01), TopK(0.1), TopK(0.45)}) {
      if (CompressedBytes(compression, DType::kF32, elements) == 0) continue;
      const std::vector<float> values = RandomNumbers(elements, elements);
      const Sent sent = Send(compression, values);
      const Sent again = Send(compression, values);
      EXPECT_EQ(sent.message, again.message);
      for (int64_t i = 0; i < elements; ++i) {
        if (compression.kind == MessageCompression::Kind::kTopK) {
          ASSERT_EQ(sent.expanded[i] + sent.left[i], values[i]);
          continue;
        }
        const int64_t first = i / MessageCompression::kRun * MessageCompression::kRun;
        float greatest = 0.0f;
        for (int64_t j = first; j < std::min(first + MessageCompression::kRun, elements); ++j) {
          greatest = std::max(greatest, std::fabs(values[j]));
        }
        ASSERT_NEAR(sent.expanded[i] + sent.left[i], values[i], greatest * 1e-6f);
        ASSERT_LE(std::fabs(sent.left[i]), greatest / 127.0f * 0.5001f);
      }
    }
  }
}

// Against a sort, with magnitudes that differ in their last bits, and many alike.
TEST(MessageCompression, TopK_IsThatOfASort) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int64_t elements = 5 + static_cast<int64_t>(random() % 600);
    std::vector<float> values(elements);
    for (float& value : values) {
      const uint32_t bits =
          std::bit_cast<uint32_t>(1.0f) + random() % (round % 2 == 0 ? 4 : 100000);
      value = std::bit_cast<float>(bits | static_cast<uint32_t>(random() % 2 << 31));
    }
    const double keep = 0.05 + 0.04 * static_cast<double>(random() % 10);
    std::vector<float> expected(elements, 0.0f);
    for (int64_t first = 0; first < elements; first += MessageCompression::kRun) {
      std::vector<int64_t> order(std::min(MessageCompression::kRun, elements - first));
      std::iota(order.begin(), order.end(), first);
      const auto kept = std::max<size_t>(1, std::llround(keep * static_cast<double>(order.size())));
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return std::fabs(values[a]) > std::fabs(values[b]);
      });
      order.resize(kept);
      for (const int64_t place : order) expected[place] = values[place];
    }
    const Sent sent = Send(TopK(keep), values);
    ASSERT_EQ(sent.expanded, expected) << "round " << round;
  }
}

// What was sent by any time, and what is left, are together what should have been sent.
TEST(MessageCompression, WithFeedback_NothingGetsLost) {
  constexpr int64_t kElements = 300;
  for (const MessageCompression& compression : {kInt8, TopK(0.02)}) {
    std::vector<std::byte> message(CompressedBytes(compression, DType::kF32, kElements));
    std::vector<float> left(kElements, 0.0f);
    std::vector<double> sent(kElements, 0.0);
    std::vector<double> wanted(kElements, 0.0);
    std::vector<float> expanded(kElements);
    for (uint32_t round = 0; round < 100; ++round) {
      const std::vector<float> values = RandomNumbers(kElements, round);
      AddNumbers(DType::kF32, values.data(), absl::MakeSpan(left));
      ASSERT_THAT(Compress(compression, absl::MakeSpan(left), absl::MakeSpan(message)), IsOk());
      ASSERT_THAT(Expand(compression, message, DType::kF32, kElements, expanded.data()), IsOk());
      for (int64_t i = 0; i < kElements; ++i) {
        sent[i] += expanded[i];
        wanted[i] += values[i];
        ASSERT_NEAR(sent[i] + left[i], wanted[i], 1e-2) << "round " << round;
      }
    }
  }
}

TEST(MessageCompression, VerySmallAndVeryLargeNumbers) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const Sent large = Send(kInt8, std::vector<float>(8, -kMax));
  EXPECT_THAT(large.expanded, Each(::testing::FloatNear(-kMax, kMax * 1e-6f)));
  // A scale that would lose bits itself: nothing is sent, and nothing is lost.
  const Sent small = Send(kInt8, std::vector<float>(8, 1e-37f));
  EXPECT_THAT(small.expanded, Each(0.0f));
  EXPECT_THAT(small.left, Each(1e-37f));
  EXPECT_THAT(Send(kInt8, std::vector<float>(300, 0.0f)).expanded, Each(0.0f));
  EXPECT_THAT(Send(TopK(0.1), std::vector<float>(300, 0.0f)).expanded, Each(0.0f));
}

TEST(MessageCompression, NumbersThatAreNotFinite_AreErrors) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const MessageCompression& compression : {kInt8, TopK(0.1)}) {
      std::vector<float> values(300, 1.0f);
      values[299] = bad;
      std::vector<std::byte> message(CompressedBytes(compression, DType::kF32, 300));
      EXPECT_THAT(Compress(compression, absl::MakeSpan(values), absl::MakeSpan(message)),
                  StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not finite")));
    }
  }
}

TEST(MessageCompression, Bf16_IsWidenedAndRounded) {
  const uint16_t from[5] = {0x3f80, 0xbf80, 0x4000, 0x0000, 0x3f81};  // 1, -1, 2, 0, 1.0078125
  std::vector<float> values(5, 0.5f);
  AddNumbers(DType::kBf16, from, absl::MakeSpan(values));
  EXPECT_THAT(values, ElementsAre(1.5f, -0.5f, 2.5f, 0.5f, 1.5078125f));
  // Halfway between 1 and the next bf16, and between that and the one after it: to the even ones.
  values.assign(10, 0.0f);
  values[0] = 1.00390625f;
  values[1] = 1.01171875f;
  std::vector<std::byte> message(CompressedBytes(TopK(0.2), DType::kBf16, 10));
  ASSERT_THAT(Compress(TopK(0.2), absl::MakeSpan(values), absl::MakeSpan(message)), IsOk());
  uint16_t expanded[10];
  ASSERT_THAT(Expand(TopK(0.2), message, DType::kBf16, 10, expanded), IsOk());
  EXPECT_THAT(expanded, ElementsAre(0x3f80, 0x3f82, 0, 0, 0, 0, 0, 0, 0, 0));
}

// ---------------------------------------------------------------------------------- hostile bytes

absl::Status ExpandBytes(const MessageCompression& compression,
                         const std::vector<std::byte>& message, int64_t elements) {
  std::vector<float> values(elements);
  return Expand(compression, message, DType::kF32, elements, values.data());
}

testing::Matcher<absl::Status> Invalid(const char* says) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(says));
}

template <typename T>
std::vector<std::byte> With(std::vector<std::byte> message, size_t at, T value) {
  std::memcpy(message.data() + at, &value, sizeof(value));
  return message;
}

TEST(MessageCompression, OtherLengths_AreErrors) {
  for (const MessageCompression& compression : {kInt8, TopK(0.1)}) {
    const std::vector<std::byte> good = Send(compression, RandomNumbers(300, 1)).message;
    for (const size_t length : {size_t{0}, size_t{1}, good.size() - 1, good.size() + 1}) {
      std::vector<std::byte> other = good;
      other.resize(length);
      EXPECT_THAT(ExpandBytes(compression, other, 300), Invalid("bytes; expected"));
    }
  }
  EXPECT_THAT(ExpandBytes({}, {}, 300), Invalid("bytes; expected"));
  EXPECT_THAT(ExpandBytes(kInt8, {}, 0), Invalid("bytes; expected"));
}

TEST(MessageCompression, Int8_BadScalesAndNumbers_AreErrors) {
  const std::vector<std::byte> good = Send(kInt8, RandomNumbers(300, 1)).message;
  for (const float scale : {-1.0f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), 1e-44f, 3e38f}) {
    EXPECT_THAT(ExpandBytes(kInt8, With(good, 4, scale), 300), Invalid("scale 1 is"));
  }
  EXPECT_THAT(ExpandBytes(kInt8, With(good, 8 + 299, int8_t{-128}), 300), Invalid("run 1 is -128"));
  EXPECT_THAT(ExpandBytes(kInt8, With(good, 0, 0.0f), 300), IsOk());
}

TEST(MessageCompression, TopK_BadPlacesAndValues_AreErrors) {
  // 3 numbers of the first run, and 1 of the 44 of the second.
  const std::vector<std::byte> good = Send(TopK(0.012), RandomNumbers(300, 1)).message;
  ASSERT_EQ(good.size(), 20u);
  const auto first = static_cast<uint8_t>(good[16]);
  EXPECT_THAT(ExpandBytes(TopK(0.012), With(good, 17, first), 300), Invalid("place 1 of run 0 is"));
  EXPECT_THAT(ExpandBytes(TopK(0.012), With(good, 17, uint8_t{0}), 300),
              Invalid("place 1 of run 0 is 0"));
  for (const uint8_t place : {44, 255}) {
    EXPECT_THAT(ExpandBytes(TopK(0.012), With(good, 19, place), 300),
                Invalid("place 0 of run 1 is"));
  }
  EXPECT_THAT(ExpandBytes(TopK(0.012), With(good, 8, std::numeric_limits<float>::quiet_NaN()), 300),
              Invalid("value 2 of run 0 is not finite"));
}

}  // namespace
}  // namespace penstock
