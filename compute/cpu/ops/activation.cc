// Functions of each element by itself.
#include "compute/ops/activation.h"

#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace activation {
namespace {

class CpuActivation : public OpKernels {
 public:
  CpuActivation(CpuContext& context, const KernelSpec& spec, Activation activation)
      : cpu_(context), activation_(activation), count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override { return penstock::activation::NeedsOf(activation_); }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForFlat(cpu_, count_, [&](int64_t first, int64_t size) {
      cpu_.kernels.activate(activation_, size, tape.input() + first, tape.result() + first);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    const float* seen = penstock::activation::ReadByBackward(activation_, tape);
    ForFlat(cpu_, count_, [&](int64_t first, int64_t size) {
      cpu_.kernels.activate_gradient(activation_, size, seen + first, tape.gradient() + first,
                                     tape.grad_input() + first);
    });
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const Activation activation_;
  const int64_t count_;
};

MadeKernels Make(CpuContext& context, const KernelSpec& spec, Activation activation) {
  return std::make_unique<CpuActivation>(context, spec, activation);
}

}  // namespace
}  // namespace activation

MadeKernels MakeRelu(CpuContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kRelu);
}
MadeKernels MakeGelu(CpuContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, penstock::activation::GeluOf(spec));
}
MadeKernels MakeSilu(CpuContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kSilu);
}
MadeKernels MakeTanh(CpuContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kTanh);
}
MadeKernels MakeSigmoid(CpuContext& context, const KernelSpec& spec) {
  return activation::Make(context, spec, Activation::kSigmoid);
}

}  // namespace penstock::cpu
