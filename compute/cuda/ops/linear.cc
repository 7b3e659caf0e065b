// y = x W + b over rows. Parameters: weight, and a bias if there is one.
#include "compute/cuda/linear.h"

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/affine_operands.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace linear {
namespace {

constexpr int kWeight = 0;
constexpr int kBias = 1;

template <typename Number>
class CudaLinear : public OpKernels {
 public:
  static MadeKernels Create(CudaContext& context, const KernelSpec& spec) {
    auto kernels = std::make_unique<CudaLinear>(context, spec);
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_.size_bytes()));
    PENSTOCK_RETURN_IF_ERROR(kernels->MakeProducts());
    return kernels;
  }

  CudaLinear(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        shape_{.rows = spec.rows(),
               .inputs = spec.width(),
               .outputs = spec.node.output.dims.back(),
               .outputs_first = spec.attributes().word("layout") == "outputs_first",
               .fp8 = spec.fp8},
        has_bias_(spec.attributes().flag("bias")),
        operands_(context, {spec.input_elements(), shape_.rows, shape_.outputs, has_bias_},
                  scratch_) {}

  TapeNeeds tape_needs() const override { return operands_.needs(); }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    operands_.TakeInput(tape);
    const float* bias = has_bias_ ? weights.parameter(kBias) : nullptr;
    PENSTOCK_RETURN_IF_ERROR(forward_.Run({.left = operands_.Input(tape),
                                           .right = ParameterOf<Number>(weights, kWeight),
                                           .result = tape.result(),
                                           .bias = fuses_bias_ ? bias : nullptr}));
    if (has_bias_ && !fuses_bias_) {
      AddBias(cuda_.stream(), shape_.rows, shape_.outputs, tape.result(), bias, tape.result());
    }
    return cuda_.Check("forward of a linear map");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    operands_.TakeGradient(tape, /*sums=*/!weight_.sums_outputs());
    if (tape.grad_input() != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(backward_input_.Run({.left = operands_.Gradient(tape),
                                                    .right = ParameterOf<Number>(weights, kWeight),
                                                    .result = tape.grad_input()}));
    }
    return cuda_.Check("backward of a linear map's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    const Number* const x = operands_.Input(tape);
    const Number* const dy = operands_.Gradient(tape);
    PENSTOCK_RETURN_IF_ERROR(weight_.sums_outputs()
                                 ? weight_.AddAndSum(gradients, x, dy, operands_.BiasSums(tape))
                                 : weight_.Add(gradients, x, dy));
    operands_.AddBiasGradient(gradients, kBias, tape);
    return cuda_.Check("backward of a linear map's weights");
  }

 private:
  absl::Status MakeProducts() {
    const auto forward = [&](Epilogue epilogue) {
      return MatrixProduct::Create(cuda_, ForwardShape<Number>(shape_, CUDA_R_32F, epilogue));
    };
    absl::StatusOr<MatrixProduct> made = forward(has_bias_ ? Epilogue::kBias : Epilogue::kNone);
    fuses_bias_ = has_bias_ && made.ok();
    if (has_bias_ && absl::IsUnimplemented(made.status())) made = forward(Epilogue::kNone);
    PENSTOCK_RETURN_IF_ERROR(made.status());
    forward_ = *std::move(made);
    PENSTOCK_ASSIGN_OR_RETURN(
        backward_input_,
        MatrixProduct::Create(cuda_, BackwardInputShape<Number>(shape_, CUDA_R_32F)));
    PENSTOCK_ASSIGN_OR_RETURN(weight_,
                              WeightGradient<Number>::Create(cuda_, shape_, kWeight, has_bias_));
    return absl::OkStatus();
  }

  CudaContext& cuda_;
  const LinearShape shape_;
  const bool has_bias_;
  BlockLayout scratch_;
  const AffineOperands<Number> operands_;
  bool fuses_bias_ = false;  // cuBLASLt adds it
  MatrixProduct forward_, backward_input_;
  WeightGradient<Number> weight_;
};

}  // namespace
}  // namespace linear

MadeKernels MakeLinear(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? linear::CudaLinear<Bf16>::Create(context, spec)
                   : linear::CudaLinear<float>::Create(context, spec);
}

}  // namespace penstock::cuda
