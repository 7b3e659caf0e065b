#include "compute/cpu/product.h"

#include <array>
#include <new>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

using dnnl::memory;

// A dense matrix, described as [rows, columns] whether or not it is stored transposed.
memory::desc Matrix(int64_t rows, int64_t columns, memory::data_type type, bool transposed) {
  const memory::dims strides = transposed ? memory::dims{1, rows} : memory::dims{columns, 1};
  return {{rows, columns}, type, strides};
}

dnnl::primitive_attr PrimitiveAttributes(bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  return attributes;
}

absl::StatusCode CodeOf(dnnl_status_t status) {
  switch (status) {
    case dnnl_unimplemented:
      return absl::StatusCode::kUnimplemented;
    case dnnl_out_of_memory:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status CannotMultiply(const ProductShape& shape, memory::data_type type,
                            absl::StatusCode code, const char* why) {
  return absl::Status(code, absl::StrFormat("oneDNN cannot multiply [%d, %d] by [%d, %d] in %s: %s",
                                            shape.rows, shape.inner, shape.inner, shape.columns,
                                            type == memory::data_type::bf16 ? "bf16" : "f32", why));
}

void Point(const memory& handle, const void* data) {
  handle.set_data_handle(const_cast<void*>(data));
}

}  // namespace

absl::StatusOr<MatrixProduct> MatrixProduct::Create(CpuContext& context, const ProductShape& shape,
                                                    memory::data_type type) {
  // Some kernels are chosen by the number of threads.
  SetOneDnnThreads(context.threads.count());
  try {
    const memory::desc left = Matrix(shape.rows, shape.inner, type, shape.transposed_left);
    const memory::desc right = Matrix(shape.inner, shape.columns, type, shape.transposed_right);
    const memory::desc result = Matrix(shape.rows, shape.columns, memory::data_type::f32, false);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(left, right, result),
                                                   PrimitiveAttributes(shape.accumulate), context.engine);
    MatrixProduct product;
    product.context_ = &context;
    product.primitive_ = dnnl::matmul(description);
    product.left_ = memory(left, context.engine, nullptr);
    product.right_ = memory(right, context.engine, nullptr);
    product.result_ = memory(result, context.engine, nullptr);
    product.scratch_ = memory(description.scratchpad_desc(), context.engine, nullptr);
    PENSTOCK_RETURN_IF_ERROR(context.product_scratch.Reserve(
        static_cast<int64_t>(description.scratchpad_desc().get_size())));
    return product;
  } catch (const dnnl::error& error) {
    return CannotMultiply(shape, type, CodeOf(error.status), error.message);
  } catch (const std::bad_alloc&) {
    return CannotMultiply(shape, type, absl::StatusCode::kResourceExhausted, "out of memory");
  }
}

void MatrixProduct::Run(const void* left, const void* right, float* result) const {
  SetOneDnnThreads(context_->threads.count());
  Point(left_, left);
  Point(right_, right);
  Point(result_, result);
  Point(scratch_, context_->product_scratch.data());
  // oneDNN's C interface: the C++ one builds a map of the arguments on the heap for every call.
  const std::array<dnnl_exec_arg_t, 4> arguments = {{{DNNL_ARG_SRC, left_.get()},
                                                     {DNNL_ARG_WEIGHTS, right_.get()},
                                                     {DNNL_ARG_DST, result_.get()},
                                                     {DNNL_ARG_SCRATCHPAD, scratch_.get()}}};
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), context_->stream.get(),
                             static_cast<int>(arguments.size()), arguments.data());
  PENSTOCK_CHECK(status == dnnl_success);
}

}  // namespace penstock
