#include "tests/compute/played_products.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compute/bf16.h"
#include "compute/cpu/fp8_operands.h"
#include "compute/cuda/kernels/fp8.h"
#include "tests/compute/fake_cuda.h"

namespace penstock::fake_cuda {
namespace {

// The number that a code stands for.
float FromFp8(Fp8 format, uint8_t code) {
  const int mantissa_bits = Fp8MantissaBits(format);
  const int exponent = (code & 0x7F) >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const float magnitude =
      std::ldexp(static_cast<float>(whole),
                 Fp8ExponentMin(format) - mantissa_bits + (exponent == 0 ? 0 : exponent - 1));
  return code < 0x80 ? magnitude : -magnitude;
}

float Load(cudaDataType_t type, const void* array, int64_t at) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(array)[at];
    case CUDA_R_16BF:
      return FromBf16(static_cast<const uint16_t*>(array)[at]);
    case CUDA_R_8F_E4M3:
      return FromFp8(Fp8::kE4M3, static_cast<const uint8_t*>(array)[at]);
    case CUDA_R_8F_E5M2:
      return FromFp8(Fp8::kE5M2, static_cast<const uint8_t*>(array)[at]);
    default:
      PENSTOCK_CHECK(false);
  }
}

void Store(cudaDataType_t type, float value, void* array, int64_t at) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(array)[at] = value;
  } else {
    PENSTOCK_CHECK(type == CUDA_R_16BF);
    static_cast<uint16_t*>(array)[at] = ToBf16(value);
  }
}

bool IsFp8(const PlayedLayout& layout) {
  return layout.type == CUDA_R_8F_E4M3 || layout.type == CUDA_R_8F_E5M2;
}

bool IsTransposed(const PlayedDescription& description, cublasLtMatmulDescAttributes_t attribute) {
  return description.Get<int32_t>(attribute, CUBLAS_OP_N) == CUBLAS_OP_T;
}

float Gelu(float z) {
  return 0.5f * z * (1.0f + std::tanh(0.7978845608f * (z + 0.044715f * z * z * z)));
}

}  // namespace

bool IsSupported(const PlayedDescription& description, const PlayedLayout& a, const PlayedLayout& b,
                 const PlayedLayout& d) {
  if (!IsFp8(a) && !IsFp8(b)) return true;
  const auto epilogue =
      description.Get<int32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  if (epilogue == CUBLASLT_EPILOGUE_BIAS && d.type == CUDA_R_32F) return false;
  for (const int64_t side : {a.rows, a.columns, b.rows, b.columns, d.rows, d.columns}) {
    if (side % 16 != 0) return false;
  }
  return IsFp8(a) && IsFp8(b) && (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3) &&
         IsTransposed(description, CUBLASLT_MATMUL_DESC_TRANSA) &&
         !IsTransposed(description, CUBLASLT_MATMUL_DESC_TRANSB);
}

void Multiply(const PlayedDescription& description, const PlayedOperands& o) {
  const bool transposed_a = IsTransposed(description, CUBLASLT_MATMUL_DESC_TRANSA);
  const bool transposed_b = IsTransposed(description, CUBLASLT_MATMUL_DESC_TRANSB);
  const auto scale = [&](cublasLtMatmulDescAttributes_t attribute) {
    const auto* const at = description.Get<const float*>(attribute, nullptr);
    return at == nullptr ? 1.0f : *at;
  };
  const float alpha = o.alpha * scale(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) *
                      scale(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  const auto epilogue =
      description.Get<int32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  void* const bias = description.Get<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  const auto bias_type = static_cast<cudaDataType_t>(description.Get<int32_t>(
      CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(o.d_layout.type)));
  void* const auxiliary =
      description.Get<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr);
  const auto auxiliary_stride =
      description.Get<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{0});
  const auto auxiliary_type = static_cast<cudaDataType_t>(description.Get<int32_t>(
      CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, static_cast<int32_t>(o.d_layout.type)));
  const int64_t inner = transposed_a ? o.a_layout.rows : o.a_layout.columns;
  PENSTOCK_CHECK(inner == (transposed_b ? o.b_layout.columns : o.b_layout.rows));
  const auto a = [&](int64_t row, int64_t k) {
    const int64_t stride = o.a_layout.stride;
    return Load(o.a_layout.type, o.a, transposed_a ? k + row * stride : row + k * stride);
  };
  const auto b = [&](int64_t k, int64_t column) {
    const int64_t stride = o.b_layout.stride;
    return Load(o.b_layout.type, o.b, transposed_b ? column + k * stride : k + column * stride);
  };
  for (int64_t row = 0; row < o.d_layout.rows; ++row) {
    for (int64_t column = 0; column < o.d_layout.columns; ++column) {
      double sum = 0.0;
      for (int64_t k = 0; k < inner; ++k) sum += double{a(row, k)} * b(k, column);
      const int64_t at = row + column * o.d_layout.stride;
      auto value = static_cast<float>(alpha * sum);
      if (o.beta != 0.0f) value += o.beta * Load(o.d_layout.type, o.c, at);
      if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        value += Load(bias_type, bias, row);
      }
      if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        Store(auxiliary_type, value, auxiliary, row + column * auxiliary_stride);
        value = Gelu(value);
      } else if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
        const float z = Load(auxiliary_type, auxiliary, row + column * auxiliary_stride);
        constexpr float kStep = 1e-3f;
        value *= (Gelu(z + kStep) - Gelu(z - kStep)) / (2 * kStep);
      }
      Store(o.d_layout.type, value, o.d, at);
    }
  }
  if (epilogue == CUBLASLT_EPILOGUE_BGRADA) {
    for (int64_t row = 0; row < o.d_layout.rows; ++row) {
      float sum = 0.0f;
      for (int64_t k = 0; k < inner; ++k) sum += a(row, k);
      Store(bias_type, sum, bias, row);
    }
  } else if (epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    for (int64_t column = 0; column < o.d_layout.columns; ++column) {
      float sum = 0.0f;
      for (int64_t k = 0; k < inner; ++k) sum += b(k, column);
      Store(bias_type, sum, bias, column);
    }
  }
}

}  // namespace penstock::fake_cuda

namespace penstock::cuda {

// As kernels/fp8.cu.
void RoundToFp8(cudaStream_t stream, Fp8 format, bool transposed, int64_t rows, int64_t columns,
                const Bf16* from, uint8_t* to, Fp8Scale* scale) {
  fake_cuda::Launch(stream, [=] {
    std::vector<uint16_t> rounded(rows * columns);
    RoundOperandToFp8(format, {from, rounded.size()}, rounded.data());
    scale->largest = 0;
    for (int64_t i = 0; i < rows * columns; ++i) {
      scale->largest = std::max(scale->largest, uint32_t{from[i]} << 16 & 0x7FFFFFFF);
    }
    PENSTOCK_CHECK(scale->largest < kInfiniteBits);  // no test has others
    const int exponent = Fp8ScaleExponent(format, scale->largest);
    scale->inverse = std::ldexp(1.0f, -exponent);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const float number = std::ldexp(FromBf16(rounded[row * columns + column]), exponent);
        uint8_t code = 0;
        while (fake_cuda::FromFp8(format, code) != number) PENSTOCK_CHECK(++code != 0);
        to[transposed ? column * rows + row : row * columns + column] = code;
      }
    }
  });
}

}  // namespace penstock::cuda
