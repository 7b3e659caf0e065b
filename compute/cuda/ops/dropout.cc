// Dropout. I draws F's mask again from its name.
#include "compute/dropout.h"

#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace dropout {
namespace {

class CudaDropout : public OpKernels {
 public:
  CudaDropout(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        steps_(spec.attributes().word("kind") == "locked" ? spec.inputs[0].dims[0] : 1),
        masked_rows_(rows_ / spec.samples / steps_),
        dropout_(spec.attributes().number("probability"), masked_rows_) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext& context, const WeightView&, const Tape& tape) override {
    Mask(context, tape.input(), tape.result());
    return cuda_.Check("forward of dropout");
  }

  absl::Status BackwardInput(const PassContext& context, const WeightView&,
                             const Tape& tape) override {
    Mask(context, tape.gradient(), tape.grad_input());
    return cuda_.Check("backward of dropout");
  }

 private:
  void Mask(const PassContext& context, const float* from, float* to) const {
    MaskSteps(cuda_.stream(), rows_, width_, steps_, masked_rows_, from,
              cuda_.MaskOf(dropout_, context), to);
  }

  CudaContext& cuda_;
  const int64_t width_, rows_;
  const int64_t steps_;        // of a sample, that one mask is for
  const int64_t masked_rows_;  // of a sample's mask
  const Dropout dropout_;
};

}  // namespace
}  // namespace dropout

MadeKernels MakeDropout(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<dropout::CudaDropout>(context, spec);
}

}  // namespace penstock::cuda
