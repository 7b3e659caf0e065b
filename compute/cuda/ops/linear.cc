// y = x W + b over rows. In bf16, F keeps a rounded copy of x and I one of y's gradient, which is all that W reads.
//
// Parameters: weight, and a bias if there is one, whose gradient I sums.
#include "compute/cuda/linear.h"

#include "base/status.h"
#include "compute/block_layout.h"
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
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes_));
    PENSTOCK_RETURN_IF_ERROR(kernels->MakeProducts());
    return kernels;
  }

  CudaLinear(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        shape_{.rows = spec.rows(),
               .inputs = spec.width(),
               .outputs = spec.node.output.dims.back(),
               .outputs_first = spec.attributes().word("layout") == "outputs_first"},
        has_bias_(spec.attributes().flag("bias")) {
    constexpr bool kFloat = kIsFloat<Number>;
    BlockLayout kept, weight_stash, scratch;
    input_ = kept.Add<Number>(kFloat ? 0 : shape_.rows * shape_.inputs);
    gradient_ = weight_stash.Add<Number>(kFloat ? 0 : shape_.rows * shape_.outputs);
    bias_sums_ = weight_stash.Add<float>(has_bias_ ? shape_.outputs : 0);
    sums_workspace_ =
        scratch.Add<float>(has_bias_ ? ColumnSumsWorkspaceFloats(shape_.rows, shape_.outputs) : 0);
    scratch_bytes_ = scratch.size_bytes();
    needs_ = {.kept_bytes = kept.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_weight = kFloat ? kAllInputs : kNoInputs,
              .grad_output_for_weight = kFloat};
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), shape_.rows * shape_.inputs, tape.input(),
                    input_.in(tape.kept));
    }
    const float* bias = has_bias_ ? weights.parameter(kBias) : nullptr;
    PENSTOCK_RETURN_IF_ERROR(forward_.Run({.left = Input(tape),
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
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), shape_.rows * shape_.outputs, tape.gradient(),
                    gradient_.in(tape.weight_stash));
    }
    if (has_bias_) {
      ColumnSums(cuda_.stream(), shape_.rows, shape_.outputs, tape.gradient(),
                 bias_sums_.in(tape.weight_stash),
                 sums_workspace_.in(cuda_.layer_scratch().data()));
    }
    if (tape.grad_input() != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(backward_input_.Run({.left = Gradient(tape),
                                                    .right = ParameterOf<Number>(weights, kWeight),
                                                    .result = tape.grad_input()}));
    }
    return cuda_.Check("backward of a linear map's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    PENSTOCK_RETURN_IF_ERROR(weight_.Add(gradients, Input(tape), Gradient(tape)));
    if (has_bias_) {
      AddInto(cuda_.stream(), shape_.outputs, bias_sums_.in(tape.weight_stash),
              gradients.parameter(kBias));
    }
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
    PENSTOCK_ASSIGN_OR_RETURN(weight_, WeightGradient<Number>::Create(cuda_, shape_, kWeight));
    return absl::OkStatus();
  }

  // What the products read.
  const Number* Input(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.input();
    } else {
      return input_.in(tape.kept);
    }
  }
  const Number* Gradient(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.gradient();
    } else {
      return gradient_.in(tape.weight_stash);
    }
  }

  CudaContext& cuda_;
  const LinearShape shape_;
  const bool has_bias_;
  bool fuses_bias_ = false;  // cuBLASLt adds it
  MatrixProduct forward_, backward_input_;
  WeightGradient<Number> weight_;
  TapeNeeds needs_;
  Place<Number> input_;          // kept, unless float
  Place<Number> gradient_;       // weight stash, unless float
  Place<float> bias_sums_;       // weight stash
  Place<float> sums_workspace_;  // scratch
  int64_t scratch_bytes_ = 0;
};

}  // namespace
}  // namespace linear

MadeKernels MakeLinear(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? linear::CudaLinear<Bf16>::Create(context, spec)
                   : linear::CudaLinear<float>::Create(context, spec);
}

}  // namespace penstock::cuda
