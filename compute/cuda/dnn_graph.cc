#include "compute/cuda/dnn_graph.h"

#include <utility>

namespace penstock::cuda {
namespace {

constexpr absl::string_view kPointwise = "describing an element-wise operation";

DescriptorWriter PointwiseKind(cudnnPointwiseMode_t mode, cudnnDataType_t precision) {
  DescriptorWriter kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, kPointwise);
  kind.Set(CUDNN_ATTR_POINTWISE_MODE, mode).Set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  return kind;
}

}  // namespace

TensorLayout DenseLayout(const std::array<int64_t, 4>& sizes) {
  return {sizes, {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1}};
}

TensorLayout Transposed(const TensorLayout& layout) {
  TensorLayout result = layout;
  std::swap(result.sizes[2], result.sizes[3]);
  std::swap(result.strides[2], result.strides[3]);
  return result;
}

cudnnBackendDescriptor_t Graph::Keep(absl::StatusOr<Descriptor> made) {
  if (!made.ok()) {
    if (status_.ok()) status_ = made.status();
    return nullptr;
  }
  descriptors_.push_back(*std::move(made));
  return descriptors_.back().get();
}

GraphTensor Graph::AddTensor(const TensorLayout& layout, cudnnDataType_t type, bool is_virtual,
                             bool is_constant) {
  const int64_t id = ++tensors_;
  if (!status_.ok()) return {id, layout, type, nullptr};
  return {id, layout, type,
          Keep(DescriptorWriter(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "describing a tensor")
                   .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
                   .SetAll(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.sizes)
                   .SetAll(CUDNN_ATTR_TENSOR_STRIDES, layout.strides)
                   .Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
                   .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
                   .Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
                   .Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, is_constant)
                   .Finish())};
}

GraphTensor Graph::Memory(const TensorLayout& layout, cudnnDataType_t type) {
  const GraphTensor tensor = AddTensor(layout, type, /*is_virtual=*/false, /*is_constant=*/false);
  memory_ids_.push_back(tensor.id);
  return tensor;
}

GraphTensor Graph::Constant(float value) {
  const GraphTensor tensor = AddTensor(DenseLayout({1, 1, 1, 1}), CUDNN_DATA_FLOAT,
                                       /*is_virtual=*/false, /*is_constant=*/true);
  constant_ids_.push_back(tensor.id);
  constants_.push_back(value);
  return tensor;
}

GraphTensor Graph::Virtual(const TensorLayout& layout, cudnnDataType_t type) {
  return AddTensor(layout, type, /*is_virtual=*/true, /*is_constant=*/false);
}

void Graph::AddPointwise(DescriptorWriter kind, absl::Span<const GraphTensor> inputs,
                         const GraphTensor& to) {
  constexpr std::array<cudnnBackendAttributeName_t, 3> kInputs = {
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  if (!status_.ok()) return;
  const cudnnBackendDescriptor_t kept_kind = Keep(kind.Finish());
  DescriptorWriter writer(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, kPointwise);
  writer.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kept_kind)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.descriptor);
  for (size_t i = 0; i < inputs.size(); ++i) writer.Set(kInputs[i], inputs[i].descriptor);
  operations_.push_back(Keep(writer.Finish()));
}

void Graph::Pointwise(cudnnPointwiseMode_t mode, absl::Span<const GraphTensor> inputs,
                      const GraphTensor& to) {
  const bool compares = mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_CMP_LE;
  AddPointwise(PointwiseKind(mode, compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT), inputs, to);
}

GraphTensor Graph::Pointwise(cudnnPointwiseMode_t mode, absl::Span<const GraphTensor> inputs) {
  const GraphTensor to = Virtual(inputs.front().layout, CUDNN_DATA_FLOAT);
  Pointwise(mode, inputs, to);
  return to;
}

GraphTensor Graph::Index(const GraphTensor& like, int64_t dimension) {
  const GraphTensor to = Virtual(like.layout, CUDNN_DATA_INT32);
  DescriptorWriter kind = PointwiseKind(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT);
  kind.Set(CUDNN_ATTR_POINTWISE_AXIS, dimension);
  AddPointwise(std::move(kind), {like}, to);
  return to;
}

