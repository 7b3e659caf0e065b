#include "data/augmentation.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/random.h"

namespace penstock {
namespace {

// The stream of random numbers that transformations come from ("augment" in ASCII), and words of it for a sample.
constexpr uint64_t kAugmentPurpose = 0x6175676D656E74;
constexpr uint64_t kWordsOfSample = 4;

// -crop to crop.
int64_t Shift(uint32_t word, int64_t crop) {
  const uint64_t shifts = 2 * static_cast<uint64_t>(crop) + 1;
  return static_cast<int64_t>((word * shifts) >> 32) - crop;
}

// `row` becomes `from`, which may be `row` itself, moved by `right`.
void CopyRow(const ImageShape& shape, int64_t right, const std::byte* from, std::byte* row) {
  const int64_t moved = std::min(std::abs(right), shape.width) * shape.pixel_bytes;
  const int64_t kept = shape.width * shape.pixel_bytes - moved;
  if (right >= 0) {
    std::memmove(row, from + moved, kept);
    std::memset(row + kept, 0, moved);
  } else {
    std::memmove(row + moved, from, kept);
    std::memset(row, 0, moved);
  }
}

void FlipRow(const ImageShape& shape, std::byte* row) {
  std::byte* left = row;
  std::byte* right = row + (shape.width - 1) * shape.pixel_bytes;
  for (; left < right; left += shape.pixel_bytes, right -= shape.pixel_bytes) {
    std::swap_ranges(left, left + shape.pixel_bytes, right);
  }
}

}  // namespace

Transformation TransformationOf(const Augmentation& augmentation, uint64_t seed, int64_t sample) {
  const RandomStream stream(seed, kAugmentPurpose);
  const uint64_t first = kWordsOfSample * static_cast<uint64_t>(sample);
  Transformation transformation;
  transformation.flip = augmentation.flip && (stream.At(first) >> 31) != 0;
  transformation.down = Shift(stream.At(first + 1), augmentation.crop);
  transformation.right = Shift(stream.At(first + 2), augmentation.crop);
  return transformation;
}

void Transform(const Transformation& transformation, const ImageShape& shape,
               absl::Span<std::byte> image) {
  const int64_t row_bytes = shape.width * shape.pixel_bytes;
  PENSTOCK_CHECK(static_cast<int64_t>(image.size()) == shape.height * row_bytes);
  for (int64_t i = 0; i < shape.height; ++i) {
    // Rows that are still to be read are not yet written.
    const int64_t y = transformation.down >= 0 ? i : shape.height - 1 - i;
    const int64_t from = y + transformation.down;
    std::byte* const row = image.data() + y * row_bytes;
    if (from < 0 || from >= shape.height) {
      std::memset(row, 0, row_bytes);
    } else {
      CopyRow(shape, transformation.right, image.data() + from * row_bytes, row);
    }
    if (transformation.flip) FlipRow(shape, row);
  }
}

}  // namespace penstock
