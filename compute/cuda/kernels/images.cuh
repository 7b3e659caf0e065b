// Device code for images: places in [samples, height, width, channels], and where windows meet them.
#pragma once

#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/kernels/images.h"

namespace penstock::cuda {

struct ImageSize {
  int64_t height, width, channels;

  int64_t elements() const { return height * width * channels; }
};

struct ImagePlace {
  int64_t sample, row, column, channel;
};

__device__ inline ImagePlace PlaceOf(const ImageSize& s, int64_t element) {
  const int64_t pixel = element / s.channels;
  return {pixel / s.width / s.height, pixel / s.width % s.height, pixel % s.width,
          element % s.channels};
}
__device__ inline int64_t ElementOf(const ImageSize& s, const ImagePlace& place) {
  return ((place.sample * s.height + place.row) * s.width + place.column) * s.channels +
         place.channel;
}

// The input that element `k` of output i's window sees, which may lie outside.
__device__ inline int64_t InputOf(const ImageAxis& axis, int64_t i, int64_t k) {
  return i * axis.stride - axis.before + k * axis.dilation;
}

// The output whose element `k` sees input j; -1 if there is none.
__device__ inline int64_t OutputOf(const ImageAxis& axis, int64_t j, int64_t k) {
  const int64_t from = j + axis.before - k * axis.dilation;
  if (from < 0 || from % axis.stride != 0) return -1;
  const int64_t output = from / axis.stride;
  return output < axis.outputs ? output : -1;
}

__device__ inline bool Inside(const ImageAxis& axis, int64_t j) {
  return j >= 0 && j < axis.inputs;
}

}  // namespace penstock::cuda
