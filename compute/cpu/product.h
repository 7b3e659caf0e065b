// MatrixProduct: C = A B, or C += A B, of fixed shapes, as one oneDNN matmul primitive made once. PackedProduct: the same
// for many A and one B, which is first packed into the format that oneDNN multiplies fastest. A MatrixProduct packs a large
// float B that is not stored transposed in each run: oneDNN multiplies it up to three times as fast then, and to the same bits.
//
// A and B are float or bf16, dense and row-major, either may be stored transposed; C is float and sums
// run in float. A product of fp8 rounds copies of them in each run (fp8_operands.h).
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "compute/cpu/context.h"
#include "compute/cpu/primitive.h"
#include "compute/fp8.h"

namespace penstock {

struct ProductShape {
  int64_t rows = 0;     // of C and A
  int64_t columns = 0;  // of C and B
  int64_t inner = 0;
  bool transposed_left = false;   // A is stored as [inner, rows]
  bool transposed_right = false;  // B is stored as [columns, inner]
  bool accumulate = false;        // C += instead of C =
  // Of MatrixProducts of bf16; both or neither.
  Fp8 left_fp8 = Fp8::kNone, right_fp8 = Fp8::kNone;

  bool in_fp8() const { return left_fp8 != Fp8::kNone; }
};

class PackedProduct {
 public:
  PackedProduct() = default;

  // As MatrixProduct::Create.
  static absl::StatusOr<PackedProduct> Create(
      CpuContext& context, const ProductShape& shape, dnnl::memory::data_type type,
      Primitive::ScratchOf scratch = Primitive::ScratchOf::kContext);

  int64_t packed_bytes() const { return packed_bytes_; }
  // False where B has the fastest format as it is stored.
  bool changes_format() const { return changes_format_; }
  int64_t scratch_bytes() const;  // of either
  // `scratch`: as of Primitive::Run.
  void Pack(const void* right, void* packed, void* scratch = nullptr) const {
    pack_.Run({right, packed}, scratch);
  }
  void Run(const void* left, const void* packed, float* result, void* scratch = nullptr) const {
    product_.Run({left, packed, result}, scratch);
  }

 private:
  Primitive pack_, product_;
  int64_t packed_bytes_ = 0;
  bool changes_format_ = false;
};

class MatrixProduct {
 public:
  MatrixProduct() = default;

  // REQUIRES: `context` outlives the product; no pass is running. `type`: f32 or bf16.
  // Errors: those of WithOneDnn and Primitive::Create.
  static absl::StatusOr<MatrixProduct> Create(
      CpuContext& context, const ProductShape& shape, dnnl::memory::data_type type,
      Primitive::ScratchOf scratch = Primitive::ScratchOf::kContext);

  int64_t scratch_bytes() const { return primitive_.scratch_bytes(); }
  // `scratch`: as of Primitive::Run.
  void Run(const void* left, const void* right, float* result, void* scratch = nullptr) const;

 private:
  void RunInFp8(const void* left, const void* right, float* result) const;

  ProductShape shape_;
  Primitive primitive_;
  // Instead of it, where B is packed in each run, into the beginning of the context's scratch memory.
  std::optional<PackedProduct> packed_;
  CpuContext* context_ = nullptr;
};

}  // namespace penstock
