// The MLP of a block: GELU between the two linear maps, fused into their products where cuBLASLt can.
#include <utility>

#include "base/status.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"
#include "compute/cuda/residual_branch.h"

namespace penstock::cuda {
namespace mlp_branch {
namespace {

using branch_parameter::kExpansion;
using branch_parameter::kExpansionBias;
using branch_parameter::kProjection;

// z = normal W + bias is kept for I; both products carry GELU as their epilogue.
template <typename Number>
class FusedGelu : public Middle<Number> {
 public:
  static absl::StatusOr<std::unique_ptr<Middle<Number>>> Create(CudaContext& context,
                                                                const BranchShape& shape) {
    auto middle = std::make_unique<FusedGelu>();
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->forward_,
        MatrixProduct::Create(context, ForwardShape<Number>(shape.expansion(), kTypeOf<Number>,
                                                            Epilogue::kBiasGelu)));
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->backward_, MatrixProduct::Create(context, BackwardInputShape<Number>(
                                                              shape.projection(), kTypeOf<Number>,
                                                              Epilogue::kGeluSlope)));
    middle->stash_bytes_ = shape.rows * shape.expanded * static_cast<int64_t>(sizeof(Number));
    return middle;
  }

  int64_t stash_bytes() const override { return stash_bytes_; }
  int64_t scratch_bytes() const override { return 0; }

  absl::Status Forward(const WeightView& weights, const Number* normal, Number* hidden, void* stash,
                       void* /*scratch*/) override {
    return forward_.Run({.left = normal,
                         .right = ParameterOf<Number>(weights, kExpansion),
                         .result = hidden,
                         .bias = ParameterOf<Number>(weights, kExpansionBias),
                         .auxiliary = stash});
  }

  absl::Status Backward(const WeightView& weights, const Number* incoming, const Number* /*hidden*/,
                        Number* gradient, void* stash, void* /*scratch*/) override {
    return backward_.Run({.left = incoming,
                          .right = ParameterOf<Number>(weights, kProjection),
                          .result = gradient,
                          .auxiliary = stash});
  }

 private:
  MatrixProduct forward_, backward_;
  int64_t stash_bytes_ = 0;
};

// In bf16 where cuBLASLt has no GELU, as for fp8: the product adds the bias, and z is bf16 in memory.
class BiasedGelu : public Middle<Bf16> {
 public:
  static absl::StatusOr<std::unique_ptr<Middle<Bf16>>> Create(CudaContext& context,
                                                              const BranchShape& shape) {
    auto middle = std::make_unique<BiasedGelu>(context, shape);
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->forward_,
        MatrixProduct::Create(
            context, ForwardShape<Bf16>(shape.expansion(), kTypeOf<Bf16>, Epilogue::kBias)));
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->backward_, MatrixProduct::Create(context, BackwardInputShape<Bf16>(
                                                              shape.projection(), kTypeOf<Bf16>)));
    return middle;
  }
  BiasedGelu(CudaContext& context, const BranchShape& shape)
      : cuda_(context), count_(shape.rows * shape.expanded) {}

  int64_t stash_bytes() const override { return count_ * static_cast<int64_t>(sizeof(Bf16)); }
  int64_t scratch_bytes() const override { return 0; }

  absl::Status Forward(const WeightView& weights, const Bf16* normal, Bf16* hidden, void* stash,
                       void* /*scratch*/) override {
    auto* z = static_cast<Bf16*>(stash);
    PENSTOCK_RETURN_IF_ERROR(forward_.Run({.left = normal,
                                           .right = weights.bf16_parameter(kExpansion),
                                           .result = z,
                                           .bias = weights.bf16_parameter(kExpansionBias)}));
    GeluForward(cuda_.stream(), count_, z, hidden);
    return absl::OkStatus();
  }

  absl::Status Backward(const WeightView& weights, const Bf16* incoming, const Bf16* /*hidden*/,
                        Bf16* gradient, void* stash, void* /*scratch*/) override {
    PENSTOCK_RETURN_IF_ERROR(backward_.Run(
        {.left = incoming, .right = weights.bf16_parameter(kProjection), .result = gradient}));
    GeluBackward(cuda_.stream(), count_, gradient, static_cast<const Bf16*>(stash), gradient);
    return absl::OkStatus();
  }

 private:
  CudaContext& cuda_;
  const int64_t count_;
  MatrixProduct forward_, backward_;
};

