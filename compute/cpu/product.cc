#include "compute/cpu/product.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/fp8_operands.h"

namespace penstock {
namespace {

using dnnl::memory;

// A dense matrix, described as [rows, columns] whether or not it is stored transposed.
memory::desc Matrix(int64_t rows, int64_t columns, memory::data_type type, bool transposed) {
  const memory::dims strides = transposed ? memory::dims{1, rows} : memory::dims{columns, 1};
  return {{rows, columns}, type, strides};
}

std::string ProductText(const ProductShape& shape, memory::data_type type) {
  return absl::StrFormat("a product of [%d, %d] by [%d, %d] in %s", shape.rows, shape.inner,
                         shape.inner, shape.columns,
                         type == memory::data_type::bf16 ? "bf16" : "f32");
}

// Packing takes as long as some dozens of rows of the product, and pays where reading B as it is misses caches.
constexpr int64_t kPackedRowsMin = 64;
constexpr int64_t kPackedBytesMin = int64_t{4} << 20;

// With the tiles of AMX, one thread packs a bf16 B with a short side, for blocks of rows whose results stay in a cache.
// Otherwise oneDNN is about as fast on B as it is stored.
constexpr int64_t kNarrowRowsMin = 128;
constexpr int64_t kNarrowInnerMax = 384;
constexpr int64_t kNarrowColumnsMax = 256;
constexpr int64_t kNarrowBlockRows = 64;
// With many rows of B and few columns, the products of oneDNN's inner product are faster than its matmul's.
constexpr int64_t kLongRowsMin = 128;
constexpr int64_t kLongInnerMin = 2048;

// The limits above were measured with oneDNN 2.6; a later one may read such a B as fast as it is stored.
bool ReadsRowsOfBf16WithTiles(const CpuContext& context, const ProductShape& shape,
                              memory::data_type type) {
  return DNNL_VERSION_MAJOR == 2 && type == memory::data_type::bf16 && context.has_bf16_tiles &&
         !shape.transposed_left && !shape.in_fp8();
}

// Rows of A in a run of the product with a packed B; 0: B is not packed.
int64_t PackedRows(const CpuContext& context, const ProductShape& shape, memory::data_type type) {
  if (type == memory::data_type::f32) {
    const bool is_large =
        shape.rows >= kPackedRowsMin &&
        shape.inner * shape.columns * static_cast<int64_t>(sizeof(float)) >= kPackedBytesMin;
    return is_large && !shape.transposed_right ? shape.rows : 0;
  }
  const bool is_narrow = (shape.inner <= kNarrowInnerMax && shape.columns >= 2 * shape.inner) ||
                         (shape.columns <= kNarrowColumnsMax && shape.inner >= 2 * shape.columns);
  const bool has_blocks = shape.rows >= kNarrowRowsMin && shape.rows % kNarrowBlockRows == 0;
  const bool packs = is_narrow && has_blocks && context.threads.count() == 1 &&
                     ReadsRowsOfBf16WithTiles(context, shape, type);
  return packs ? kNarrowBlockRows : 0;
}

bool IsLong(const CpuContext& context, const ProductShape& shape, memory::data_type type) {
  return shape.rows >= kLongRowsMin && shape.inner >= kLongInnerMin &&
         shape.inner >= 2 * shape.columns && ReadsRowsOfBf16WithTiles(context, shape, type);
}

// Where scratch memory begins behind a packed matrix.
int64_t ScratchAt(int64_t packed_bytes) { return (packed_bytes + 63) / 64 * 64; }

// Where a product of fp8 has its rounded operands, and oneDNN its scratch memory.
struct Fp8Scratch {
  explicit Fp8Scratch(const ProductShape& shape)
      : left(layout.Add<uint16_t>(shape.rows * shape.inner)),
        right(layout.Add<uint16_t>(shape.inner * shape.columns)),
        library(layout.Add<char>(0)) {}

