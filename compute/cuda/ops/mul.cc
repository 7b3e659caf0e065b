// The elementwise product of two values.
#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace mul {
namespace {

class CudaMul : public OpKernels {
 public:
  CudaMul(CudaContext& context, const KernelSpec& spec)
      : cuda_(context), count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override { return {.inputs_for_input = kAllInputs}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Multiply(cuda_.stream(), count_, tape.input(0), tape.input(1), tape.result());
    return cuda_.Check("forward of a product");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    for (int i = 0; i < 2; ++i) {
      if (tape.grad_input(i) == nullptr) continue;
      Multiply(cuda_.stream(), count_, tape.gradient(), tape.input(1 - i), tape.grad_input(i));
    }
    return cuda_.Check("backward of a product");
  }

 private:
  CudaContext& cuda_;
  const int64_t count_;
};

}  // namespace
}  // namespace mul

MadeKernels MakeMul(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<mul::CudaMul>(context, spec);
}

}  // namespace penstock::cuda