// For f32, and for sizes that the epilogues refuse.
template <typename Number>
class PlainGelu : public Middle<Number> {
 public:
  static absl::StatusOr<std::unique_ptr<Middle<Number>>> Create(CudaContext& context,
                                                                const BranchShape& shape) {
    auto middle = std::make_unique<PlainGelu>(context, shape);
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->forward_,
        MatrixProduct::Create(context, ForwardShape<Number>(shape.expansion(), CUDA_R_32F)));
    PENSTOCK_ASSIGN_OR_RETURN(
        middle->backward_,
        MatrixProduct::Create(context, BackwardInputShape<Number>(shape.projection(), CUDA_R_32F)));
    return middle;
  }
  PlainGelu(CudaContext& context, const BranchShape& shape) : cuda_(context), shape_(shape) {}

  int64_t stash_bytes() const override { return count() * static_cast<int64_t>(sizeof(float)); }
  int64_t scratch_bytes() const override { return stash_bytes(); }

  absl::Status Forward(const WeightView& weights, const Number* normal, Number* hidden, void* stash,
                       void* /*scratch*/) override {
    auto* z = static_cast<float*>(stash);
    PENSTOCK_RETURN_IF_ERROR(forward_.Run(
        {.left = normal, .right = ParameterOf<Number>(weights, kExpansion), .result = z}));
    BiasGeluForward(cuda_.stream(), shape_.rows, shape_.expanded, z,
                    weights.parameter(kExpansionBias), hidden);
    return absl::OkStatus();
  }

  absl::Status Backward(const WeightView& weights, const Number* incoming, const Number* /*hidden*/,
                        Number* gradient, void* stash, void* scratch) override {
    auto* through = static_cast<float*>(scratch);
    PENSTOCK_RETURN_IF_ERROR(backward_.Run(
        {.left = incoming, .right = ParameterOf<Number>(weights, kProjection), .result = through}));
    GeluBackward(cuda_.stream(), count(), through, static_cast<const float*>(stash), gradient);
    return absl::OkStatus();
  }

 private:
  int64_t count() const { return shape_.rows * shape_.expanded; }

  CudaContext& cuda_;
  const BranchShape shape_;
  MatrixProduct forward_, backward_;
};

// The first that cuBLASLt has products for. It does not say how exact its tanh is, so f32 uses our own.
template <typename Number>
absl::StatusOr<std::unique_ptr<Middle<Number>>> MakeMiddle(CudaContext& context,
                                                           const BranchShape& shape) {
  if constexpr (!kIsFloat<Number>) {
    for (const auto create : {FusedGelu<Number>::Create, BiasedGelu::Create}) {
      absl::StatusOr<std::unique_ptr<Middle<Number>>> made = create(context, shape);
      if (!absl::IsUnimplemented(made.status())) return made;
    }
  }
  return PlainGelu<Number>::Create(context, shape);
}

template <typename Number>
MadeKernels Make(CudaContext& context, const KernelSpec& spec) {
  const int64_t hidden = spec.attributes().integer("hidden");
  const BranchShape branch = {.rows = spec.rows(),
                              .width = spec.width(),
                              .expanded = hidden,
                              .projected = hidden,
                              .outputs_first = spec.attributes().word("layout") == "outputs_first",
                              .fp8 = spec.fp8};
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Middle<Number>> middle,
                            MakeMiddle<Number>(context, branch));
  const Dropout dropout(spec.attributes().number("dropout"), spec.inputs[0].dims[0]);
  return ResidualBranch<Number>::Create(context, branch, dropout, std::move(middle));
}

}  // namespace
}  // namespace mlp_branch

MadeKernels MakeMlpBranch(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? mlp_branch::Make<Bf16>(context, spec) : mlp_branch::Make<float>(context, spec);
}

}  // namespace penstock::cuda
