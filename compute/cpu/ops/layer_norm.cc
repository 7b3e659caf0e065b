// LayerNorm by itself. Parameters: gain [width], bias [width].
#include "base/status.h"
#include "compute/cpu/norm.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace layer_norm {
namespace {

class CpuLayerNorm : public OpKernels {
 public:
  CpuLayerNorm(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))) {
    BlockLayout stash;
    statistics_.AddTo(stash, rows_);
    needs_.stash_bytes = stash.size_bytes();
    BlockLayout weight_stash;
    gain_sums_ = weight_stash.Add<float>(width_);
    bias_sums_ = weight_stash.Add<float>(width_);
    needs_.weight_stash_bytes = weight_stash.size_bytes();
    needs_.inputs_for_input = kAllInputs;
  }

  // Counts block sums; see NormGradientArguments.
  int64_t scratch_bytes() const {
    return 2 * BlocksOf(rows_) * width_ * static_cast<int64_t>(sizeof(float));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    Normalise(cpu_, statistics_, weights, {0, rows_}, width_, tape.input(), tape.result(),
              tape.stash, epsilon_);
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    float* gain_sums = gain_sums_.in(tape.weight_stash);
    float* bias_sums = bias_sums_.in(tape.weight_stash);
    cpu_.kernels.fill(width_, 0.0f, gain_sums);
    cpu_.kernels.fill(width_, 0.0f, bias_sums);
    NormaliseGradient(cpu_, statistics_, weights, {0, rows_}, width_,
                      {tape.input(), tape.gradient(), nullptr, tape.grad_input(),
                       static_cast<float*>(cpu_.layer_scratch.data()), gain_sums, bias_sums},
                      tape.stash);
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    cpu_.kernels.add_into(width_, gain_sums_.in(tape.weight_stash), gradients.parameter(0));
    cpu_.kernels.add_into(width_, bias_sums_.in(tape.weight_stash), gradients.parameter(1));
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const int64_t width_, rows_;
  const float epsilon_;
  TapeNeeds needs_;
  NormStatistics statistics_;
  Place<float> gain_sums_, bias_sums_;
};

}  // namespace
}  // namespace layer_norm

MadeKernels MakeLayerNorm(CpuContext& context, const KernelSpec& spec) {
  auto norm = std::make_unique<layer_norm::CpuLayerNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(norm->scratch_bytes()));
  return norm;
}

}  // namespace penstock::cpu