  BlockLayout layout;
  Place<uint16_t> left, right;
  Place<char> library;  // to the end
};

}  // namespace

absl::StatusOr<PackedProduct> PackedProduct::Create(CpuContext& context, const ProductShape& shape,
                                                    memory::data_type type,
                                                    Primitive::ScratchOf scratch) {
  const auto make = [&]() -> absl::StatusOr<PackedProduct> {
    const memory::desc left = Matrix(shape.rows, shape.inner, type, shape.transposed_left);
    const memory::desc stored = Matrix(shape.inner, shape.columns, type, shape.transposed_right);
    const memory::desc any({shape.inner, shape.columns}, type, memory::format_tag::any);
    const memory::desc result = Matrix(shape.rows, shape.columns, memory::data_type::f32, false);
    const auto description = DescribeForward<dnnl::matmul>(
        context, PrimitiveAttributes(shape.accumulate), left, any, result);
    const memory::desc packed = description.weights_desc();
    PackedProduct product;
    product.packed_bytes_ = static_cast<int64_t>(packed.get_size());
    product.changes_format_ = packed != stored;
    PENSTOCK_ASSIGN_OR_RETURN(
        product.pack_,
        Primitive::Create<dnnl::reorder>(
            context, {context.engine, stored, context.engine, packed, PrimitiveAttributes()},
            {{DNNL_ARG_FROM, stored}, {DNNL_ARG_TO, packed}}, scratch));
    PENSTOCK_ASSIGN_OR_RETURN(
        product.product_,
        Primitive::Create<dnnl::matmul>(
            context, description,
            {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, result}}, scratch));
    return product;
  };
  return WithOneDnn(context, ProductText(shape, type), make);
}

int64_t PackedProduct::scratch_bytes() const {
  return std::max(pack_.scratch_bytes(), product_.scratch_bytes());
}

absl::Status MatrixProduct::MakePacked(memory::data_type type) {
  ProductShape block = shape_;
  block.rows = block_rows_;
  PENSTOCK_ASSIGN_OR_RETURN(
      PackedProduct packed,
      PackedProduct::Create(*context_, block, type, Primitive::ScratchOf::kCaller));
  if (!packed.changes_format()) return absl::OkStatus();
  const int64_t in_each_run = shape_.prepared ? 0 : ScratchAt(packed.packed_bytes());
  PENSTOCK_RETURN_IF_ERROR(context_->product_scratch.Reserve(in_each_run + packed.scratch_bytes()));
  packed_ = std::move(packed);
  return absl::OkStatus();
}

absl::StatusOr<MatrixProduct> MatrixProduct::Create(CpuContext& context, const ProductShape& shape,
                                                    memory::data_type type,
                                                    Primitive::ScratchOf scratch) {
  MatrixProduct product;
  product.context_ = &context;
  product.shape_ = shape;
  product.left_row_bytes_ = shape.inner * static_cast<int64_t>(memory::data_type_size(type));
  PENSTOCK_CHECK(!shape.in_fp8() ||
                 (type == memory::data_type::bf16 && scratch == Primitive::ScratchOf::kContext));
  product.block_rows_ = PackedRows(context, shape, type);
  if (scratch == Primitive::ScratchOf::kContext && product.block_rows_ > 0) {
    PENSTOCK_RETURN_IF_ERROR(product.MakePacked(type));
    if (product.packed_.has_value()) return product;
  }
  const auto scratch_of = shape.in_fp8() ? Primitive::ScratchOf::kCaller : scratch;
  const memory::desc result = Matrix(shape.rows, shape.columns, memory::data_type::f32, false);
  const auto make = [&]() -> absl::StatusOr<Primitive> {
    const memory::desc left = Matrix(shape.rows, shape.inner, type, shape.transposed_left);
    if (IsLong(context, shape, type)) {
      // Of a layer that turns `inner` features into `columns`.
      const memory::desc right = Matrix(shape.columns, shape.inner, type, !shape.transposed_right);
      const auto description = DescribeForward<dnnl::inner_product_forward>(
          context, PrimitiveAttributes(shape.accumulate), dnnl::prop_kind::forward_inference, left,
          right, result);
      return Primitive::Create<dnnl::inner_product_forward>(
          context, description,
          {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}}, scratch_of);
    }
    const memory::desc right = Matrix(shape.inner, shape.columns, type, shape.transposed_right);
    const auto description = DescribeForward<dnnl::matmul>(
        context, PrimitiveAttributes(shape.accumulate), left, right, result);
    return Primitive::Create<dnnl::matmul>(
        context, description,
        {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}}, scratch_of);
  };
  PENSTOCK_ASSIGN_OR_RETURN(product.primitive_,
                            WithOneDnn(context, ProductText(shape, type), make));
  if (shape.in_fp8()) {
    PENSTOCK_RETURN_IF_ERROR(context.product_scratch.Reserve(Fp8Scratch(shape).layout.size_bytes() +
                                                             product.primitive_.scratch_bytes()));
  }
  return product;
}

