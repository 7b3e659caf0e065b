// RMSNorm. Parameter: gain [width], whose gradient comes from I.
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace rms_norm {
namespace {

class CpuRmsNorm : public OpKernels {
 public:
  CpuRmsNorm(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))) {
    BlockLayout stash, weight_stash;
    inverse_root_ = stash.Add<float>(rows_);
    gain_sums_ = weight_stash.Add<float>(width_);
    needs_.stash_bytes = stash.size_bytes();
    needs_.weight_stash_bytes = weight_stash.size_bytes();
    needs_.inputs_for_input = kAllInputs;
  }

  int64_t scratch_bytes() const {
    return BlocksOf(rows_) * width_ * static_cast<int64_t>(sizeof(float));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      cpu_.kernels.rms_norm({count, width_, epsilon_, tape.input() + first * width_,
                             weights.parameter(0), inverse_root_.in(tape.stash) + first,
                             tape.result() + first * width_});
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    auto* block_sums = static_cast<float*>(cpu_.layer_scratch.data());
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
      const int64_t at = first * width_;
      float* const grad_input = tape.grad_input();
      cpu_.kernels.rms_norm_gradient({count, width_, tape.input() + at, weights.parameter(0),
                                      inverse_root_.in(tape.stash) + first, tape.gradient() + at,
                                      grad_input == nullptr ? nullptr : grad_input + at,
                                      block_sums + block * width_});
    });
    float* sums = gain_sums_.in(tape.weight_stash);
    cpu_.kernels.fill(width_, 0.0f, sums);
    AddBlockSums(cpu_, rows_, width_, block_sums, sums);
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    cpu_.kernels.add_into(width_, gain_sums_.in(tape.weight_stash), gradients.parameter(0));
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const int64_t width_, rows_;
  const float epsilon_;
  TapeNeeds needs_;
  Place<float> inverse_root_;  // stash
  Place<float> gain_sums_;     // weight stash
};

}  // namespace
}  // namespace rms_norm

MadeKernels MakeRmsNorm(CpuContext& context, const KernelSpec& spec) {
  auto norm = std::make_unique<rms_norm::CpuRmsNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(norm->scratch_bytes()));
  return norm;
}

}  // namespace penstock::cpu
