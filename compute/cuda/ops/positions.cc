// x + a learned row for each time step. Parameter: weight [context, width].
#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace positions {
namespace {

class CudaPositions : public OpKernels {
 public:
  CudaPositions(CudaContext& context, const KernelSpec& spec)
      : cuda_(context), samples_(spec.samples), size_(spec.node.output.elements()) {}

  TapeNeeds tape_needs() const override {
    return {.grad_output_for_weight = true, .passes_gradient = kAllInputs};
  }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    AddToSamples(cuda_.stream(), samples_, size_, tape.input(), weights.parameter(0),
                 tape.result());
    return cuda_.Check("forward of positions");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    AddSamples(cuda_.stream(), samples_, size_, tape.gradient(), gradients.parameter(0));
    return cuda_.Check("backward of positions");
  }

 private:
  CudaContext& cuda_;
  const int64_t samples_;
  const int64_t size_;  // of a sample
};

}  // namespace
}  // namespace positions

MadeKernels MakePositions(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<positions::CudaPositions>(context, spec);
}

}  // namespace penstock::cuda
