// The elementwise product of two values.
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace mul {
namespace {

class CpuMul : public OpKernels {
 public:
  CpuMul(CpuContext& context, const KernelSpec& spec)
      : cpu_(context), count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.inputs_for_input = kAllInputs;
    return needs;
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Multiply(tape.input(0), tape.input(1), tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    for (int i = 0; i < 2; ++i) {
      if (tape.grad_input(i) == nullptr) continue;
      Multiply(tape.gradient(), tape.input(1 - i), tape.grad_input(i));
    }
    return absl::OkStatus();
  }

 private:
  void Multiply(const float* a, const float* b, float* to) const {
    ForFlat(cpu_, count_, [&](int64_t first, int64_t size) {
      cpu_.kernels.product(size, a + first, b + first, to + first);
    });
  }

  CpuContext& cpu_;
  const int64_t count_;
};

}  // namespace
}  // namespace mul

MadeKernels MakeMul(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<mul::CpuMul>(context, spec);
}

}  // namespace penstock::cpu
