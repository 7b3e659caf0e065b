// Some of an image's pixels, and channels of zeros behind theirs.
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace subsample {
namespace {

class CudaSubsample : public OpKernels {
 public:
  CudaSubsample(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        samples_(spec.samples),
        inputs_(spec.width()),
        outputs_(spec.node.output.dims.back()),
        height_(AxisOf(spec, 0)),
        width_(AxisOf(spec, 1)) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    SubsampleForward(cuda_.stream(), samples_, inputs_, outputs_, height_, width_, tape.input(),
                     tape.result());
    return cuda_.Check("forward of a subsample");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    SubsampleBackward(cuda_.stream(), samples_, inputs_, outputs_, height_, width_, tape.gradient(),
                      tape.grad_input());
    return cuda_.Check("backward of a subsample");
  }

 private:
  // Windows of one pixel.
  static ImageAxis AxisOf(const KernelSpec& spec, int axis) {
    return {.inputs = spec.inputs[0].dims[axis],
            .outputs = spec.node.output.dims[axis],
            .kernel = 1,
            .stride = spec.attributes().integer("stride"),
            .dilation = 1};
  }

  CudaContext& cuda_;
  const int64_t samples_;
  const int64_t inputs_, outputs_;  // channels
  const ImageAxis height_, width_;
};

}  // namespace
}  // namespace subsample

MadeKernels MakeSubsample(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<subsample::CudaSubsample>(context, spec);
}

}  // namespace penstock::cuda
