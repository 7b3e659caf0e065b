// Graph: arithmetic on tensors, written down operation by operation, for cuDNN to find an engine
// that computes all of it in a few kernels (dnn_plan.h).
//
// Tensors that are virtual stand between two operations and need no memory then. An engine knows
// the pattern of a graph, not its meaning: the same arithmetic in other operations, or other types
// between them, may find no engine, or a slow one.
//
// Covers what attention (sdpa.cc) and convolutions (convolution.cc) need: tensors of four dimensions, sums in float.
//
// Thread safety: none.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/cuda/dnn_descriptor.h"

namespace penstock::cuda {

// Sizes, and the distance in elements from one index to the next, by dimension.
struct TensorLayout {
  std::array<int64_t, 4> sizes;
  std::array<int64_t, 4> strides;
};
TensorLayout DenseLayout(const std::array<int64_t, 4>& sizes);
// Returns the layout with the last two dimensions exchanged.
TensorLayout Transposed(const TensorLayout& layout);

struct GraphTensor {
  int64_t id = 0;
  TensorLayout layout = {};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t descriptor = nullptr;  // the graph's
};

// How the filters of a convolution meet an image: down, across.
struct ConvolutionSteps {
  std::array<int64_t, 2> before, after;  // padding
  std::array<int64_t, 2> strides, dilations;
};

// The first error is kept for Plan::Create; what is described after it is ignored.
class Graph {
 public:
  // A tensor in device memory, 16-byte aligned. Plan::Run takes addresses in the order of these
  // calls.
  GraphTensor Memory(const TensorLayout& layout, cudnnDataType_t type);
  // A number, the same in all runs.
  GraphTensor Constant(float value);
  GraphTensor Virtual(const TensorLayout& layout, cudnnDataType_t type);

  // to = mode(inputs), of one to three inputs, elementwise; dimensions of size 1 are repeated.
  void Pointwise(cudnnPointwiseMode_t mode, absl::Span<const GraphTensor> inputs,
                 const GraphTensor& to);
  // Adds an elementwise operation whose output is a virtual float tensor like the first input.
  GraphTensor Pointwise(cudnnPointwiseMode_t mode, absl::Span<const GraphTensor> inputs);
  // Into a virtual int32 tensor like `like`: the index of each element in one dimension.
  GraphTensor Index(const GraphTensor& like, int64_t dimension);
  // Over the dimensions where `to` is smaller: that of size 1 there, or of fewer groups of what lies side by side.
  void Reduce(cudnnReduceTensorOp_t mode, const GraphTensor& from, const GraphTensor& to);
  // Into a virtual float tensor of this layout.
  GraphTensor Reduce(cudnnReduceTensorOp_t mode, const GraphTensor& from,
                     const TensorLayout& layout);
  // to = left right, of the last two dimensions.
  void MatrixProduct(const GraphTensor& left, const GraphTensor& right, const GraphTensor& to);
  // Images are [samples, channels, height, width] and filters [outputs, inputs of a group, height, width], in that
  // order whatever the strides. Float tensors are convolved in true f32: without tensor cores, Fourier or Winograd
  // transforms.
  void ConvolutionForward(const GraphTensor& x, const GraphTensor& w, const GraphTensor& y,
                          const ConvolutionSteps& steps);
  void ConvolutionBackwardInput(const GraphTensor& dy, const GraphTensor& w, const GraphTensor& dx,
                                const ConvolutionSteps& steps);
  void ConvolutionBackwardWeight(const GraphTensor& x, const GraphTensor& dy, const GraphTensor& dw,
                                 const ConvolutionSteps& steps);
  // Into a virtual tensor.
  GraphTensor Transpose(const GraphTensor& from, cudnnDataType_t type);

 private:
  friend class Plan;

  GraphTensor AddTensor(const TensorLayout& layout, cudnnDataType_t type, bool is_virtual,
                        bool is_constant);
  // The names of a kind of convolution's attributes.
  struct ConvolutionNames {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t steps, alpha, beta, x, w, y;
  };
  void AddConvolution(const ConvolutionNames& names, const GraphTensor& x, const GraphTensor& w,
                      const GraphTensor& y, const ConvolutionSteps& steps);
  void AddPointwise(DescriptorWriter kind, absl::Span<const GraphTensor> inputs,
                    const GraphTensor& to);
  // Takes over what was made; null after an error.
  cudnnBackendDescriptor_t Keep(absl::StatusOr<Descriptor> made);

  absl::Status status_;
  bool needs_true_f32_ = false;
  int64_t tensors_ = 0;
  std::vector<int64_t> memory_ids_, constant_ids_;
  std::vector<float> constants_;
  std::vector<Descriptor> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

}  // namespace penstock::cuda
