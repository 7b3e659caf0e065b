#include "compute/cuda/convolution.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace penstock::cuda {
namespace {

TensorLayout ImageLayout(int64_t samples, int64_t channels, int64_t height, int64_t width) {
  return {{samples, channels, height, width},
          {height * width * channels, 1, width * channels, channels}};
}

// x, filters and y of a shape, and how they meet.
struct Layouts {
  TensorLayout x, filters, y;
  ConvolutionSteps steps;
};

Layouts ConvolutionLayouts(const ConvolutionShape& s) {
  const Window::Axis& h = s.window.height;
  const Window::Axis& w = s.window.width;
  return {.x = ImageLayout(s.samples, s.inputs, h.inputs, w.inputs),
          .filters = ImageLayout(s.outputs, s.inputs / s.groups, h.kernel, w.kernel),
          .y = ImageLayout(s.samples, s.outputs, h.outputs, w.outputs),
          .steps = {.before = {h.before, w.before},
                    .after = {h.after, w.after},
                    .strides = {h.stride, w.stride},
                    .dilations = {h.dilation, w.dilation}}};
}

// Null where cuDNN has no engine.
absl::StatusOr<std::unique_ptr<const Plan>> MakeConvolutionPlan(const PlanTarget& target,
                                                                Graph graph) {
  absl::StatusOr<Plan> plan = Plan::Create(target, std::move(graph));
  if (absl::IsUnimplemented(plan.status())) return nullptr;
  PENSTOCK_RETURN_IF_ERROR(plan.status());
  return std::make_unique<const Plan>(*std::move(plan));
}

}  // namespace

ImageAxis AxisOf(const Window::Axis& axis) {
  return {.inputs = axis.inputs,
          .outputs = axis.outputs,
          .kernel = axis.kernel,
          .stride = axis.stride,
          .dilation = axis.dilation,
          .before = axis.before};
}

ConvolutionSizes ConvolutionShape::sizes() const {
  return {samples, inputs, outputs, groups, AxisOf(window.height), AxisOf(window.width)};
}
int64_t ConvolutionShape::input_elements() const {
  return samples * window.height.inputs * window.width.inputs * inputs;
}
int64_t ConvolutionShape::output_elements() const { return samples * window.outputs() * outputs; }
int64_t ConvolutionShape::filter_elements() const {
  return outputs * (inputs / groups) * window.kernel_elements();
}

absl::StatusOr<std::unique_ptr<Convolution>> Convolution::Create(const PlanTarget& target,
                                                                 const ConvolutionShape& shape) {
  std::unique_ptr<Convolution> made(new Convolution(shape));
  const Layouts l = ConvolutionLayouts(shape);
  const cudnnDataType_t type = shape.bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  {
    Graph g;
    const GraphTensor x = g.Memory(l.x, type), w = g.Memory(l.filters, type);
    g.ConvolutionForward(x, w, g.Memory(l.y, type), l.steps);
    PENSTOCK_ASSIGN_OR_RETURN(made->forward_, MakeConvolutionPlan(target, std::move(g)));
  }
  {
    Graph g;
    const GraphTensor dy = g.Memory(l.y, type), w = g.Memory(l.filters, type);
    g.ConvolutionBackwardInput(dy, w, g.Memory(l.x, type), l.steps);
    PENSTOCK_ASSIGN_OR_RETURN(made->backward_input_, MakeConvolutionPlan(target, std::move(g)));
  }
  {
    Graph g;
    const GraphTensor x = g.Memory(l.x, type), dy = g.Memory(l.y, type);
    g.ConvolutionBackwardWeight(x, dy, g.Memory(l.filters, type), l.steps);
    PENSTOCK_ASSIGN_OR_RETURN(made->backward_weight_, MakeConvolutionPlan(target, std::move(g)));
  }
  made->PlaceScratch();
  return made;
}

Convolution::Convolution(const ConvolutionShape& shape) : shape_(shape) {}

void Convolution::PlaceScratch() {
  const int64_t number_bytes = shape_.bf16 ? sizeof(Bf16) : sizeof(float);
  int64_t result_elements = shape_.filter_elements();
  if (shape_.bf16) {
    result_elements =
        std::max({result_elements, shape_.input_elements(), shape_.output_elements()});
  }
  int64_t workspace_bytes = 0;
  for (const auto* plan : {&forward_, &backward_input_, &backward_weight_}) {
    if (*plan != nullptr) workspace_bytes = std::max(workspace_bytes, (*plan)->workspace_bytes());
  }
  BlockLayout scratch;
  packed_ = scratch.Add<char>(shape_.filter_elements() * number_bytes);
  result_ = scratch.Add<char>(result_elements * number_bytes);
  workspace_ = PlanWorkspace(workspace_bytes, scratch);
  scratch_bytes_ = scratch.size_bytes();
}

