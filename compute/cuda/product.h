// MatrixProduct: C = alpha A B, C += alpha A B, or C = alpha A B + D, of fixed shapes, through cuBLASLt with the algorithm
// its heuristics rank first, chosen once. With Repeatability::kFast the first ones are timed, once for each shape, and the
// fastest is taken.
//
// A and B are float or bf16, row-major, either may be stored transposed; sums run in float. With float
// operands products are true f32, not TF32. A product of fp8 first makes copies of A and B, each with a scale of its own
// (kernels/fp8.h), in memory that all of them share. With kBitwise algorithms whose sums depend on timing are left out, so
// results repeat bit for bit on one kind of device.
#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/cuda/context.h"
#include "compute/cuda/product_shape.h"

namespace penstock::cuda {

struct ProductOperands {
  const void* left = nullptr;
  const void* right = nullptr;
  void* result = nullptr;
  const void* addend = nullptr;  // D, laid out as C
  const void* bias = nullptr;    // [columns]
  void* auxiliary = nullptr;     // [rows, columns]
  float* sums = nullptr;         // [columns] of B, or [rows] of A. REQUIRES: alpha == 1
  float alpha = 1.0f;
};

class MatrixProduct {
 public:
  MatrixProduct() = default;
  // REQUIRES: `context` outlives the product.
  // Errors: Unimplemented (cuBLASLt has no algorithm for it, as for odd sizes with an epilogue), Internal.
  static absl::StatusOr<MatrixProduct> Create(CudaContext& context, const ProductShape& shape);
  MatrixProduct(MatrixProduct&& other) noexcept;
  MatrixProduct& operator=(MatrixProduct&& other) noexcept;
  ~MatrixProduct();

  // Algorithms are chosen for matrices that begin at multiples of this. Parameters do: they begin at multiples of 16 numbers,
  // which are 32 bytes in bf16.
  static constexpr uintptr_t kAlignmentBytes = 32;
  static bool IsAligned(const void* matrix) {
    return reinterpret_cast<uintptr_t>(matrix) % kAlignmentBytes == 0;
  }

  // Queues the product. Errors: those of cuBLASLt.
  absl::Status Run(const ProductOperands& operands) const;

 private:
  absl::Status Describe(const ProductShape& shape);
  absl::Status Choose();
  // The fastest of these, timed on memory that is free; the first where there is none, or none can be timed.
  cublasLtMatmulAlgo_t Fastest(absl::Span<const cublasLtMatmulHeuristicResult_t> candidates) const;
  absl::Status Queue(const ProductOperands& operands, const cublasLtMatmulAlgo_t& algorithm) const;
  absl::Status SetScales() const;
  // Queues the copies in fp8, and points `operands` at them.
  void RoundOperands(ProductOperands& operands) const;
  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) const;
  void Swap(MatrixProduct& other);

  CudaContext* context_ = nullptr;
  ProductShape shape_;
  // cuBLASLt's matrices are column-major: it computes C^T = B^T A^T.
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr, right_ = nullptr, result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

}  // namespace penstock::cuda
