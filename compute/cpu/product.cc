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

bool PacksRight(const ProductShape& shape, memory::data_type type) {
  return type == memory::data_type::f32 && !shape.transposed_right &&
         shape.rows >= kPackedRowsMin &&
         shape.inner * shape.columns * static_cast<int64_t>(sizeof(float)) >= kPackedBytesMin;
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

absl::StatusOr<MatrixProduct> MatrixProduct::Create(CpuContext& context, const ProductShape& shape,
                                                    memory::data_type type,
                                                    Primitive::ScratchOf scratch) {
  MatrixProduct product;
  product.context_ = &context;
  product.shape_ = shape;
  PENSTOCK_CHECK(!shape.in_fp8() ||
                 (type == memory::data_type::bf16 && scratch == Primitive::ScratchOf::kContext));
  if (scratch == Primitive::ScratchOf::kContext && PacksRight(shape, type)) {
    PENSTOCK_ASSIGN_OR_RETURN(
        PackedProduct packed,
        PackedProduct::Create(context, shape, type, Primitive::ScratchOf::kCaller));
    if (packed.changes_format()) {
      PENSTOCK_RETURN_IF_ERROR(context.product_scratch.Reserve(ScratchAt(packed.packed_bytes()) +
                                                               packed.scratch_bytes()));
      product.packed_ = std::move(packed);
      return product;
    }
  }
  const auto make = [&]() -> absl::StatusOr<Primitive> {
    const memory::desc left = Matrix(shape.rows, shape.inner, type, shape.transposed_left);
    const memory::desc right = Matrix(shape.inner, shape.columns, type, shape.transposed_right);
    const memory::desc result = Matrix(shape.rows, shape.columns, memory::data_type::f32, false);
    const auto description = DescribeForward<dnnl::matmul>(
        context, PrimitiveAttributes(shape.accumulate), left, right, result);
    return Primitive::Create<dnnl::matmul>(
        context, description,
        {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}},
        shape.in_fp8() ? Primitive::ScratchOf::kCaller : scratch);
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
  if (shape_.in_fp8()) return RunInFp8(left, right, result);
  if (!packed_.has_value()) return primitive_.Run({left, right, result}, scratch);
  char* const memory = static_cast<char*>(context_->product_scratch.data());
  char* const rest = memory + ScratchAt(packed_->packed_bytes());
  packed_->Pack(right, memory, rest);
  packed_->Run(left, memory, result, rest);
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
