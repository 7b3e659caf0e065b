// The mean cross-entropy of logits over the targets that count. I computes the probabilities again from each row's
// log-sum.
#include <algorithm>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/losses.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace cross_entropy {
namespace {

class CpuCrossEntropy : public OpKernels {
 public:
  CpuCrossEntropy(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        logits_(spec.inputs[0]),
        classes_(spec.width()),
        rows_(spec.rows()),
        ignored_(spec.loss().ignored.value_or(kNoTarget)),
        smoothing_(static_cast<float>(spec.attributes().number("label_smoothing"))) {
    BlockLayout stash;
    log_sums_ = stash.Add<float>(rows_);
    needs_.stash_bytes = stash.size_bytes();
    needs_.inputs_for_input = kAllInputs;
  }

  int64_t scratch_bytes() const { return BlocksOf(rows_) * static_cast<int64_t>(sizeof(double)); }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    const double sum = SumOfBlocks(cpu_, rows_, kBlockRows, [&](int64_t first, int64_t count) {
      return cpu_.kernels.cross_entropy(RowsOf(tape, first, count));
    });
    if (tape.ranks != nullptr) {
      cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
        cpu_.kernels.target_ranks(RowsOf(tape, first, count), tape.ranks + first);
      });
    }
    *tape.result() = MeanOfValid(sum, ValidTargetsOf(tape, rows_, ignored_));
    return absl::OkStatus();
  }

  ValueType prediction_type() const override { return logits_; }

  absl::Status Predict(const WeightView&, const Tape& tape) override {
    std::copy_n(tape.input(), rows_ * classes_, tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    const float scale = ScaleOfValid(tape, ValidTargetsOf(tape, rows_, ignored_));
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      cpu_.kernels.f32.cross_entropy_gradient(RowsOf(tape, first, count), scale,
                                              tape.grad_input() + first * classes_);
    });
    return absl::OkStatus();
  }

 private:
  CrossEntropyRows RowsOf(const Tape& tape, int64_t first, int64_t count) const {
    return {count,
            classes_,
            tape.input() + first * classes_,
            tape.input<int32_t>(1) + first,
            log_sums_.in(tape.stash) + first,
            ignored_,
            smoothing_};
  }

  CpuContext& cpu_;
  const ValueType logits_;
  const int64_t classes_, rows_;
  const int32_t ignored_;
  const float smoothing_;
  TapeNeeds needs_;
  Place<float> log_sums_;  // stash
};

}  // namespace
}  // namespace cross_entropy

MadeKernels MakeCrossEntropy(CpuContext& context, const KernelSpec& spec) {
  auto loss = std::make_unique<cross_entropy::CpuCrossEntropy>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(loss->scratch_bytes()));
  return loss;
}

}  // namespace penstock::cpu
