// Functions of one number: the value, and the slope, of the value or of the number by HasSlopeOfOutput (values.h).
#pragma once

#include <cuda_runtime_api.h>

namespace penstock::cuda {

// Keeps what is no number, as max(x, 0) of PyTorch does.
struct Relu {
  __device__ static float Value(float x) { return x < 0.0f ? 0.0f : x; }
  __device__ static float Slope(float y) { return y > 0.0f ? 1.0f : 0.0f; }
};

struct Sigmoid {
  __device__ static float Value(float x) { return 1.0f / (1.0f + expf(-x)); }
  __device__ static float Slope(float y) { return y * (1.0f - y); }
};

struct Silu {
  __device__ static float Value(float x) { return x * Sigmoid::Value(x); }
  __device__ static float Slope(float x) {
    const float s = Sigmoid::Value(x);
    // 1 - s, without cancellation.
    return s + x * s * Sigmoid::Value(-x);
  }
};

struct Tanh {
  __device__ static float Value(float x) { return tanhf(x); }
  __device__ static float Slope(float y) { return 1.0f - y * y; }
};

// In its tanh form x s(2u), where s is the logistic function and u = kRoot (x + kCubic x^3): Hendrycks and Gimpel,
// arXiv 1606.08415.
struct GeluTanh {
  static constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;

  __device__ static float Twice(float x) { return 2.0f * kRoot * x * (1.0f + kCubic * x * x); }
  __device__ static float Value(float x) { return x * Sigmoid::Value(Twice(x)); }
  __device__ static float Slope(float x) {
    const float s = Sigmoid::Value(Twice(x));
    const float twice_slope = 2.0f * kRoot * (1.0f + 3.0f * kCubic * x * x);
    return s + x * s * Sigmoid::Value(-Twice(x)) * twice_slope;
  }
};

// x P(x), where P is the normal distribution.
struct GeluErf {
  __device__ static float Value(float x) { return x * normcdff(x); }
  __device__ static float Slope(float x) {
    constexpr float kScale = 0.3989422804014327f;  // 1 / sqrt(2 pi)
    return normcdff(x) + x * kScale * expf(-0.5f * x * x);
  }
};

}  // namespace penstock::cuda
