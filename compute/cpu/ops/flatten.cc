// Ops that only name the same elements otherwise: nothing is computed.
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace flatten {
namespace {

class CpuRenaming : public OpKernels {
 public:
  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.passes_input = true;
    needs.passes_gradient = kAllInputs;
    return needs;
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();
  }
  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace flatten

MadeKernels MakeFlatten(CpuContext&, const KernelSpec&) {
  return std::make_unique<flatten::CpuRenaming>();
}
MadeKernels MakeReshape(CpuContext&, const KernelSpec&) {
  return std::make_unique<flatten::CpuRenaming>();
}

}  // namespace penstock::cpu
