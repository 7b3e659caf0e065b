// Dropout. I draws F's mask again from its name.
#include "compute/cpu/dropout.h"

#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace dropout {
namespace {

class CpuDropout : public OpKernels {
 public:
  CpuDropout(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        steps_(spec.attributes().word("kind") == "locked" ? spec.inputs[0].dims[0] : 1),
        masked_rows_(rows_ / spec.samples / steps_),
        dropout_(spec.attributes().number("probability"), masked_rows_) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext& context, const WeightView&, const Tape& tape) override {
    Mask(context, tape.input(), tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext& context, const WeightView&,
                             const Tape& tape) override {
    Mask(context, tape.gradient(), tape.grad_input());
    return absl::OkStatus();
  }

 private:
  void Mask(const PassContext& context, const float* from, float* to) const {
    if (steps_ == 1) {
      cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
        MaskRows(context, first, count, from + first * width_, to + first * width_);
      });
      return;
    }
    cpu_.threads.For(rows_ / masked_rows_, [&](int64_t step, int) {
      const int64_t at = step * masked_rows_ * width_;
      MaskRows(context, step / steps_ * masked_rows_, masked_rows_, from + at, to + at);
    });
  }

  // `first`: the row of the microbatch's masks.
  void MaskRows(const PassContext& context, int64_t first, int64_t count, const float* from,
                float* to) const {
    const auto rows = RowsOf(dropout_, context, first);
    cpu_.kernels.mask_rows(count, width_, from, OrNull(rows), to);
  }

  CpuContext& cpu_;
  const int64_t width_, rows_;
  const int64_t steps_;        // of a sample, that one mask is for
  const int64_t masked_rows_;  // of a sample's mask
  const Dropout dropout_;
};

}  // namespace
}  // namespace dropout

MadeKernels MakeDropout(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<dropout::CpuDropout>(context, spec);
}

}  // namespace penstock::cpu
