// The attention of a block: causal softmax attention between the two linear maps. The expansion gives query, key and
// value of all heads side by side, [rows, 3 width].
#include <utility>

#include "base/status.h"
#include "compute/cuda/attention.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"
#include "compute/cuda/residual_branch.h"

namespace penstock::cuda {
namespace attention_branch {
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
    PENSTOCK_ASSIGN_OR_RETURN(
        auto attention, ScaledAttention<Number>::Create(context, heads, /*is_bounded=*/false));
    auto middle = std::make_unique<AttentionMiddle>(context, shape, std::move(attention));
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

  AttentionMiddle(CudaContext& context, const BranchShape& shape, ScaledAttention<Number> attention)
      : cuda_(context), shape_(shape), attention_(std::move(attention)) {
    BlockLayout stash;
    expansion_ = stash.Add<Number>(shape.rows * shape.expanded);
    log_sums_ = stash.Add<float>(attention_.log_sums_floats());
    stash_bytes_ = stash.size_bytes();
  }

  int64_t stash_bytes() const override { return stash_bytes_; }
  int64_t scratch_bytes() const override { return scratch_bytes_; }
  absl::string_view fallback() const override { return attention_.why_not_fused(); }

  absl::Status Forward(const WeightView& weights, const Number* normal, Number* hidden, void* stash,
                       void* scratch) override {
    Number* expansion = expansion_.in(stash);
    PENSTOCK_RETURN_IF_ERROR(Expand(weights, normal, expansion, scratch));
    return attention_.Forward(SideBySide(expansion, attention_.shape()), hidden,
                              log_sums_.in(stash), attention_scratch_.in(scratch));
  }

  absl::Status Backward(const WeightView& weights, const Number* incoming, const Number* hidden,
                        Number* gradient, void* stash, void* scratch) override {
    const Number* expansion = expansion_.in(stash);
    Number* grad_hidden = grad_hidden_.in(scratch);
    PENSTOCK_RETURN_IF_ERROR(backward_.Run({.left = incoming,
                                            .right = ParameterOf<Number>(weights, kProjection),
                                            .result = grad_hidden}));
    return attention_.Backward(
        SideBySide(expansion, attention_.shape()), hidden, grad_hidden, log_sums_.in(stash),
        GradientsSideBySide(gradient, attention_.shape()), attention_scratch_.in(scratch));
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

  void PlaceScratch() {
    BlockLayout scratch;
    product_ = scratch.Add<float>(adds_bias_ ? shape_.rows * shape_.expanded : 0);
    grad_hidden_ = scratch.Add<Number>(shape_.rows * shape_.projected);
    attention_scratch_ = scratch.Add<char>(attention_.scratch_bytes());
    scratch_bytes_ = scratch.size_bytes();
  }

  CudaContext& cuda_;
  const BranchShape shape_;
  const ScaledAttention<Number> attention_;
  bool adds_bias_ = false;  // where cuBLASLt's epilogue does not
  MatrixProduct forward_, backward_;
  Place<Number> expansion_;    // stash [rows, 3 width]
  Place<float> log_sums_;      // stash [batch, heads, time]
  Place<float> product_;       // scratch [rows, 3 width], if adds_bias_
  Place<Number> grad_hidden_;  // scratch [rows, width]
  Place<char> attention_scratch_;
  int64_t stash_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

template <typename Number>
MadeKernels Make(CudaContext& context, const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t width = spec.width();
  const int64_t heads = spec.attributes().integer("heads");
  const BranchShape branch = {.rows = spec.rows(),
                              .width = width,
                              .expanded = 3 * width,
                              .projected = width,
                              .outputs_first = spec.attributes().word("layout") == "outputs_first",
                              .fp8 = spec.fp8};
  const AttentionShape shape = {.batch = spec.samples,
                                .queries = time,
                                .keys = time,
                                .heads = heads,
                                .size = width / heads,
                                .key_value_heads = heads,
                                .query_stride = branch.expanded,
                                .key_stride = branch.expanded,
                                .causal = true,
                                .window = 0};
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
