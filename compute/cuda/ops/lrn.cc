// Local response normalisation. F keeps what it divides by for I.
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace lrn {
namespace {

class CudaLrn : public OpKernels {
 public:
  CudaLrn(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        sizes_{.rows = spec.rows(),
               .width = spec.width(),
               .size = spec.attributes().integer("size"),
               .alpha = static_cast<float>(spec.attributes().number("alpha")),
               .beta = static_cast<float>(spec.attributes().number("beta")),
               .k = static_cast<float>(spec.attributes().number("k"))} {
    BlockLayout stash;
    scales_ = stash.Add<float>(spec.output_elements());
    needs_ = {.stash_bytes = stash.size_bytes(), .inputs_for_input = kAllInputs};
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    LrnForward(cuda_.stream(), sizes_, tape.input(), scales_.in(tape.stash), tape.result());
    return cuda_.Check("forward of a response normalisation");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    LrnBackward(cuda_.stream(), sizes_, tape.input(), scales_.in(tape.stash), tape.gradient(),
                tape.grad_input());
    return cuda_.Check("backward of a response normalisation");
  }

 private:
  CudaContext& cuda_;
  const LrnSizes sizes_;
  TapeNeeds needs_;
  Place<float> scales_;  // stash, as the output
};

}  // namespace
}  // namespace lrn

MadeKernels MakeLrn(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<lrn::CudaLrn>(context, spec);
}

}  // namespace penstock::cuda
