// RMSNorm. Parameter: gain [width], whose gradient comes from I.
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace rms_norm {
namespace {

class CudaRmsNorm : public OpKernels {
 public:
  CudaRmsNorm(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))) {
    BlockLayout stash, weight_stash;
    inverse_root_ = stash.Add<float>(rows_);
    gain_sums_ = weight_stash.Add<float>(width_);
    needs_ = {.stash_bytes = stash.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_input = kAllInputs};
  }

  int64_t scratch_bytes() const {
    return ChannelSumsWorkspaceFloats(rows_, width_) * static_cast<int64_t>(sizeof(float));
  }
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    RmsNormForward(cuda_.stream(), rows_, width_, epsilon_, tape.input(), weights.parameter(0),
                   inverse_root_.in(tape.stash), tape.result());
    return cuda_.Check("forward of an RMS norm");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    RmsNormBackward(cuda_.stream(), rows_, width_,
                    {.input = tape.input(),
                     .gain = weights.parameter(0),
                     .inverse_root = inverse_root_.in(tape.stash),
                     .grad_output = tape.gradient(),
                     .grad_input = tape.grad_input(),
                     .gain_sums = gain_sums_.in(tape.weight_stash),
                     .workspace = static_cast<float*>(cuda_.layer_scratch().data())});
    return cuda_.Check("backward of an RMS norm's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    AddInto(cuda_.stream(), width_, gain_sums_.in(tape.weight_stash), gradients.parameter(0));
    return cuda_.Check("backward of an RMS norm's weight");
  }

 private:
  CudaContext& cuda_;
  const int64_t width_, rows_;
  const float epsilon_;
  TapeNeeds needs_;
  Place<float> inverse_root_;  // stash [rows]
  Place<float> gain_sums_;     // weight stash [width]
};

}  // namespace
}  // namespace rms_norm

MadeKernels MakeRmsNorm(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<rms_norm::CudaRmsNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
