// The sum of values, from the first to the last. Their gradients are that of the output.
#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace add {
namespace {

class CudaAdd : public OpKernels {
 public:
  CudaAdd(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        inputs_(static_cast<int>(spec.inputs.size())),
        count_(spec.output_elements()) {}

  TapeNeeds tape_needs() const override { return {.passes_gradient = kAllInputs}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    static_assert(Addends::kMax == kNodeInputsMax);
    Addends addends = {.count = inputs_};
    for (int i = 0; i < inputs_; ++i) addends.values[i] = tape.input(i);
    AddAll(cuda_.stream(), count_, addends, tape.result());
    return cuda_.Check("forward of a sum");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();
  }

 private:
  CudaContext& cuda_;
  const int inputs_;
  const int64_t count_;
};

}  // namespace
}  // namespace add

MadeKernels MakeAdd(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<add::CudaAdd>(context, spec);
}

}  // namespace penstock::cuda
