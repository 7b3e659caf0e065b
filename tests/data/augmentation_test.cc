#include "data/augmentation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace penstock {
namespace {

constexpr ImageShape kShape = {.height = 3, .width = 4, .pixel_bytes = 2};

// Pixels 1 to 12, each byte of a pixel by itself.
std::vector<std::byte> Image() {
  std::vector<std::byte> image;
  for (int i = 0; i < 12; ++i) {
    image.push_back(static_cast<std::byte>(i + 1));
    image.push_back(static_cast<std::byte>(101 + i));
  }
  return image;
}

// The definition, pixel by pixel.
std::vector<std::byte> Expected(const Transformation& t) {
  const std::vector<std::byte> image = Image();
  std::vector<std::byte> result(image.size());
  for (int64_t y = 0; y < kShape.height; ++y) {
    for (int64_t x = 0; x < kShape.width; ++x) {
      const int64_t from_y = y + t.down;
      const int64_t from_x = (t.flip ? kShape.width - 1 - x : x) + t.right;
      if (from_y < 0 || from_y >= kShape.height || from_x < 0 || from_x >= kShape.width) continue;
      for (int64_t byte = 0; byte < 2; ++byte) {
        result[(y * kShape.width + x) * 2 + byte] =
            image[(from_y * kShape.width + from_x) * 2 + byte];
      }
    }
  }
  return result;
}

TEST(Transform, AnyShiftAndFlip_IsTheDefinition) {
  for (int64_t down = -5; down <= 5; ++down) {
    for (int64_t right = -5; right <= 5; ++right) {
      for (const bool flip : {false, true}) {
        const Transformation transformation = {.down = down, .right = right, .flip = flip};
        std::vector<std::byte> image = Image();
        Transform(transformation, kShape, absl::MakeSpan(image));
        EXPECT_EQ(image, Expected(transformation)) << down << " " << right << " " << flip;
      }
    }
  }
}

TEST(TransformationOf, IsAFunctionOfSeedAndSample) {
  const Augmentation augmentation = {.flip = true, .crop = 4};
  int same = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const Transformation once = TransformationOf(augmentation, 1, sample);
    EXPECT_EQ(TransformationOf(augmentation, 1, sample), once);
    same += TransformationOf(augmentation, 2, sample) == once;
  }
  EXPECT_LT(same, 30);  // one in 162 by chance
}

TEST(TransformationOf, ShiftsAndFlips_AreUniform) {
  std::map<int64_t, int> down;
  std::map<int64_t, int> right;
  int flips = 0;
  for (int64_t sample = 0; sample < 9000; ++sample) {
    const Transformation t = TransformationOf({.flip = true, .crop = 4}, 3, sample);
    ++down[t.down];
    ++right[t.right];
    flips += t.flip;
  }
  ASSERT_EQ(down.size(), 9u);
  ASSERT_EQ(right.size(), 9u);
  EXPECT_EQ(down.begin()->first, -4);
  EXPECT_EQ(right.rbegin()->first, 4);
  for (const auto& counts : {down, right}) {
    for (const auto& [shift, count] : counts) EXPECT_NEAR(count, 1000, 130) << shift;
  }
  EXPECT_NEAR(flips, 4500, 200);
}

TEST(TransformationOf, WithoutAugmentation_ChangesNothing) {
  for (int64_t sample = 0; sample < 100; ++sample) {
    EXPECT_EQ(TransformationOf({}, 3, sample), Transformation());
  }
}

}  // namespace
}  // namespace penstock
