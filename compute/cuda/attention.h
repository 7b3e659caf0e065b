// ScaledAttention: scaled dot-product attention of one shape: in bf16 through cuDNN's fused attention (sdpa.h) where it
// has an engine, else through kernels/attention.cu. Both keep the logarithm of each row's sum from F to I.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compute/block_layout.h"
#include "compute/cuda/context.h"
#include "compute/cuda/dnn_plan.h"
#include "compute/cuda/number.h"

namespace penstock::cuda {

// Parts of rows in which queries, keys and values are side by side.
template <typename Number>
AttentionInputs<Number> SideBySide(const Number* rows, const AttentionShape& shape) {
  const Number* const keys = rows + shape.width();
  return {.query = rows, .key = keys, .value = keys + shape.key_width()};
}
template <typename Number>
AttentionGradients<Number> GradientsSideBySide(Number* rows, const AttentionShape& shape) {
  Number* const keys = rows + shape.width();
  return {.query = rows, .key = keys, .value = keys + shape.key_width()};
}

template <typename Number>
class ScaledAttention {
 public:
  ScaledAttention() = default;
  // Errors: Unimplemented (no kernels for heads so large), those of cuDNN.
  // REQUIRES: `context` outlives it.
  // `is_bounded`: by lengths or documents, which the fused attention does not know.
  static absl::StatusOr<ScaledAttention> Create(CudaContext& context, const AttentionShape& shape,
                                                bool is_bounded);

  const AttentionShape& shape() const { return shape_; }
  bool is_fused() const { return fused_ != nullptr; }
  // Why it is not, in bf16; else empty.
  const std::string& why_not_fused() const { return why_not_fused_; }
  // Of what F leaves for I.
  int64_t log_sums_floats() const { return shape_.batch * shape_.heads * shape_.queries; }
  // Memory that each pass may write; nothing in it is kept.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // As those of kernels.h. Errors: those of cuDNN.
  absl::Status Forward(const AttentionInputs<Number>& inputs, Number* output, float* log_sums,
                       void* scratch) const;
  // REQUIRES: no gradient is null, if it is fused.
  absl::Status Backward(const AttentionInputs<Number>& inputs, const Number* output,
                        const Number* grad_output, const float* log_sums,
                        const AttentionGradients<Number>& gradients, void* scratch) const;

 private:
  CudaContext* context_ = nullptr;
  AttentionShape shape_ = {};
  const Sdpa* fused_ = nullptr;
  std::string why_not_fused_;
  Place<float> dots_;        // scratch [batch, heads, queries], of our own kernels
  PlanWorkspace workspace_;  // scratch, if it is fused
  int64_t scratch_bytes_ = 0;
};

extern template class ScaledAttention<float>;
extern template class ScaledAttention<Bf16>;

}  // namespace penstock::cuda
