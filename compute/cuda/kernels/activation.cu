// Functions of each element by itself.
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/values.h"

namespace penstock::cuda {
namespace {

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

// Calls visit(Function()).
template <typename Visit>
void With(Activation activation, Visit visit) {
  switch (activation) {
    case Activation::kRelu:
      return visit(Relu());
    case Activation::kGeluTanh:
      return visit(GeluTanh());
    case Activation::kGeluErf:
      return visit(GeluErf());
    case Activation::kSilu:
      return visit(Silu());
    case Activation::kTanh:
      return visit(Tanh());
    case Activation::kSigmoid:
      return visit(Sigmoid());
  }
}

template <typename Function>
void ActivateWith(cudaStream_t stream, int64_t count, const float* x, float* y) {
  ForEach(stream, count, [=] __device__(int64_t at) { y[at] = Function::Value(x[at]); });
}

template <typename Function>
void ActivateBackwardWith(cudaStream_t stream, int64_t count, const float* seen, const float* dy,
                          float* dx) {
  ForEach(stream, count,
          [=] __device__(int64_t at) { dx[at] = dy[at] * Function::Slope(seen[at]); });
}

}  // namespace

void Activate(cudaStream_t stream, Activation activation, int64_t count, const float* x, float* y) {
  With(activation, [&](auto function) { ActivateWith<decltype(function)>(stream, count, x, y); });
}

void ActivateBackward(cudaStream_t stream, Activation activation, int64_t count, const float* seen,
                      const float* dy, float* dx) {
  With(activation, [&](auto function) {
    ActivateBackwardWith<decltype(function)>(stream, count, seen, dy, dx);
  });
}

}  // namespace penstock::cuda
