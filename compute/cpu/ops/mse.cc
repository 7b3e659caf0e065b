// The mean of squared differences.
#include <algorithm>

#include "base/status.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/losses.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace mse {
namespace {

class CpuMse : public OpKernels {
 public:
  CpuMse(CpuContext& context, const KernelSpec& spec)
      : cpu_(context), predictions_(spec.inputs[0]), count_(spec.input_elements()) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.inputs_for_input = kAllInputs;
    return needs;
  }

  int64_t scratch_bytes() const {
    return (count_ + kFlatBlock - 1) / kFlatBlock * static_cast<int64_t>(sizeof(double));
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    const double sum = SumOfBlocks(cpu_, count_, kFlatBlock, [&](int64_t first, int64_t size) {
      return cpu_.kernels.squared_distance(size, tape.input(0) + first, tape.input(1) + first);
    });
    *tape.result() = static_cast<float>(sum / static_cast<double>(count_));
    return absl::OkStatus();
  }

  ValueType prediction_type() const override { return predictions_; }

  absl::Status Predict(const WeightView&, const Tape& tape) override {
    std::copy_n(tape.input(), count_, tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    const float factor = 2.0f * tape.loss_scale / static_cast<float>(count_);
    for (int i = 0; i < 2; ++i) {
      if (tape.grad_input(i) == nullptr) continue;
      ForFlat(cpu_, count_, [&](int64_t first, int64_t size) {
        cpu_.kernels.difference(size, factor, tape.input(i) + first, tape.input(1 - i) + first,
                                tape.grad_input(i) + first);
      });
    }
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const ValueType predictions_;
  const int64_t count_;
};

}  // namespace
}  // namespace mse

MadeKernels MakeMse(CpuContext& context, const KernelSpec& spec) {
  auto loss = std::make_unique<mse::CpuMse>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(loss->scratch_bytes()));
  return loss;
}

}  // namespace penstock::cpu
