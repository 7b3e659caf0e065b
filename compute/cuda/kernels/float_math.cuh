// What the functions and steps of compute/elementwise/ are made of, for floats of a thread.
#pragma once

#include <cuda_runtime_api.h>

#include "compute/elementwise/activation.h"

namespace penstock::cuda {

struct FloatMath {
  __device__ static float Sqrt(float x) { return sqrtf(x); }
  __device__ static float Exp(float x) {
    x = -87.0f > x ? -87.0f : x;
    return expf(88.0f < x ? 88.0f : x);
  }
  __device__ static float Tanh(float x) { return tanhf(x); }
  __device__ static float Normal(float x, float /*density*/) { return normcdff(x); }
};

using Sigmoid = Functions<FloatMath>::Sigmoid;
using Tanh = Functions<FloatMath>::Tanh;
using GeluTanh = Functions<FloatMath>::GeluTanh;

}  // namespace penstock::cuda