void MatrixProduct::Run(const void* left, const void* right, float* result, void* scratch) const {
  PENSTOCK_CHECK(!shape_.prepared);
  if (packed_.has_value()) return PackAndRun(shape_.rows, left, right, result);
  RunUnpacked(left, right, result, scratch);
}

void MatrixProduct::RunAll(int64_t runs, const void* left, const void* right, float* result) const {
  PENSTOCK_CHECK(!shape_.prepared);
  if (packed_.has_value()) return PackAndRun(runs * shape_.rows, left, right, result);
  for (int64_t run = 0; run < runs; ++run) {
    RunUnpacked(static_cast<const char*>(left) + run * shape_.rows * left_row_bytes_, right,
                result + run * shape_.rows * shape_.columns, /*scratch=*/nullptr);
  }
}

int64_t MatrixProduct::prepared_bytes() const {
  return shape_.prepared && packed_.has_value() ? packed_->packed_bytes() : 0;
}

const void* MatrixProduct::Prepare(const void* right, void* memory) const {
  PENSTOCK_CHECK(shape_.prepared);
  if (!packed_.has_value()) return right;
  packed_->Pack(right, memory);
  return memory;
}

void MatrixProduct::RunPrepared(const void* left, const void* prepared, float* result) const {
  PENSTOCK_CHECK(shape_.prepared);
  if (packed_.has_value()) {
    RunPacked(shape_.rows, left, prepared, result, /*scratch=*/nullptr);
  } else {
    RunUnpacked(left, prepared, result, /*scratch=*/nullptr);
  }
}

void MatrixProduct::RunUnpacked(const void* left, const void* right, float* result,
                                void* scratch) const {
  if (shape_.in_fp8()) return RunInFp8(left, right, result);
  primitive_.Run({left, right, result}, scratch);
}

void MatrixProduct::PackAndRun(int64_t rows, const void* left, const void* right,
                               float* result) const {
  char* const memory = static_cast<char*>(context_->product_scratch.data());
  char* const rest = memory + ScratchAt(packed_->packed_bytes());
  packed_->Pack(right, memory, rest);
  RunPacked(rows, left, memory, result, rest);
}

void MatrixProduct::RunPacked(int64_t rows, const void* left, const void* packed, float* result,
                              void* scratch) const {
  for (int64_t row = 0; row < rows; row += block_rows_) {
    packed_->Run(static_cast<const char*>(left) + row * left_row_bytes_, packed,
                 result + row * shape_.columns, scratch);
  }
}

void MatrixProduct::RunInFp8(const void* left, const void* right, float* result) const {
  const Fp8Scratch scratch(shape_);
  void* const memory = context_->product_scratch.data();
  const auto round = [&](Fp8 format, int64_t count, const void* from, uint16_t* to) {
    RoundOperandToFp8(format, {static_cast<const uint16_t*>(from), static_cast<size_t>(count)}, to);
    return to;
  };
  primitive_.Run(
      {round(shape_.left_fp8, shape_.rows * shape_.inner, left, scratch.left.in(memory)),
       round(shape_.right_fp8, shape_.inner * shape_.columns, right, scratch.right.in(memory)),
       result},
      scratch.library.in(memory));
}

}  // namespace penstock
