// A value times a constant.
#include "base/status.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace scale {
namespace {

class CudaScale : public OpKernels {
 public:
  CudaScale(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        factor_(static_cast<float>(spec.attributes().number("factor"))),
        count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    LinearCombination(cuda_.stream(), count_, factor_, tape.input(), 0.0f, tape.input(),
                      tape.result());
    return cuda_.Check("forward of a multiple");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    LinearCombination(cuda_.stream(), count_, factor_, tape.gradient(), 0.0f, tape.gradient(),
                      tape.grad_input());
    return cuda_.Check("backward of a multiple");
  }

 private:
  CudaContext& cuda_;
  const float factor_;
  const int64_t count_;
};

}  // namespace
}  // namespace scale

MadeKernels MakeScale(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<scale::CudaScale>(context, spec);
}

}  // namespace penstock::cuda
