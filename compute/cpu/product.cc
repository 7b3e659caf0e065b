#include "compute/cpu/product.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"

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
        {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}}, scratch);
  };
  PENSTOCK_ASSIGN_OR_RETURN(product.primitive_,
                            WithOneDnn(context, ProductText(shape, type), make));
  return product;
}

void MatrixProduct::Run(const void* left, const void* right, float* result, void* scratch) const {
  if (!packed_.has_value()) return primitive_.Run({left, right, result}, scratch);
  char* const memory = static_cast<char*>(context_->product_scratch.data());
  char* const rest = memory + ScratchAt(packed_->packed_bytes());
  packed_->Pack(right, memory, rest);
  packed_->Run(left, memory, result, rest);
}

}  // namespace penstock
