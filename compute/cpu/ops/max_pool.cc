// The largest value of each window. F leaves where it was (oneDNN's workspace) for I.
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/primitive.h"
#include "model/window.h"

namespace penstock::cpu {
namespace max_pool {
namespace {

using dnnl::memory;

class CpuMaxPool : public OpKernels {
 public:
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Make(CpuContext& context, const KernelSpec& spec, const Window& window) {
    const Window::Axis& h = window.height;
    const Window::Axis& w = window.width;
    const int64_t channels = spec.width();
    const auto image = [&](int64_t height, int64_t width) {
      return memory::desc({spec.samples, channels, height, width}, memory::data_type::f32,
                          memory::format_tag::nhwc);
    };
    const memory::desc x = image(h.inputs, w.inputs);
    const memory::desc y = image(h.outputs, w.outputs);
    const memory::dims kernel = {h.kernel, w.kernel};
    const memory::dims strides = {h.stride, w.stride};
    const memory::dims before = {h.before, w.before};
    const memory::dims after = {h.after, w.after};
    constexpr auto kAlgorithm = dnnl::algorithm::pooling_max;
    const memory::dims dilations = {0, 0};
    const dnnl::primitive_attr attributes = PrimitiveAttributes();
    const auto forward = DescribeForward<PoolingForward>(
        context, attributes, dnnl::prop_kind::forward_training, kAlgorithm, x, y, strides, kernel,
        dilations, before, after);
    const auto backward = DescribeBackward<PoolingBackward>(
        context, attributes, forward, kAlgorithm, x, y, strides, kernel, dilations, before, after);
    const memory::desc places = forward.workspace_desc();
    needs_.stash_bytes = static_cast<int64_t>(places.get_size());
    PENSTOCK_ASSIGN_OR_RETURN(
        forward_, Primitive::Create<PoolingForward>(
                      context, forward,
                      {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}, {DNNL_ARG_WORKSPACE, places}}));
    PENSTOCK_ASSIGN_OR_RETURN(
        backward_,
        Primitive::Create<PoolingBackward>(
            context, backward,
            {{DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_SRC, x}, {DNNL_ARG_WORKSPACE, places}}));
    return absl::OkStatus();
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    forward_.Run({tape.input(), tape.output, tape.stash});
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    backward_.Run({tape.grad_output, tape.grad_input(), tape.stash});
    return absl::OkStatus();
  }

 private:
  TapeNeeds needs_;
  Primitive forward_, backward_;
};

}  // namespace
}  // namespace max_pool

MadeKernels MakeMaxPool(CpuContext& context, const KernelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(spec.attributes(), spec.inputs[0]));
  auto op = std::make_unique<max_pool::CpuMaxPool>();
  const std::string what =
      absl::StrFormat("a pooling of %d x %d windows of %d x %d", window.height.outputs,
                      window.width.outputs, window.height.kernel, window.width.kernel);
  PENSTOCK_RETURN_IF_ERROR(
      WithOneDnn(context, what, [&] { return op->Make(context, spec, window); }));
  return op;
}

}  // namespace penstock::cpu
