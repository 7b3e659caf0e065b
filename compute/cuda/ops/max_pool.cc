// The largest value of each window. F leaves where it was for I.
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/convolution.h"
#include "compute/cuda/ops.h"
#include "model/window.h"

namespace penstock::cuda {
namespace max_pool {
namespace {

class CudaMaxPool : public OpKernels {
 public:
  CudaMaxPool(CudaContext& context, const KernelSpec& spec, const Window& window)
      : cuda_(context),
        samples_(spec.samples),
        channels_(spec.width()),
        height_(AxisOf(window.height)),
        width_(AxisOf(window.width)) {
    BlockLayout stash;
    places_ = stash.Add<int32_t>(spec.output_elements());
    needs_.stash_bytes = stash.size_bytes();
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    MaxPoolForward(cuda_.stream(), samples_, channels_, height_, width_, tape.input(),
                   tape.result(), places_.in(tape.stash));
    return cuda_.Check("forward of a max pool");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    MaxPoolBackward(cuda_.stream(), samples_, channels_, height_, width_, tape.gradient(),
                    places_.in(tape.stash), tape.grad_input());
    return cuda_.Check("backward of a max pool");
  }

 private:
  CudaContext& cuda_;
  const int64_t samples_, channels_;
  const ImageAxis height_, width_;
  TapeNeeds needs_;
  Place<int32_t> places_;  // stash, as the output
};

}  // namespace
}  // namespace max_pool

MadeKernels MakeMaxPool(CudaContext& context, const KernelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(spec.attributes(), spec.inputs[0]));
  return std::make_unique<max_pool::CudaMaxPool>(context, spec, window);
}

}  // namespace penstock::cuda