void Graph::Reduce(cudnnReduceTensorOp_t mode, const GraphTensor& from, const GraphTensor& to) {
  constexpr absl::string_view kWhat = "describing a reduction";
  if (!status_.ok()) return;
  const cudnnBackendDescriptor_t kind =
      Keep(DescriptorWriter(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, kWhat)
               .Set(CUDNN_ATTR_REDUCTION_OPERATOR, mode)
               .Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
               .Finish());
  operations_.push_back(Keep(DescriptorWriter(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, kWhat)
                                 .Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind)
                                 .Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from.descriptor)
                                 .Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.descriptor)
                                 .Finish()));
}

GraphTensor Graph::Reduce(cudnnReduceTensorOp_t mode, const GraphTensor& from,
                          const TensorLayout& layout) {
  const GraphTensor to = Virtual(layout, CUDNN_DATA_FLOAT);
  Reduce(mode, from, to);
  return to;
}

void Graph::MatrixProduct(const GraphTensor& left, const GraphTensor& right,
                          const GraphTensor& to) {
  constexpr absl::string_view kWhat = "describing a matrix product";
  if (!status_.ok()) return;
  const cudnnBackendDescriptor_t kind =
      Keep(DescriptorWriter(CUDNN_BACKEND_MATMUL_DESCRIPTOR, kWhat)
               .Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT)
               .Finish());
  operations_.push_back(Keep(DescriptorWriter(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, kWhat)
                                 .Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind)
                                 .Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, left.descriptor)
                                 .Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, right.descriptor)
                                 .Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.descriptor)
                                 .Finish()));
}

void Graph::AddConvolution(const ConvolutionNames& names, const GraphTensor& x,
                           const GraphTensor& w, const GraphTensor& y,
                           const ConvolutionSteps& steps) {
  constexpr absl::string_view kWhat = "describing a convolution";
  if (!status_.ok()) return;
  const cudnnBackendDescriptor_t kept_steps =
      Keep(DescriptorWriter(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, kWhat)
               .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
               .Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
               .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
               .SetAll(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, steps.before)
               .SetAll(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, steps.after)
               .SetAll(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, steps.strides)
               .SetAll(CUDNN_ATTR_CONVOLUTION_DILATIONS, steps.dilations)
               .Finish());
  operations_.push_back(Keep(DescriptorWriter(names.operation, kWhat)
                                 .Set(names.steps, kept_steps)
                                 .Set(names.alpha, 1.0f)
                                 .Set(names.beta, 0.0f)
                                 .Set(names.x, x.descriptor)
                                 .Set(names.w, w.descriptor)
                                 .Set(names.y, y.descriptor)
                                 .Finish()));
}

void Graph::ConvolutionForward(const GraphTensor& x, const GraphTensor& w, const GraphTensor& y,
                               const ConvolutionSteps& steps) {
  needs_true_f32_ |= x.type == CUDNN_DATA_FLOAT;
  AddConvolution(
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      x, w, y, steps);
}

void Graph::ConvolutionBackwardInput(const GraphTensor& dy, const GraphTensor& w,
                                     const GraphTensor& dx, const ConvolutionSteps& steps) {
  needs_true_f32_ |= dy.type == CUDNN_DATA_FLOAT;
  AddConvolution(
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      dx, w, dy, steps);
}

void Graph::ConvolutionBackwardWeight(const GraphTensor& x, const GraphTensor& dy,
                                      const GraphTensor& dw, const ConvolutionSteps& steps) {
  needs_true_f32_ |= x.type == CUDNN_DATA_FLOAT;
  AddConvolution({CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
                 x, dw, dy, steps);
}

GraphTensor Graph::Transpose(const GraphTensor& from, cudnnDataType_t type) {
  const GraphTensor to = Virtual(Transposed(from.layout), type);
  if (!status_.ok()) return to;
  operations_.push_back(Keep(
      DescriptorWriter(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "describing a transposed matrix")
          .Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, from.descriptor)
          .Set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.descriptor)
          .Finish()));
  return to;
}

}  // namespace penstock::cuda
