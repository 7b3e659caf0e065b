// MatrixProduct: C = A B, or C += A B, of fixed shapes, as the oneDNN primitive that is fastest for them, made once.
// PackedProduct: the same for many A and one B, which is first packed into the format that oneDNN multiplies fastest.
//
// A MatrixProduct also packs B where that pays: a large float B that is not stored transposed, which is multiplied to the same
// bits, and a bf16 B with a short side on CPUs with the tiles of AMX (docs/benchmarks.md, "One worker against PyTorch").
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
  // Of MatrixProducts: the caller has memory for a packed B, so none is kept for it here, and all runs are RunPrepared.
  bool prepared = false;

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
  // `scratch`: as of Primitive::Run. REQUIRES: not ProductShape::prepared.
  void Run(const void* left, const void* right, float* result, void* scratch = nullptr) const;
  // Multiplies `runs` blocks of `rows` rows of A, which follow each other, by one B; so do their results in C.
  // REQUIRES: not ProductShape::prepared; the scratch memory is the context's; A is not stored transposed.
  void RunAll(int64_t runs, const void* left, const void* right, float* result) const;

  // For runs with one B and other work between them. Prepare returns what RunPrepared reads in place of B, which is
  // `memory`, of prepared_bytes() at a multiple of 64, or B itself where nothing is packed (0 bytes).
  // REQUIRES: ProductShape::prepared; the scratch memory is the context's.
  int64_t prepared_bytes() const;
  const void* Prepare(const void* right, void* memory) const;
  void RunPrepared(const void* left, const void* prepared, float* result) const;

 private:
  absl::Status MakePacked(dnnl::memory::data_type type);
  void RunUnpacked(const void* left, const void* right, float* result, void* scratch) const;
  void RunInFp8(const void* left, const void* right, float* result) const;
  // Of `rows` rows, where B is to be packed, and where it is. `scratch`: as of Primitive::Run.
  void PackAndRun(int64_t rows, const void* left, const void* right, float* result) const;
  void RunPacked(int64_t rows, const void* left, const void* packed, float* result,
                 void* scratch) const;

  ProductShape shape_;
  Primitive primitive_;
  // Instead of it, where B is packed: of `block_rows_` rows of A and C.
  std::optional<PackedProduct> packed_;
  int64_t block_rows_ = 0;
  int64_t left_row_bytes_ = 0;  // of A
  CpuContext* context_ = nullptr;
};

}  // namespace penstock