template <typename Number>
const Number* Convolution::Packed(cudaStream_t stream, const Number* filters, void* scratch) const {
  const int64_t area = shape_.window.kernel_elements();
  if (area == 1) return filters;  // both orders are one
  auto* packed = reinterpret_cast<Number*>(packed_.in(scratch));
  TransposeEach(stream, shape_.outputs, shape_.inputs / shape_.groups, area, filters, packed);
  return packed;
}

template <typename Number>
Number* Convolution::Target(float* to, void* scratch) const {
  if constexpr (std::is_same_v<Number, float>) {
    return to;
  } else {
    return reinterpret_cast<Number*>(result_.in(scratch));
  }
}

template <typename Number>
absl::Status Convolution::ForwardOf(cudnnHandle_t handle, cudaStream_t stream, const Number* x,
                                    const Number* filters, const float* bias, float* y,
                                    void* scratch) const {
  const int64_t rows = shape_.output_elements() / shape_.outputs;
  if (forward_ == nullptr) {
    cuda::ConvolutionForward(stream, shape_.sizes(), x, filters, y);
    if (bias != nullptr) AddBias(stream, rows, shape_.outputs, y, bias, y);
    return absl::OkStatus();
  }
  const Number* packed = Packed(stream, filters, scratch);
  Number* result = Target<Number>(y, scratch);
  PENSTOCK_RETURN_IF_ERROR(
      forward_->Run(handle, {const_cast<Number*>(x), const_cast<Number*>(packed), result},
                    workspace_.in(scratch)));
  if constexpr (!std::is_same_v<Number, float>) {
    ConvertToFloat(stream, rows, shape_.outputs, result, bias, y);
  } else if (bias != nullptr) {
    AddBias(stream, rows, shape_.outputs, y, bias, y);
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status Convolution::BackwardInputOf(cudnnHandle_t handle, cudaStream_t stream,
                                          const Number* dy, const Number* filters, float* dx,
                                          void* scratch) const {
  if (backward_input_ == nullptr) {
    cuda::ConvolutionBackwardInput(stream, shape_.sizes(), dy, filters, dx);
    return absl::OkStatus();
  }
  const Number* packed = Packed(stream, filters, scratch);
  Number* result = Target<Number>(dx, scratch);
  PENSTOCK_RETURN_IF_ERROR(
      backward_input_->Run(handle, {const_cast<Number*>(dy), const_cast<Number*>(packed), result},
                           workspace_.in(scratch)));
  if constexpr (!std::is_same_v<Number, float>) {
    ConvertToFloat(stream, shape_.input_elements() / shape_.inputs, shape_.inputs, result, nullptr,
                   dx);
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status Convolution::BackwardWeightOf(cudnnHandle_t handle, cudaStream_t stream,
                                           const Number* x, const Number* dy, float* dw,
                                           void* scratch) const {
  if (backward_weight_ == nullptr) {
    cuda::ConvolutionBackwardWeight(stream, shape_.sizes(), x, dy, dw);
    return absl::OkStatus();
  }
  auto* result = reinterpret_cast<Number*>(result_.in(scratch));
  PENSTOCK_RETURN_IF_ERROR(backward_weight_->Run(
      handle, {const_cast<Number*>(x), const_cast<Number*>(dy), result}, workspace_.in(scratch)));
  AddTransposedEach(stream, shape_.outputs, shape_.window.kernel_elements(),
                    shape_.inputs / shape_.groups, result, dw);
  return absl::OkStatus();
}

absl::Status Convolution::Forward(cudnnHandle_t handle, cudaStream_t stream, const void* x,
                                  const void* filters, const float* bias, float* y,
                                  void* scratch) const {
  return shape_.bf16 ? ForwardOf(handle, stream, static_cast<const Bf16*>(x),
                                 static_cast<const Bf16*>(filters), bias, y, scratch)
                     : ForwardOf(handle, stream, static_cast<const float*>(x),
                                 static_cast<const float*>(filters), bias, y, scratch);
}

absl::Status Convolution::BackwardInput(cudnnHandle_t handle, cudaStream_t stream, const void* dy,
                                        const void* filters, float* dx, void* scratch) const {
  return shape_.bf16 ? BackwardInputOf(handle, stream, static_cast<const Bf16*>(dy),
                                       static_cast<const Bf16*>(filters), dx, scratch)
                     : BackwardInputOf(handle, stream, static_cast<const float*>(dy),
                                       static_cast<const float*>(filters), dx, scratch);
}

absl::Status Convolution::BackwardWeight(cudnnHandle_t handle, cudaStream_t stream, const void* x,
                                         const void* dy, float* dw, void* scratch) const {
  return shape_.bf16 ? BackwardWeightOf(handle, stream, static_cast<const Bf16*>(x),
                                        static_cast<const Bf16*>(dy), dw, scratch)
                     : BackwardWeightOf(handle, stream, static_cast<const float*>(x),
                                        static_cast<const float*>(dy), dw, scratch);
}

}  // namespace penstock::cuda
