// Functions of each element by itself.
#include "compute/ops/activation.h"

#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace activation {
namespace {

class CudaActivation : public OpKernels {
 public:
  CudaActivation(CudaContext& context, const KernelSpec& spec, Activation activation)
      : cuda_(context), activation_(activation), count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override { return penstock::activation::NeedsOf(activation_); }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Activate(cuda_.stream(), activation_, count_, tape.input(), tape.result());
    return cuda_.Check("forward of an activation");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ActivateBackward(cuda_.stream(), activation_, count_,
                     penstock::activation::ReadByBackward(activation_, tape), tape.gradient(),
                     tape.grad_input());
    return cuda_.Check("backward of an activation");
  }

 private:
  CudaContext& cuda_;
  const Activation activation_;
  const int64_t count_;
};

MadeKernels Make(CudaContext& context, const KernelSpec& spec, Activation activation) {
  return std::make_unique<CudaActivation>(context, spec, activation);
}

}  // namespace
}  // namespace activation

MadeKernels MakeRelu(CudaContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kRelu);
}
MadeKernels MakeGelu(CudaContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, penstock::activation::GeluOf(spec));
}
MadeKernels MakeSilu(CudaContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kSilu);
}
MadeKernels MakeTanh(CudaContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kTanh);
}
MadeKernels MakeSigmoid(CudaContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kSigmoid);
}

}  // namespace penstock::cuda
