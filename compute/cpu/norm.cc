// The final LayerNorm. Parameters: gain [width], bias [width].
#include "compute/cpu/norm.h"

#include "base/status.h"
#include "compute/cpu/layers.h"

namespace penstock {

void NormaliseGradient(const CpuContext& cpu, const NormStatistics& statistics,
                       const WeightView& weights, RowRange range, int64_t width,
                       const NormGradientArguments& a, void* stash) {
  float* gain_blocks = a.block_sums;
  float* bias_blocks = gain_blocks + BlocksOf(range.count) * width;
  cpu.threads.ForBlocks(range.count, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
    const int64_t at = first * width;
    cpu.kernels.layer_norm_gradient({
        count,
        width,
        a.input + at,
        weights.parameter(0),
        statistics.mean.in(stash) + range.first + first,
        statistics.inverse_deviation.in(stash) + range.first + first,
        a.grad_output + at,
        a.residual == nullptr ? nullptr : a.residual + at,
        a.grad_input + at,
        gain_blocks + block * width,
        bias_blocks + block * width,
    });
  });
  AddBlockSums(cpu, range.count, width, gain_blocks, a.gain_sums);
  AddBlockSums(cpu, range.count, width, bias_blocks, a.bias_sums);
}

namespace {

class CpuNorm : public Layer {
 public:
  CpuNorm(CpuContext& context, const NormLayer& config, BatchShape shape)
      : cpu_(context), width_(config.width), rows_(shape.batch * shape.time) {
    BlockLayout stash;
    statistics_.AddTo(stash, rows_);
    needs_.stash_bytes = stash.size_bytes();
    BlockLayout weight_stash;
    gain_sums_ = weight_stash.Add<float>(width_);
    bias_sums_ = weight_stash.Add<float>(width_);
    needs_.weight_stash_bytes = weight_stash.size_bytes();
  }

  // Counts block sums; see NormGradientArguments.
  int64_t scratch_bytes() const {
    return 2 * BlocksOf(rows_) * width_ * static_cast<int64_t>(sizeof(float));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape,
                       const Tensor& output) override {
    Normalise(cpu_, statistics_, weights, {0, rows_}, width_, tape.input.data<float>(),
              output.data<float>(), tape.stash.data());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights, const Tape& tape,
                             const Tensor& grad_input) override {
    float* gain_sums = gain_sums_.in(tape.weight_stash.data());
    float* bias_sums = bias_sums_.in(tape.weight_stash.data());
    cpu_.kernels.fill(width_, 0.0f, gain_sums);
    cpu_.kernels.fill(width_, 0.0f, bias_sums);
    NormaliseGradient(cpu_, statistics_, weights, {0, rows_}, width_,
                      {tape.input.data<float>(), tape.grad_output.data<float>(), nullptr,
                       grad_input.data<float>(), static_cast<float*>(cpu_.layer_scratch.data()),
                       gain_sums, bias_sums},
                      tape.stash.data());
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    cpu_.kernels.add_into(width_, gain_sums_.in(tape.weight_stash.data()), gradients.parameter(0));
    cpu_.kernels.add_into(width_, bias_sums_.in(tape.weight_stash.data()), gradients.parameter(1));
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const int64_t width_, rows_;
  TapeNeeds needs_;
  NormStatistics statistics_;
  Place<float> gain_sums_, bias_sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeCpuNorm(CpuContext& context, const NormLayer& config,
                                                   BatchShape shape) {
  auto norm = std::make_unique<CpuNorm>(context, config, shape);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(norm->scratch_bytes()));
  return std::unique_ptr<Layer>(std::move(norm));
}

}  // namespace penstock
