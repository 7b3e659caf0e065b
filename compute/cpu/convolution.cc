#include "compute/cpu/convolution.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace penstock {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
constexpr auto kF32 = memory::data_type::f32;

absl::StatusOr<Primitive> MakeReorder(CpuContext& context, const memory::desc& from,
                                      const memory::desc& to, bool accumulate) {
  return Primitive::Create<dnnl::reorder>(
      context, {context.engine, from, context.engine, to, PrimitiveAttributes(accumulate)},
      {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

std::string ConvolutionText(const ConvolutionShape& shape) {
  return absl::StrFormat(
      "a convolution of %d to %d channels in %d groups with a kernel of %d x %d over %d x %d",
      shape.inputs, shape.outputs, shape.groups, shape.window.height.kernel,
      shape.window.width.kernel, shape.window.height.inputs, shape.window.width.inputs);
}

bool IsLinear(const ConvolutionShape& shape) {
  const auto is_one = [](const Window::Axis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.inputs == axis.outputs;
  };
  return is_one(shape.window.height) && is_one(shape.window.width) && shape.groups == 1 &&
         !shape.bias;
}

}  // namespace

absl::StatusOr<Convolution> Convolution::Create(CpuContext& context, const ConvolutionShape& shape,
                                                memory::data_type type) {
  Convolution made;
  if (IsLinear(shape)) {
    PENSTOCK_RETURN_IF_ERROR(made.MakeProducts(context, shape, type));
    return made;
  }
  PENSTOCK_RETURN_IF_ERROR(
      WithOneDnn(context, ConvolutionText(shape), [&] { return made.Make(context, shape, type); }));
  return made;
}

// The weight is [outputs, inputs].
absl::Status Convolution::MakeProducts(CpuContext& context, const ConvolutionShape& shape,
                                       memory::data_type type) {
  const int64_t rows = shape.samples * shape.window.height.outputs * shape.window.width.outputs;
  PENSTOCK_ASSIGN_OR_RETURN(
      forward_product_,
      MatrixProduct::Create(
          context,
          {.rows = rows, .columns = shape.outputs, .inner = shape.inputs, .transposed_right = true},
          type));
  PENSTOCK_ASSIGN_OR_RETURN(
      input_product_,
      MatrixProduct::Create(context,
                            {.rows = rows, .columns = shape.inputs, .inner = shape.outputs}, type));
  PENSTOCK_ASSIGN_OR_RETURN(weight_product_, MatrixProduct::Create(context,
                                                                   {.rows = shape.outputs,
                                                                    .columns = shape.inputs,
                                                                    .inner = rows,
                                                                    .transposed_left = true,
                                                                    .accumulate = true},
                                                                   type));
  is_linear_ = true;
  return absl::OkStatus();
}

absl::Status Convolution::Make(CpuContext& context, const ConvolutionShape& shape,
                               memory::data_type type) {
  const Window::Axis& h = shape.window.height;
  const Window::Axis& w = shape.window.width;
  const memory::dims inputs = {shape.samples, shape.inputs, h.inputs, w.inputs};
  const memory::dims outputs = {shape.samples, shape.outputs, h.outputs, w.outputs};
  const bool grouped = shape.groups > 1;
  memory::dims weight = {shape.outputs / shape.groups, shape.inputs / shape.groups, h.kernel,
                         w.kernel};
  if (grouped) weight.insert(weight.begin(), shape.groups);
  const memory::desc x(inputs, type, Tag::nhwc);
  const memory::desc dx(inputs, kF32, Tag::nhwc);
  const memory::desc y(outputs, kF32, Tag::nhwc);
  const memory::desc dy(outputs, type, Tag::nhwc);
  const Tag file_format = grouped ? Tag::goihw : Tag::oihw;
  const memory::desc any_weight(weight, type, Tag::any);
  const memory::desc any_gradient(weight, kF32, Tag::any);
  const memory::desc file_weight(weight, type, file_format);
  const memory::desc file_gradient(weight, kF32, file_format);
  const memory::desc bias =
      shape.bias ? memory::desc({shape.outputs}, kF32, Tag::x) : memory::desc();
  const memory::dims strides = {h.stride, w.stride};
  const memory::dims dilations = {h.dilation - 1, w.dilation - 1};
  const memory::dims before = {h.before, w.before};
  const memory::dims after = {h.after, w.after};
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

  using Forward = dnnl::convolution_forward;
  using BackwardInput = dnnl::convolution_backward_data;
  using BackwardWeight = dnnl::convolution_backward_weights;
  const dnnl::primitive_attr attributes = PrimitiveAttributes();
  const auto forward =
      DescribeForward<Forward>(context, attributes, dnnl::prop_kind::forward_training, kAlgorithm,
                               x, any_weight, bias, y, strides, dilations, before, after);
  const auto backward_input =
      DescribeBackward<BackwardInput>(context, attributes, forward, kAlgorithm, dx, any_weight, dy,
                                      strides, dilations, before, after);
  const auto backward_weight =
      DescribeBackward<BackwardWeight>(context, attributes, forward, kAlgorithm, x, any_gradient,
                                       dy, strides, dilations, before, after);
  bias_ = shape.bias;

  if (bias_) {
    PENSTOCK_ASSIGN_OR_RETURN(
        forward_, Primitive::Create<Forward>(context, forward,
                                             {{DNNL_ARG_SRC, x},
                                              {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                                              {DNNL_ARG_DST, y},
                                              {DNNL_ARG_BIAS, bias}}));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(
        forward_,
        Primitive::Create<Forward>(
            context, forward,
            {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, forward.weights_desc()}, {DNNL_ARG_DST, y}}));
  }
  PENSTOCK_ASSIGN_OR_RETURN(backward_input_, Primitive::Create<BackwardInput>(
                                                 context, backward_input,
                                                 {{DNNL_ARG_DIFF_DST, dy},
                                                  {DNNL_ARG_WEIGHTS, backward_input.weights_desc()},
                                                  {DNNL_ARG_DIFF_SRC, dx}}));
  PENSTOCK_ASSIGN_OR_RETURN(backward_weight_,
                            Primitive::Create<BackwardWeight>(
                                context, backward_weight,
                                {{DNNL_ARG_SRC, x},
                                 {DNNL_ARG_DIFF_DST, dy},
                                 {DNNL_ARG_DIFF_WEIGHTS, backward_weight.diff_weights_desc()}}));
  PENSTOCK_ASSIGN_OR_RETURN(pack_for_forward_,
                            MakeReorder(context, file_weight, forward.weights_desc(), false));
  PENSTOCK_ASSIGN_OR_RETURN(
      pack_for_input_, MakeReorder(context, file_weight, backward_input.weights_desc(), false));
  PENSTOCK_ASSIGN_OR_RETURN(add_unpacked_, MakeReorder(context, backward_weight.diff_weights_desc(),
                                                       file_gradient, true));
  packed_bytes_ = static_cast<int64_t>(
      std::max({forward.weights_desc().get_size(), backward_input.weights_desc().get_size(),
                backward_weight.diff_weights_desc().get_size()}));
  return absl::OkStatus();
}

void Convolution::Forward(const void* x, const void* weight, const float* bias, void* packed,
                          float* y) const {
  if (is_linear_) {
    forward_product_.Run(x, weight, y);
    return;
  }
  pack_for_forward_.Run({weight, packed});
  if (bias_) {
    forward_.Run({x, packed, y, bias});
  } else {
    forward_.Run({x, packed, y});
  }
}

void Convolution::BackwardInput(const void* dy, const void* weight, void* packed, float* dx) const {
  if (is_linear_) {
    input_product_.Run(dy, weight, dx);
    return;
  }
  pack_for_input_.Run({weight, packed});
  backward_input_.Run({dy, packed, dx});
}

void Convolution::BackwardWeight(const void* x, const void* dy, void* packed, float* dw) const {
  if (is_linear_) {
    weight_product_.Run(dy, x, dw);
    return;
  }
  backward_weight_.Run({x, dy, packed});
  add_unpacked_.Run({packed, dw});
}

}  // namespace penstock
