// Sdpa: scaled dot-product attention in bf16 through cuDNN's fused engines (flash attention: Dao and
// others, arXiv 2205.14135), forward and backward, for one shape, over all keys of a sample or a window of them.
//
// The scores do not reach memory in the forward pass; the backward pass computes them again from the
// log-sum-exp of each row. Sums run in float. With kBitwise results repeat bit for bit on one kind of device: the
// backward pass has the form that NVIDIA's own frontend gives it when asked for determinism, which
// keeps the gradient of the scores in the workspace, 2 * batch * heads * queries * keys bytes. With kFast it has the
// frontend's other form where that needs less: the gradient of the queries is summed there, in
// 4 * batch * heads * queries * size bytes, in the order in which blocks finish.
//
// Buffers are those of a microbatch, laid out as AttentionForward of kernels.h has them, 16-byte
// aligned, as are the rows.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/cuda/dnn_plan.h"
#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

class Sdpa {
 public:
  // Takes about a second, each time: cuDNN compiles kernels and keeps none. One object serves all
  // layers of a shape.
  // Errors: Unimplemented when cuDNN has no engine for this shape on this GPU (sizes that are no
  // multiple of 8, or too large; a single query or key; a window, and fewer keys than queries; an old
  // GPU): AttentionForward and AttentionBackward of kernels.h compute the same. Else those of cuDNN.
  static absl::StatusOr<std::unique_ptr<Sdpa>> Create(cudnnHandle_t handle,
                                                      const AttentionShape& shape,
                                                      Repeatability repeatability);
  // For a GPU that may be only described; see PlanTarget.
  static absl::StatusOr<std::unique_ptr<Sdpa>> CreateFor(const PlanTarget& target,
                                                         const AttentionShape& shape);

  // Memory that either pass may write; nothing in it is kept between them. See PlanWorkspace.
  int64_t workspace_bytes() const;

  // Both queue work on the stream of `handle`. Errors: those of cuDNN.
  // REQUIRES: the inputs have no lengths.
  //
  // log_sums [batch, heads, queries]: of the scaled scores.
  absl::Status Forward(cudnnHandle_t handle, const AttentionInputs<Bf16>& inputs, Bf16* output,
                       float* log_sums, void* workspace) const;
  // Writes every element of the gradients, of which none is null.
  absl::Status Backward(cudnnHandle_t handle, const AttentionInputs<Bf16>& inputs,
                        const Bf16* output, const Bf16* grad_output, const float* log_sums,
                        const AttentionGradients<Bf16>& gradients, void* workspace) const;

 private:
  Sdpa(const AttentionShape& shape, Plan forward, Plan backward, bool has_sums);

  // At the front of the workspace of the backward pass: bytes of the float [batch, heads, queries], and of the sums.
  int64_t DotsBytes() const;
  int64_t SumsBytes() const;

  const AttentionShape shape_;
  const bool has_sums_;
  const Plan forward_, backward_;
};

}  // namespace penstock::cuda
