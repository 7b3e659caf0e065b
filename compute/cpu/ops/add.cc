// The sum of values, from the first to the last. Their gradients are that of the output.
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace add {
namespace {

class CpuAdd : public OpKernels {
 public:
  CpuAdd(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        inputs_(static_cast<int>(spec.inputs.size())),
        count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.passes_gradient = kAllInputs;
    return needs;
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForFlat(cpu_, count_, [&](int64_t first, int64_t size) {
      float* sum = tape.result() + first;
      cpu_.kernels.linear_combination(size, 1.0f, tape.input(0) + first, 1.0f,
                                      tape.input(1) + first, sum);
      for (int i = 2; i < inputs_; ++i) cpu_.kernels.add_into(size, tape.input(i) + first, sum);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const int inputs_;
  const int64_t count_;
};

}  // namespace
}  // namespace add

MadeKernels MakeAdd(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<add::CpuAdd>(context, spec);
}

}  // namespace penstock::cpu
