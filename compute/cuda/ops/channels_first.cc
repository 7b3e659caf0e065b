// A transposition of each sample: [pixels, channels] -> [channels, pixels].
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace channels_first {
namespace {

class CudaChannelsFirst : public OpKernels {
 public:
  CudaChannelsFirst(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        samples_(spec.samples),
        pixels_(spec.rows() / spec.samples),
        channels_(spec.width()) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    TransposeEach(cuda_.stream(), samples_, pixels_, channels_, tape.input(), tape.result());
    return cuda_.Check("forward of channels first");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    TransposeEach(cuda_.stream(), samples_, channels_, pixels_, tape.gradient(), tape.grad_input());
    return cuda_.Check("backward of channels first");
  }

 private:
  CudaContext& cuda_;
  const int64_t samples_, pixels_, channels_;
};

}  // namespace
}  // namespace channels_first

MadeKernels MakeChannelsFirst(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<channels_first::CudaChannelsFirst>(context, spec);
}

}  // namespace penstock::cuda
