// The number that matrix products read: float, or bf16 as bits.
#pragma once

#include <library_types.h>

#include <type_traits>

#include "compute/cuda/kernels/kernels.h"
#include "compute/op_kernels.h"

namespace penstock::cuda {

template <typename Number>
inline constexpr bool kIsFloat = std::is_same_v<Number, float>;

template <typename Number>
inline constexpr cudaDataType_t kTypeOf = kIsFloat<Number> ? CUDA_R_32F : CUDA_R_16BF;

// A parameter as the products read it.
template <typename Number>
const Number* ParameterOf(const WeightView& weights, int parameter) {
  if constexpr (kIsFloat<Number>) {
    return weights.parameter(parameter);
  } else {
    return weights.bf16_parameter(parameter);
  }
}

}  // namespace penstock::cuda
