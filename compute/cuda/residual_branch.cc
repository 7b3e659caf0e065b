#include "compute/cuda/residual_branch.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

using namespace branch_parameter;  // NOLINT(google-build-using-namespace): names of this file's numbers

constexpr float kGptNormEpsilon = 1e-5f;

template <typename Number>
absl::StatusOr<std::unique_ptr<OpKernels>> ResidualBranch<Number>::Create(
    CudaContext& context, const BranchShape& shape, const Dropout& dropout,
    std::unique_ptr<Middle<Number>> middle) {
  std::unique_ptr<ResidualBranch> branch(
      new ResidualBranch(context, shape, dropout, std::move(middle)));
  PENSTOCK_RETURN_IF_ERROR(branch->MakeProducts());
  return std::unique_ptr<OpKernels>(std::move(branch));
}

template <typename Number>
ResidualBranch<Number>::ResidualBranch(CudaContext& context, const BranchShape& shape,
                                       const Dropout& dropout,
                                       std::unique_ptr<Middle<Number>> middle)
    : cuda_(context),
      shape_(shape),
      dropout_(dropout),
      copies_gradient_(dropout.active() || !kIsFloat<Number>),
      middle_(std::move(middle)) {
  BlockLayout stash, kept, weight_stash;
  mean_ = stash.Add<float>(shape.rows);
  inverse_deviation_ = stash.Add<float>(shape.rows);
  middle_stash_ = stash.Add<char>(middle_->stash_bytes());
  normal_ = kept.Add<Number>(shape.rows * shape.width);
  hidden_ = kept.Add<Number>(shape.rows * shape.projected);
  masked_gradient_ = weight_stash.Add<Number>(copies_gradient_ ? shape.rows * shape.width : 0);
  expansion_gradient_ = weight_stash.Add<Number>(shape.rows * shape.expanded);
  gain_sums_ = weight_stash.Add<float>(shape.width);
  bias_sums_ = weight_stash.Add<float>(shape.width);
  needs_ = {.stash_bytes = stash.size_bytes(),
            .kept_bytes = kept.size_bytes(),
            .weight_stash_bytes = weight_stash.size_bytes(),
            .inputs_for_input = kAllInputs,
            .grad_output_for_weight = !copies_gradient_};
}

template <typename Number>
absl::Status ResidualBranch<Number>::MakeProducts() {
  BlockLayout scratch;
  const int64_t columns = std::max(2 * shape_.width, shape_.expanded);
  row_scratch_ = scratch.Add<float>(shape_.rows * shape_.width);
  sums_ = scratch.Add<float>(columns);
  sums_workspace_ = scratch.Add<float>(ColumnSumsWorkspaceFloats(shape_.rows, columns));
  middle_scratch_ = scratch.Add<char>(middle_->scratch_bytes());
  PENSTOCK_RETURN_IF_ERROR(cuda_.layer_scratch().Reserve(scratch.size_bytes()));

  PENSTOCK_ASSIGN_OR_RETURN(
      projection_,
      MatrixProduct::Create(cuda_, ForwardShape<Number>(shape_.projection(), CUDA_R_32F)));
  PENSTOCK_ASSIGN_OR_RETURN(
      expansion_backward_,
      MatrixProduct::Create(cuda_, BackwardInputShape<Number>(shape_.expansion(), CUDA_R_32F)));
  PENSTOCK_ASSIGN_OR_RETURN(
      projection_weight_,
      WeightGradient<Number>::Create(cuda_, shape_.projection(), kProjection, /*has_bias=*/true));
  PENSTOCK_ASSIGN_OR_RETURN(
      expansion_weight_,
      WeightGradient<Number>::Create(cuda_, shape_.expansion(), kExpansion, /*has_bias=*/true));
  return dropout_.active() ? absl::OkStatus() : MakeResidualProduct();
}

template <typename Number>
absl::Status ResidualBranch<Number>::MakeResidualProduct() {
  ProductShape shape = ForwardShape<Number>(shape_.projection(), CUDA_R_32F, Epilogue::kBias);
  shape.adds = true;
  absl::StatusOr<MatrixProduct> made = MatrixProduct::Create(cuda_, shape);
  if (absl::IsUnimplemented(made.status())) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(made.status());
  residual_projection_ = *std::move(made);
  return absl::OkStatus();
}

template <typename Number>
bool ResidualBranch<Number>::ProjectsOntoResidual(const Tape& tape) const {
  return residual_projection_.has_value() && MatrixProduct::IsAligned(tape.input()) &&
         MatrixProduct::IsAligned(tape.result());
}

