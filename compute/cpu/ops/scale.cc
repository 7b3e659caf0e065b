// A value times a constant.
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace scale {
namespace {

class CpuScale : public OpKernels {
 public:
  CpuScale(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        factor_(static_cast<float>(spec.attributes().number("factor"))),
        count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Multiply(tape.input(), tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    Multiply(tape.gradient(), tape.grad_input());
    return absl::OkStatus();
  }

 private:
  void Multiply(const float* values, float* to) const {
    ForFlat(cpu_, count_, [&](int64_t first, int64_t size) {
      cpu_.kernels.linear_combination(size, factor_, values + first, 0.0f, values + first,
                                      to + first);
    });
  }

  CpuContext& cpu_;
  const float factor_;
  const int64_t count_;
};

}  // namespace
}  // namespace scale

MadeKernels MakeScale(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<scale::CpuScale>(context, spec);
}

}  // namespace penstock::cpu
