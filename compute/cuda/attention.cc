#include "compute/cuda/attention.h"

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace penstock::cuda {

template <typename Number>
absl::StatusOr<ScaledAttention<Number>> ScaledAttention<Number>::Create(CudaContext& context,
                                                                        const AttentionShape& shape,
                                                                        bool is_bounded) {
  if (shape.size > kAttentionSizeMax) {
    return absl::UnimplementedError(absl::StrFormat(
        "attention heads of %d numbers; the CUDA back-end has them up to %d: use more heads",
        shape.size, kAttentionSizeMax));
  }
  ScaledAttention made;
  made.context_ = &context;
  made.shape_ = shape;
  if constexpr (!kIsFloat<Number>) {
    if (is_bounded) {
      made.why_not_fused_ = "cuDNN's attention knows no lengths and no documents";
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(const auto* known, context.SdpaFor(shape));
      made.fused_ = known->sdpa.get();
      made.why_not_fused_ = known->why_not;
    }
  }
  BlockLayout scratch;
  if (made.is_fused()) {
    made.workspace_ = PlanWorkspace(made.fused_->workspace_bytes(), scratch);
  } else {
    made.dots_ = scratch.Add<float>(made.log_sums_floats());
  }
  made.scratch_bytes_ = scratch.size_bytes();
  return made;
}

template <typename Number>
absl::Status ScaledAttention<Number>::Forward(const AttentionInputs<Number>& inputs, Number* output,
                                              float* log_sums, void* scratch) const {
  if constexpr (!kIsFloat<Number>) {
    if (is_fused()) {
      return fused_->Forward(context_->dnn(), inputs, output, log_sums, workspace_.in(scratch));
    }
  }
  AttentionForward(context_->stream(), shape_, inputs, output, log_sums);
  return absl::OkStatus();
}

template <typename Number>
absl::Status ScaledAttention<Number>::Backward(const AttentionInputs<Number>& inputs,
                                               const Number* output, const Number* grad_output,
                                               const float* log_sums,
                                               const AttentionGradients<Number>& gradients,
                                               void* scratch) const {
  if constexpr (!kIsFloat<Number>) {
    if (is_fused()) {
      return fused_->Backward(context_->dnn(), inputs, output, grad_output, log_sums, gradients,
                              workspace_.in(scratch));
    }
  }
  AttentionBackward(context_->stream(), shape_, inputs, output, grad_output, log_sums,
                    dots_.in(scratch), gradients);
  return absl::OkStatus();
}

template class ScaledAttention<float>;
template class ScaledAttention<Bf16>;

}  // namespace penstock::cuda
