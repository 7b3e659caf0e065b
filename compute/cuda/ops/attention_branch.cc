// The attention of a block: causal softmax attention between the two linear maps.
//
// The expansion gives query, key and value of all heads side by side, [rows, 3 width]. In bf16 cuDNN's
// fused attention works on it in place (sdpa.h); f32, and heads that cuDNN refuses, go through the kernels
// of kernels/attention.cu. Both keep the logarithm of each row's sum from F to I.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"
#include "compute/cuda/residual_branch.h"
#include "compute/cuda/sdpa.h"

namespace penstock::cuda {
namespace attention_branch {
namespace {

using branch_parameter::kExpansion;
using branch_parameter::kExpansionBias;
using branch_parameter::kProjection;

// Alignment of cuDNN's workspace.
constexpr int64_t kWorkspaceAlignment = 256;

template <typename Number>
class AttentionMiddle : public Middle<Number> {
 public:
  static absl::StatusOr<std::unique_ptr<Middle<Number>>> Create(CudaContext& context,
                                                                const BranchShape& shape,
                                                                const AttentionShape& heads) {
    auto middle = std::make_unique<AttentionMiddle>(context, shape, heads);
    if constexpr (!kIsFloat<Number>) {
      PENSTOCK_ASSIGN_OR_RETURN(middle->fused_, context.SdpaFor(heads));
    }
    absl::StatusOr<MatrixProduct> biased = MatrixProduct::Create(
        context, ForwardShape<Number>(shape.expansion(), kTypeOf<Number>, Epilogue::kBias));
    middle->adds_bias_ = absl::IsUnimplemented(biased.status());
    if (middle->adds_bias_) {
      biased = MatrixProduct::Create(context, ForwardShape<Number>(shape.expansion(), CUDA_R_32F));
    }
    PENSTOCK_RETURN_IF_ERROR(biased.status());
    middle->forward_ = *std::move(biased);
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->backward_,
        MatrixProduct::Create(context,
                              BackwardInputShape<Number>(shape.projection(), kTypeOf<Number>)));
    middle->PlaceScratch();
    return middle;
  }

  AttentionMiddle(CudaContext& context, const BranchShape& shape, const AttentionShape& heads)
      : cuda_(context), shape_(shape), heads_(heads) {
    BlockLayout stash;
    expansion_ = stash.Add<Number>(shape.rows * shape.expanded);
    log_sums_ = stash.Add<float>(shape.rows * heads.heads);
    stash_bytes_ = stash.size_bytes();
  }

  int64_t stash_bytes() const override { return stash_bytes_; }
  int64_t scratch_bytes() const override { return scratch_bytes_; }

  absl::Status Forward(const WeightView& weights, const Number* normal, Number* hidden, void* stash,
                       void* scratch) override {
    Number* expansion = expansion_.in(stash);
    PENSTOCK_RETURN_IF_ERROR(Expand(weights, normal, expansion, scratch));
    if (fused_ != nullptr) {
      return fused_->Forward(cuda_.dnn(), expansion, hidden, log_sums_.in(stash),
                             Workspace(scratch));
    }
    AttentionForward(cuda_.stream(), heads_, expansion, hidden, log_sums_.in(stash));
    return absl::OkStatus();
  }

  absl::Status Backward(const WeightView& weights, const Number* incoming, const Number* hidden,
                        Number* gradient, void* stash, void* scratch) override {
    const Number* expansion = expansion_.in(stash);
    Number* grad_hidden = grad_hidden_.in(scratch);
    PENSTOCK_RETURN_IF_ERROR(backward_.Run({.left = incoming,
                                            .right = ParameterOf<Number>(weights, kProjection),
                                            .result = grad_hidden}));
    if (fused_ != nullptr) {
      return fused_->Backward(cuda_.dnn(), expansion, hidden, grad_hidden, log_sums_.in(stash),
                              gradient, Workspace(scratch));
    }
    AttentionBackward(cuda_.stream(), heads_, expansion, hidden, grad_hidden, log_sums_.in(stash),
                      dots_.in(scratch), gradient);
    return absl::OkStatus();
  }

 private:
  // expansion = normal W + bias.
  absl::Status Expand(const WeightView& weights, const Number* normal, Number* expansion,
                      void* scratch) const {
    const Number* weight = ParameterOf<Number>(weights, kExpansion);
    if (!adds_bias_) {
      return forward_.Run({.left = normal,
                           .right = weight,
                           .result = expansion,
                           .bias = ParameterOf<Number>(weights, kExpansionBias)});
    }
    float* product = product_.in(scratch);
    PENSTOCK_RETURN_IF_ERROR(forward_.Run({.left = normal, .right = weight, .result = product}));
    AddBias(cuda_.stream(), shape_.rows, shape_.expanded, product,
            weights.parameter(kExpansionBias), expansion);
    return absl::OkStatus();
  }

  void* Workspace(void* scratch) const {
    const auto at = reinterpret_cast<uintptr_t>(workspace_.in(scratch));
    return reinterpret_cast<void*>((at + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
                                   kWorkspaceAlignment);
  }

  void PlaceScratch() {
    BlockLayout scratch;
    product_ = scratch.Add<float>(adds_bias_ ? shape_.rows * shape_.expanded : 0);
    grad_hidden_ = scratch.Add<Number>(shape_.rows * shape_.projected);
    dots_ = scratch.Add<float>(shape_.rows * heads_.heads);
    workspace_ =
        scratch.Add<char>(fused_ == nullptr ? 0 : fused_->workspace_bytes() + kWorkspaceAlignment);
    scratch_bytes_ = scratch.size_bytes();
  }

  CudaContext& cuda_;
  const BranchShape shape_;
  const AttentionShape heads_;
  const Sdpa* fused_ = nullptr;  // where cuDNN has it
  bool adds_bias_ = false;       // where cuBLASLt's epilogue does not
  MatrixProduct forward_, backward_;
  Place<Number> expansion_;    // stash [rows, 3 width]
  Place<float> log_sums_;      // stash [batch, heads, time]
  Place<float> product_;       // scratch [rows, 3 width], if adds_bias_
  Place<Number> grad_hidden_;  // scratch [rows, width]
  Place<float> dots_;          // scratch [batch, heads, time]
  Place<char> workspace_;      // scratch, of cuDNN
  int64_t stash_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

template <typename Number>
MadeKernels Make(CudaContext& context, const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t width = spec.width();
  const int64_t heads = spec.attributes().integer("heads");
  const BranchShape branch{spec.rows(), width, 3 * width, width};
  const AttentionShape shape{spec.samples, time, heads, width / heads};
  if (shape.size > kAttentionSizeMax) {
    return absl::UnimplementedError(absl::StrFormat(
        "attention heads of %d numbers; the CUDA back-end has them up to %d: use more heads",
        shape.size, kAttentionSizeMax));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Middle<Number>> middle,
                            AttentionMiddle<Number>::Create(context, branch, shape));
  return ResidualBranch<Number>::Create(
      context, branch, Dropout(spec.attributes().number("dropout"), time), std::move(middle));
}

}  // namespace
}  // namespace attention_branch

MadeKernels MakeAttentionBranch(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? attention_branch::Make<Bf16>(context, spec)
                   : attention_branch::Make<float>(context, spec);
}

}  // namespace penstock::cuda
