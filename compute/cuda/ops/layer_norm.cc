// LayerNorm by itself. Parameters: gain and bias [width].
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/norm.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace layer_norm {
namespace {

class CudaLayerNorm : public NormKernels {
 public:
  CudaLayerNorm(CudaContext& context, const KernelSpec& spec)
      : NormKernels(context, spec, spec.rows(),
                    ColumnSumsWorkspaceFloats(spec.rows(), 2 * spec.width())),
        rows_(spec.rows()) {}

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    LayerNormForward(cuda_.stream(), rows_, width_, epsilon_, tape.input(),
                     weights.parameter(kGain), weights.parameter(kBias), mean(tape),
                     inverse_deviation(tape), tape.result());
    return cuda_.Check("forward of a norm");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    LayerNormBackward(cuda_.stream(), rows_, width_,
                      {.input = tape.input(),
                       .gain = weights.parameter(kGain),
                       .mean = mean(tape),
                       .inverse_deviation = inverse_deviation(tape),
                       .grad_output = tape.gradient(),
                       .residual = nullptr,
                       .grad_input = tape.grad_input(),
                       .gain_sums = gain_sums(tape),
                       .bias_sums = bias_sums(tape),
                       .workspace = workspace()});
    return cuda_.Check("backward of a norm's input");
  }

 private:
  const int64_t rows_;
};

}  // namespace
}  // namespace layer_norm

MadeKernels MakeLayerNorm(CudaContext& context, const KernelSpec& spec) {
  return MakeNorm<layer_norm::CudaLayerNorm>(context, spec);
}

}  // namespace penstock::cuda
