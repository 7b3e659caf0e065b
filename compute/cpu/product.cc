#include "compute/cpu/product.h"

#include <algorithm>
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

// Packing takes as long as some dozens of rows of the product, and pays where reading B as it is misses caches.
constexpr int64_t kPackedRowsMin = 64;
constexpr int64_t kPackedBytesMin = int64_t{4} << 20;

bool PacksRight(const ProductShape& shape, memory::data_type type) {
  return type == memory::data_type::f32 && !shape.transposed_right &&
         shape.rows >= kPackedRowsMin &&
         shape.inner * shape.columns * static_cast<int64_t>(sizeof(float)) >= kPackedBytesMin;
}

}  // namespace

absl::StatusOr<MatrixProduct> MatrixProduct::Create(CpuContext& context, const ProductShape& shape,
                                                    memory::data_type type,
                                                    Primitive::ScratchOf scratch) {
  const auto make = [&]() -> absl::StatusOr<MatrixProduct> {
    const memory::desc left = Matrix(shape.rows, shape.inner, type, shape.transposed_left);
    const memory::desc right = Matrix(shape.inner, shape.columns, type, shape.transposed_right);
    const memory::desc result = Matrix(shape.rows, shape.columns, memory::data_type::f32, false);
    const auto described = [&](const memory::desc& as) {
      return dnnl::matmul::primitive_desc(dnnl::matmul::desc(left, as, result),
                                          PrimitiveAttributes(shape.accumulate), context.engine);
    };
    MatrixProduct product;
    product.context_ = &context;
    if (PacksRight(shape, type)) {
      const memory::desc any({shape.inner, shape.columns}, type, memory::format_tag::any);
      const dnnl::matmul::primitive_desc description = described(any);
      const memory::desc packed = description.weights_desc();
      if (packed != right) {
        constexpr auto kCaller = Primitive::ScratchOf::kCaller;
        product.packed_bytes_ = (static_cast<int64_t>(packed.get_size()) + 63) / 64 * 64;
        PENSTOCK_ASSIGN_OR_RETURN(
            product.pack_,
            Primitive::Create<dnnl::reorder>(
                context, {context.engine, right, context.engine, packed, PrimitiveAttributes()},
                {{DNNL_ARG_FROM, right}, {DNNL_ARG_TO, packed}}, kCaller));
        PENSTOCK_ASSIGN_OR_RETURN(
            product.primitive_,
            Primitive::Create<dnnl::matmul>(
                context, description,
                {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, result}},
                kCaller));
        PENSTOCK_RETURN_IF_ERROR(context.product_scratch.Reserve(
            product.packed_bytes_ +
            std::max(product.pack_.scratch_bytes(), product.primitive_.scratch_bytes())));
        return product;
      }
    }
    PENSTOCK_ASSIGN_OR_RETURN(
        product.primitive_,
        Primitive::Create<dnnl::matmul>(
            context, described(right),
            {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}}, scratch));
    return product;
  };
  return WithOneDnn(context, ProductText(shape, type), make);
}

void MatrixProduct::Run(const void* left, const void* right, float* result, void* scratch) const {
  if (packed_bytes_ == 0) return primitive_.Run({left, right, result}, scratch);
  void* const packed = context_->product_scratch.data();
  void* const rest = static_cast<char*>(packed) + packed_bytes_;
  pack_.Run({right, packed}, rest);
  primitive_.Run({left, packed, result}, rest);
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
