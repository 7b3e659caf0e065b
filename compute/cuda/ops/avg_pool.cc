// The mean of each window.
#include "base/status.h"
#include "compute/cuda/convolution.h"
#include "compute/cuda/ops.h"
#include "model/window.h"

namespace penstock::cuda {
namespace avg_pool {
namespace {

class CudaAvgPool : public OpKernels {
 public:
  CudaAvgPool(CudaContext& context, const KernelSpec& spec, const ImageAxis& height,
              const ImageAxis& width)
      : cuda_(context),
        samples_(spec.samples),
        channels_(spec.width()),
        height_(height),
        width_(width) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    AvgPoolForward(cuda_.stream(), samples_, channels_, height_, width_, tape.input(),
                   tape.result());
    return cuda_.Check("forward of an average pool");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    AvgPoolBackward(cuda_.stream(), samples_, channels_, height_, width_, tape.gradient(),
                    tape.grad_input());
    return cuda_.Check("backward of an average pool");
  }

 private:
  CudaContext& cuda_;
  const int64_t samples_, channels_;
  const ImageAxis height_, width_;
};

}  // namespace
}  // namespace avg_pool

MadeKernels MakeAvgPool(CudaContext& context, const KernelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const AveragedWindows windows, AveragedWindowsOf(spec.attributes()));
  if (windows == AveragedWindows::kOfKernel) {
    PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(spec.attributes(), spec.inputs[0]));
    return std::make_unique<avg_pool::CudaAvgPool>(context, spec, AxisOf(window.height),
                                                   AxisOf(window.width));
  }
  // Windows that follow from the number of outputs: kernel 0.
  const auto axis = [&](int a) {
    return ImageAxis{.inputs = spec.inputs[0].dims[a], .outputs = spec.node.output.dims[a]};
  };
  return std::make_unique<avg_pool::CudaAvgPool>(context, spec, axis(0), axis(1));
}

}  // namespace penstock::cuda
