// Convolution: the three products of a convolution of images, for one shape: through cuDNN, or, where it has no
// engine, as plain sums (kernels/convolution.cu).
//
// Images are [samples, height, width, channels], filters [outputs, inputs of a group, height, width], as files have
// them. cuDNN's engines want filters with the channels last, so each pass takes a copy in that order. Operands are
// float, and the products then true f32, or bf16; sums run in float. cuDNN has no engine that reads bf16 and writes
// float, so the results of bf16 products are rounded to bf16 once.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/block_layout.h"
#include "compute/cuda/dnn_plan.h"
#include "compute/cuda/kernels/images.h"
#include "model/window.h"

namespace penstock::cuda {

ImageAxis AxisOf(const Window::Axis& axis);

struct ConvolutionShape {
  int64_t samples = 0;
  int64_t inputs = 0, outputs = 0;  // channels
  int64_t groups = 1;
  Window window;
  bool bf16 = false;  // the operands; else float

  ConvolutionSizes sizes() const;
  int64_t input_elements() const;
  int64_t output_elements() const;
  int64_t filter_elements() const;
  friend bool operator==(const ConvolutionShape&, const ConvolutionShape&) = default;
};

class Convolution {
 public:
  // May take a second: cuDNN compiles kernels. One object serves all nodes of a shape. For a GPU that may be only
  // described; see PlanTarget. Errors: those of cuDNN, but not that it has no engine.
  static absl::StatusOr<std::unique_ptr<Convolution>> Create(const PlanTarget& target,
                                                             const ConvolutionShape& shape);

  // Memory that each pass may write; nothing in it is kept.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // All queue work on the stream of `handle`, which is `stream`. Errors: those of cuDNN.
  //
  // y = x * filters + bias, which may be null.
  absl::Status Forward(cudnnHandle_t handle, cudaStream_t stream, const void* x,
                       const void* filters, const float* bias, float* y, void* scratch) const;
  absl::Status BackwardInput(cudnnHandle_t handle, cudaStream_t stream, const void* dy,
                             const void* filters, float* dx, void* scratch) const;
  // Adds to `dw`.
  absl::Status BackwardWeight(cudnnHandle_t handle, cudaStream_t stream, const void* x,
                              const void* dy, float* dw, void* scratch) const;

 private:
  explicit Convolution(const ConvolutionShape& shape);
  void PlaceScratch();
  template <typename Number>
  absl::Status ForwardOf(cudnnHandle_t handle, cudaStream_t stream, const Number* x,
                         const Number* filters, const float* bias, float* y, void* scratch) const;
  template <typename Number>
  absl::Status BackwardInputOf(cudnnHandle_t handle, cudaStream_t stream, const Number* dy,
                               const Number* filters, float* dx, void* scratch) const;
  template <typename Number>
  absl::Status BackwardWeightOf(cudnnHandle_t handle, cudaStream_t stream, const Number* x,
                                const Number* dy, float* dw, void* scratch) const;
  // The filters as cuDNN reads them.
  template <typename Number>
  const Number* Packed(cudaStream_t stream, const Number* filters, void* scratch) const;
  // Where cuDNN writes, of what goes to `to` in the end.
  template <typename Number>
  Number* Target(float* to, void* scratch) const;

  const ConvolutionShape shape_;
  // Null where cuDNN has no engine.
  std::unique_ptr<const Plan> forward_, backward_input_, backward_weight_;
  Place<char> packed_;       // scratch: filters, their channels last
  Place<char> result_;       // scratch: bf16 results; those of the filters always
  PlanWorkspace workspace_;  // scratch
  int64_t scratch_bytes_ = 0;
};

}  // namespace penstock::cuda
