#include "compute/cpu/primitive.h"

#include "base/check.h"
#include "base/status.h"

namespace penstock {

absl::StatusOr<Primitive> Primitive::Create(CpuContext& context, const dnnl::primitive& primitive,
                                            const dnnl::memory::desc& scratch,
                                            std::initializer_list<Operand> operands, ScratchOf of) {
  PENSTOCK_CHECK(static_cast<int>(operands.size()) <= kOperandsMax);
  Primitive made;
  made.context_ = &context;
  made.primitive_ = primitive;
  for (const Operand& operand : operands) {
    made.arguments_[made.operands_] = operand.argument;
    made.handles_[made.operands_++] = dnnl::memory(operand.description, context.engine, nullptr);
  }
  made.arguments_[made.operands_] = DNNL_ARG_SCRATCHPAD;
  made.handles_[made.operands_] = dnnl::memory(scratch, context.engine, nullptr);
  if (of == ScratchOf::kContext) {
    PENSTOCK_RETURN_IF_ERROR(context.product_scratch.Reserve(made.scratch_bytes()));
  }
  return made;
}

int64_t Primitive::scratch_bytes() const {
  return static_cast<int64_t>(handles_[operands_].get_desc().get_size());
}

void Primitive::Run(std::initializer_list<const void*> data, void* scratch) const {
  PENSTOCK_CHECK(static_cast<int>(data.size()) == operands_);
  SetOneDnnThreads(context_->threads.count());
  // oneDNN's C interface: the C++ one builds a map of the arguments on the heap for every call.
  std::array<dnnl_exec_arg_t, kOperandsMax + 1> arguments;
  int next = 0;
  const auto point = [&](void* to) {
    handles_[next].set_data_handle(to);
    arguments[next] = {arguments_[next], handles_[next].get()};
    ++next;
  };
  for (const void* operand : data) point(const_cast<void*>(operand));
  point(scratch != nullptr ? scratch : context_->product_scratch.data());
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), context_->stream.get(), next, arguments.data());
  PENSTOCK_CHECK(status == dnnl_success);
}

dnnl::primitive_attr PrimitiveAttributes(bool accumulates) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulates) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  return attributes;
}

absl::Status OneDnnError(absl::string_view what, const dnnl::error& error) {
  const auto code = [&] {
    switch (error.status) {
      case dnnl_unimplemented:
        return absl::StatusCode::kUnimplemented;
      case dnnl_out_of_memory:
        return absl::StatusCode::kResourceExhausted;
      default:
        return absl::StatusCode::kInternal;
    }
  };
  return absl::Status(code(), absl::StrCat("oneDNN cannot make ", what, ": ", error.message));
}

}  // namespace penstock
