// Augmentation: images as training sees them, flipped and cropped at random.
//
//   flip  left and right are swapped, for half of all samples
//   crop  the image is moved by up to `crop` pixels in each direction, as if it were cut out of one with that much
//         margin of zeros around it (He et al., "Deep residual learning", 2015, on CIFAR-10)
//
// A pure function of seed and sample: all ports of a sample, on whatever worker, are treated alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace penstock {

struct Augmentation {
  bool flip = false;
  int64_t crop = 0;  // pixels

  bool any() const { return flip || crop > 0; }
  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

// Rows of pixels, which have `pixel_bytes` each: [height, width, channels].
struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t pixel_bytes = 0;
};

// What happens to one sample: output pixel (y, x) is input pixel (y + down, x + right), zero outside, and then flipped.
struct Transformation {
  int64_t down = 0;
  int64_t right = 0;
  bool flip = false;

  friend bool operator==(const Transformation&, const Transformation&) = default;
};
Transformation TransformationOf(const Augmentation& augmentation, uint64_t seed, int64_t sample);

// Changes the image in place. REQUIRES: `image` has the bytes of `shape`.
void Transform(const Transformation& transformation, const ImageShape& shape,
               absl::Span<std::byte> image);

}  // namespace penstock
