#include "compute/cpu/product.h"

#include <string>

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

}  // namespace

absl::StatusOr<MatrixProduct> MatrixProduct::Create(CpuContext& context, const ProductShape& shape,
                                                    memory::data_type type,
                                                    Primitive::ScratchOf scratch) {
  const auto make = [&]() -> absl::StatusOr<Primitive> {
    const memory::desc left = Matrix(shape.rows, shape.inner, type, shape.transposed_left);
    const memory::desc right = Matrix(shape.inner, shape.columns, type, shape.transposed_right);
    const memory::desc result = Matrix(shape.rows, shape.columns, memory::data_type::f32, false);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(left, right, result),
                                                   PrimitiveAttributes(shape.accumulate),
                                                   context.engine);
    return Primitive::Create<dnnl::matmul>(
        context, description,
        {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}}, scratch);
  };
  MatrixProduct product;
  PENSTOCK_ASSIGN_OR_RETURN(product.primitive_,
                            WithOneDnn(context, ProductText(shape, type), make));
  return product;
}

absl::StatusOr<PackedProduct> PackedProduct::Create(CpuContext& context, const ProductShape& shape,
                                                    memory::data_type type) {
  const auto make = [&]() -> absl::StatusOr<PackedProduct> {
    const memory::desc left = Matrix(shape.rows, shape.inner, type, shape.transposed_left);
    const memory::desc stored = Matrix(shape.inner, shape.columns, type, shape.transposed_right);
    const memory::desc any({shape.inner, shape.columns}, type, memory::format_tag::any);
    const memory::desc result = Matrix(shape.rows, shape.columns, memory::data_type::f32, false);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(left, any, result),
                                                   PrimitiveAttributes(shape.accumulate),
                                                   context.engine);
    const memory::desc packed = description.weights_desc();
    PackedProduct product;
    product.packed_bytes_ = static_cast<int64_t>(packed.get_size());
    PENSTOCK_ASSIGN_OR_RETURN(
        product.pack_,
        Primitive::Create<dnnl::reorder>(
            context, {context.engine, stored, context.engine, packed, PrimitiveAttributes()},
            {{DNNL_ARG_FROM, stored}, {DNNL_ARG_TO, packed}}));
    PENSTOCK_ASSIGN_OR_RETURN(
        product.product_,
        Primitive::Create<dnnl::matmul>(
            context, description,
            {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, result}}));
    return product;
  };
  return WithOneDnn(context, ProductText(shape, type), make);
}

}  // namespace penstock
