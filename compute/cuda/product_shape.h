// ProductShape: what a matrix product computes (product.h), and which algorithm was the fastest for it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <vector>

#include "compute/fp8.h"

namespace penstock::cuda {

// The operation of cuBLASLt on each element before it is written.
enum class Epilogue : uint8_t {
  kNone,
  kBias,       // + bias[column]
  kBiasGelu,   // z = product + bias is kept in `auxiliary`, the result is gelu(z) in its tanh form
  kGeluSlope,  // * gelu'(auxiliary)
  // C is as with kNone, and sums over the inner side are written, too: of the columns of B, or of the rows of A.
  kSumsOfRight,
  kSumsOfLeft,
};

struct ProductShape {
  int64_t rows = 0;     // of C and A
  int64_t columns = 0;  // of C and B
  int64_t inner = 0;
  bool transposed_left = false;   // A is stored as [inner, rows]
  bool transposed_right = false;  // B is stored as [columns, inner]
  bool accumulate = false;        // C += instead of C =
  bool adds = false;              // C = A B + D; with kBias that comes on top
  int64_t left_stride = 0;        // numbers from row to row as stored; 0: dense
  int64_t right_stride = 0;
  int64_t result_stride = 0;
  cudaDataType_t operands = CUDA_R_32F;  // A and B, and the auxiliary
  cudaDataType_t result = CUDA_R_32F;    // C, and the bias
  Epilogue epilogue = Epilogue::kNone;
  // Both or neither: the product reads copies of its bf16 operands in fp8, which each run makes. REQUIRES: all sides are
  // multiples of kFp8Multiple, A and B are dense, and at most one of the two is kE5M2.
  Fp8 left_fp8 = Fp8::kNone, right_fp8 = Fp8::kNone;

  bool in_fp8() const { return left_fp8 != Fp8::kNone; }
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

// Algorithms that were timed, by shape. Thread safety: none.
class ProductChoices {
 public:
  // Null: none yet.
  const cublasLtMatmulAlgo_t* Find(const ProductShape& shape) const {
    for (const Known& known : known_) {
      if (known.shape == shape) return &known.algorithm;
    }
    return nullptr;
  }
  void Add(const ProductShape& shape, const cublasLtMatmulAlgo_t& algorithm) {
    known_.push_back({shape, algorithm});
  }

 private:
  struct Known {
    ProductShape shape;
    cublasLtMatmulAlgo_t algorithm;
  };
  std::vector<Known> known_;
};

}  // namespace penstock::cuda
