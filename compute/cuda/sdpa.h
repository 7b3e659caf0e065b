// Sdpa: causal scaled dot-product attention in bf16 through cuDNN's fused engines (flash attention:
// Dao and others, arXiv 2205.14135), forward and backward, for one shape.
//
// Scores are query . key / sqrt(size); a position sees itself and what is before it. The scores do
// not reach memory in the forward pass; the backward pass computes them again from the log-sum-exp
// of each row. Sums run in float. Results repeat bit for bit on one kind of device: the backward
// pass has the form that NVIDIA's own frontend gives it when asked for determinism, which keeps the
// gradient of the scores in the workspace, 2 * batch * heads * time * time bytes.
//
// Buffers are those of a microbatch, 16-byte aligned, row-major:
//   expansion, gradient  [batch * time, 3 * heads * size]  bf16, query, key and value side by side
//   output, grad_output  [batch * time, heads * size]      bf16
//   stats                [batch, heads, time]              float, log-sum-exp of the scaled scores
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
  // multiple of 8, or too large; a time of 1; an old GPU): AttentionForward and AttentionBackward
  // of kernels.h compute the same. Else those of cuDNN.
  static absl::StatusOr<std::unique_ptr<Sdpa>> Create(cudnnHandle_t handle,
                                                      const AttentionShape& shape,
                                                      Repeatability repeatability);
  // For a GPU that may be only described; see PlanTarget.
  static absl::StatusOr<std::unique_ptr<Sdpa>> CreateFor(const PlanTarget& target,
                                                         const AttentionShape& shape);

  // Memory, 256-byte aligned, that either pass may write; nothing in it is kept between them.
  int64_t workspace_bytes() const;

  // Both queue work on the stream of `handle`. Errors: those of cuDNN.
  absl::Status Forward(cudnnHandle_t handle, const void* expansion, void* output, float* stats,
                       void* workspace) const;
  // Writes every element of `gradient`.
  absl::Status Backward(cudnnHandle_t handle, const void* expansion, const void* output,
                        const void* grad_output, const float* stats, void* gradient,
                        void* workspace) const;

 private:
  Sdpa(const AttentionShape& shape, Plan forward, Plan backward);

  // From query to key and from key to value in a row of `expansion`.
  int64_t SideBytes() const;
  // Bytes of the float [batch, heads, time] at the front of the workspace of the backward pass.
  int64_t DotsBytes() const;

  const AttentionShape shape_;
  const Plan forward_, backward_;
};

}  // namespace penstock::cuda
