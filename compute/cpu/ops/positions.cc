// x + a learned row for each time step. Parameter: weight [context, width].
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace positions {
namespace {

class CpuPositions : public OpKernels {
 public:
  CpuPositions(CpuContext& context, const KernelSpec& spec)
      : cpu_(context), samples_(spec.samples), size_(spec.node.output.elements()) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.grad_output_for_weight = true;
    needs.passes_gradient = kAllInputs;
    return needs;
  }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    ForFlat(cpu_, size_, [&](int64_t first, int64_t size) {
      for (int64_t sample = 0; sample < samples_; ++sample) {
        const int64_t at = sample * size_ + first;
        cpu_.kernels.linear_combination(size, 1.0f, tape.input() + at, 1.0f,
                                        weights.parameter(0) + first, tape.result() + at);
      }
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    ForFlat(cpu_, size_, [&](int64_t first, int64_t size) {
      for (int64_t sample = 0; sample < samples_; ++sample) {
        cpu_.kernels.add_into(size, tape.gradient() + sample * size_ + first,
                              gradients.parameter(0) + first);
      }
    });
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const int64_t samples_;
  const int64_t size_;  // of a sample
};

}  // namespace
}  // namespace positions

MadeKernels MakePositions(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<positions::CpuPositions>(context, spec);
}

}  // namespace penstock::cpu