template <typename Number>
absl::Status ResidualBranch<Number>::Forward(const PassContext& context, const WeightView& weights,
                                             const Tape& tape) {
  void* stash = tape.stash;
  void* scratch = cuda_.layer_scratch().data();
  Number* normal = normal_.in(tape.kept);
  Number* hidden = hidden_.in(tape.kept);
  float* projected = row_scratch_.in(scratch);
  LayerNormForward(cuda_.stream(), shape_.rows, shape_.width, kGptNormEpsilon, tape.input(),
                   weights.parameter(kGain), weights.parameter(kBias), mean_.in(stash),
                   inverse_deviation_.in(stash), normal);
  PENSTOCK_RETURN_IF_ERROR(middle_->Forward(weights, normal, hidden, middle_stash_.in(stash),
                                            middle_scratch_.in(scratch)));
  if (ProjectsOntoResidual(tape)) {
    PENSTOCK_RETURN_IF_ERROR(
        residual_projection_->Run({.left = hidden,
                                   .right = ParameterOf<Number>(weights, kProjection),
                                   .result = tape.result(),
                                   .addend = tape.input(),
                                   .bias = weights.parameter(kProjectionBias)}));
    return cuda_.Check("forward of a block");
  }
  PENSTOCK_RETURN_IF_ERROR(projection_.Run(
      {.left = hidden, .right = ParameterOf<Number>(weights, kProjection), .result = projected}));
  ResidualForward(cuda_.stream(), shape_.rows, shape_.width, tape.input(), projected,
                  weights.parameter(kProjectionBias), cuda_.MaskOf(dropout_, context),
                  tape.result());
  return cuda_.Check("forward of a block");
}

template <typename Number>
const Number* ResidualBranch<Number>::ProjectedGradient(const Tape& tape) const {
  if constexpr (kIsFloat<Number>) {
    if (!copies_gradient_) return tape.gradient();
  }
  return masked_gradient_.in(tape.weight_stash);
}

template <typename Number>
absl::Status ResidualBranch<Number>::BackwardInput(const PassContext& context,
                                                   const WeightView& weights, const Tape& tape) {
  void* stash = tape.stash;
  void* weight_stash = tape.weight_stash;
  void* scratch = cuda_.layer_scratch().data();
  const auto* grad_output = tape.gradient();
  Number* expansion_gradient = expansion_gradient_.in(weight_stash);
  float* normal_gradient = row_scratch_.in(scratch);
  if (copies_gradient_) {
    Mask(cuda_.stream(), shape_.rows, shape_.width, grad_output, cuda_.MaskOf(dropout_, context),
         /*first_row=*/0, masked_gradient_.in(weight_stash));
  }
  PENSTOCK_RETURN_IF_ERROR(middle_->Backward(weights, ProjectedGradient(tape),
                                             hidden_.in(tape.kept), expansion_gradient,
                                             middle_stash_.in(stash), middle_scratch_.in(scratch)));
  PENSTOCK_RETURN_IF_ERROR(
      expansion_backward_.Run({.left = expansion_gradient,
                               .right = ParameterOf<Number>(weights, kExpansion),
                               .result = normal_gradient}));
  LayerNormBackward(cuda_.stream(), shape_.rows, shape_.width,
                    {.input = tape.input(),
                     .gain = weights.parameter(kGain),
                     .mean = mean_.in(stash),
                     .inverse_deviation = inverse_deviation_.in(stash),
                     .grad_output = normal_gradient,
                     .residual = grad_output,
                     .grad_input = tape.grad_input(),
                     .gain_sums = gain_sums_.in(weight_stash),
                     .bias_sums = bias_sums_.in(weight_stash),
                     .workspace = sums_workspace_.in(scratch)});
  return cuda_.Check("backward of a block's input");
}

template <typename Number>
absl::Status ResidualBranch<Number>::BackwardWeight(const PassContext&,
                                                    const GradientView& gradients,
                                                    const Tape& tape) {
  void* kept = tape.kept;
  void* weight_stash = tape.weight_stash;
  void* scratch = cuda_.layer_scratch().data();
  const Number* projected = ProjectedGradient(tape);
  const Number* expanded = expansion_gradient_.in(weight_stash);
  const auto add = [&](const WeightGradient<Number>& weight, const Number* x, const Number* dy,
                       int64_t outputs, int bias) -> absl::Status {
    float* sums = sums_.in(scratch);
    if (weight.sums_outputs()) {
      PENSTOCK_RETURN_IF_ERROR(weight.AddAndSum(gradients, x, dy, sums));
    } else {
      PENSTOCK_RETURN_IF_ERROR(weight.Add(gradients, x, dy));
      ColumnSums(cuda_.stream(), shape_.rows, outputs, dy, sums, sums_workspace_.in(scratch));
    }
    AddInto(cuda_.stream(), outputs, sums, gradients.parameter(bias));
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(
      add(projection_weight_, hidden_.in(kept), projected, shape_.width, kProjectionBias));
  PENSTOCK_RETURN_IF_ERROR(
      add(expansion_weight_, normal_.in(kept), expanded, shape_.expanded, kExpansionBias));
  AddInto(cuda_.stream(), shape_.width, gain_sums_.in(weight_stash), gradients.parameter(kGain));
  AddInto(cuda_.stream(), shape_.width, bias_sums_.in(weight_stash), gradients.parameter(kBias));
  return cuda_.Check("backward of a block's weights");
}

template class ResidualBranch<float>;
template class ResidualBranch<Bf16>;

}  // namespace penstock::cuda
