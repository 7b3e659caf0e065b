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
#include "compute/cuda/layers.h"
#include "compute/cuda/residual_branch.h"
#include "compute/cuda/sdpa.h"

namespace penstock::cuda {
namespace {

using branch_parameter::kExpansion;
using branch_parameter::kExpansionBias;
using branch_parameter::kProjection;

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
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->forward_,
        MatrixProduct::Create(
            context, ForwardShape<Number>(shape.expansion(), kTypeOf<Number>, Epilogue::kBias)));
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
    PENSTOCK_RETURN_IF_ERROR(forward_.Run({.left = normal,
                                           .right = ParameterOf<Number>(weights, kExpansion),
                                           .result = expansion,
                                           .bias = ParameterOf<Number>(weights, kExpansionBias)}));
    if (fused_ != nullptr) {
      return fused_->Forward(cuda_.dnn(), expansion, hidden, log_sums_.in(stash),
                             workspace_.in(scratch));
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
                              gradient, workspace_.in(scratch));
    }
    AttentionBackward(cuda_.stream(), heads_, expansion, hidden, grad_hidden, log_sums_.in(stash),
                      dots_.in(scratch), gradient);
    return absl::OkStatus();
  }

 private:
  void PlaceScratch() {
    BlockLayout scratch;
    grad_hidden_ = scratch.Add<Number>(shape_.rows * shape_.projected);
    dots_ = scratch.Add<float>(shape_.rows * heads_.heads);
    workspace_ = scratch.Add<char>(fused_ == nullptr ? 0 : fused_->workspace_bytes());
    scratch_bytes_ = scratch.size_bytes();
  }

  CudaContext& cuda_;
  const BranchShape shape_;
  const AttentionShape heads_;
  const Sdpa* fused_ = nullptr;  // where cuDNN has it
  MatrixProduct forward_, backward_;
  Place<Number> expansion_;    // stash [rows, 3 width]
  Place<float> log_sums_;      // stash [batch, heads, time]
  Place<Number> grad_hidden_;  // scratch [rows, width]
  Place<float> dots_;          // scratch [batch, heads, time]
  Place<char> workspace_;      // scratch, of cuDNN
  int64_t stash_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

template <typename Number>
absl::StatusOr<std::unique_ptr<Layer>> Make(CudaContext& context, const AttentionLayer& config,
                                            BatchShape shape) {
  const BranchShape branch{shape.batch * shape.time, config.width, 3 * config.width, config.width};
  const AttentionShape heads{shape.batch, shape.time, config.heads, config.width / config.heads};
  if (heads.size > kAttentionSizeMax) {
    return absl::UnimplementedError(absl::StrFormat(
        "attention heads of %d numbers; the CUDA back-end has them up to %d: use more heads",
        heads.size, kAttentionSizeMax));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Middle<Number>> middle,
                            AttentionMiddle<Number>::Create(context, branch, heads));
  return ResidualBranch<Number>::Create(context, branch, Dropout(config.dropout, shape.time),
                                        std::move(middle));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeAttention(CudaContext& context,
                                                     const AttentionLayer& config, BatchShape shape,
                                                     bool bf16) {
  return bf16 ? Make<Bf16>(context, config, shape) : Make<float>(context, config, shape);
}

}  // namespace penstock::cuda
