// Functions of each element by itself. Where the output tells the slope, I reads that; else the input.
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace activation {
namespace {

bool HasSlopeOfOutput(Activation activation) {
  return activation == Activation::kRelu || activation == Activation::kTanh ||
         activation == Activation::kSigmoid;
}

class CpuActivation : public OpKernels {
 public:
  CpuActivation(CpuContext& context, const KernelSpec& spec, Activation activation)
      : cpu_(context), activation_(activation), count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.output_for_input = HasSlopeOfOutput(activation_);
    needs.inputs_for_input = needs.output_for_input ? kNoInputs : kAllInputs;
    return needs;
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForFlat(cpu_, count_, [&](int64_t first, int64_t size) {
      cpu_.kernels.activate(activation_, size, tape.input() + first, tape.result() + first);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    const float* seen = HasSlopeOfOutput(activation_) ? tape.result() : tape.input();
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
  const bool is_tanh = spec.attributes().word("approximate") == "tanh";
  return activation::Make(context, spec, is_tanh ? Activation::kGeluTanh : Activation::kGeluErf);
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
