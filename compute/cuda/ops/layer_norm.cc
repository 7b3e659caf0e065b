// LayerNorm by itself. Parameters: gain and bias [width].
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/norm_gradients.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace layer_norm {
namespace {

constexpr int kGain = 0;
constexpr int kBias = 1;

class CudaLayerNorm : public OpKernels {
 public:
  CudaLayerNorm(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))) {
    BlockLayout stash, weight_stash, scratch;
    mean_ = stash.Add<float>(rows_);
    inverse_deviation_ = stash.Add<float>(rows_);
    gradients_ = NormGradients(width_, weight_stash);
    workspace_ = scratch.Add<float>(ColumnSumsWorkspaceFloats(rows_, 2 * width_));
    needs_.stash_bytes = stash.size_bytes();
    needs_.weight_stash_bytes = weight_stash.size_bytes();
    needs_.inputs_for_input = kAllInputs;
    scratch_bytes_ = scratch.size_bytes();
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    void* stash = tape.stash;
    LayerNormForward(cuda_.stream(), rows_, width_, epsilon_, tape.input(),
                     weights.parameter(kGain), weights.parameter(kBias), mean_.in(stash),
                     inverse_deviation_.in(stash), tape.result());
    return cuda_.Check("forward of a norm");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    void* stash = tape.stash;
    LayerNormBackward(cuda_.stream(), rows_, width_,
                      {.input = tape.input(),
                       .gain = weights.parameter(kGain),
                       .mean = mean_.in(stash),
                       .inverse_deviation = inverse_deviation_.in(stash),
                       .grad_output = tape.gradient(),
                       .residual = nullptr,
                       .grad_input = tape.grad_input(),
                       .gain_sums = gradients_.gain(tape),
                       .bias_sums = gradients_.bias(tape),
                       .workspace = workspace_.in(cuda_.layer_scratch().data())});
    return cuda_.Check("backward of a norm's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    gradients_.Add(cuda_, gradients, tape);
    return cuda_.Check("backward of a norm's weights");
  }

 private:
  CudaContext& cuda_;
  const int64_t width_, rows_;
  const float epsilon_;
  TapeNeeds needs_;
  Place<float> mean_, inverse_deviation_;  // stash [rows]
  NormGradients gradients_;
  Place<float> workspace_;  // scratch
  int64_t scratch_bytes_ = 0;
};

}  // namespace
}  // namespace layer_norm

MadeKernels MakeLayerNorm(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<layer_norm::CudaLayerNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
