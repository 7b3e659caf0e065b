// The mean of squared differences.
#include "base/status.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace mse {
namespace {

class CudaMse : public OpKernels {
 public:
  CudaMse(CudaContext& context, const KernelSpec& spec)
      : cuda_(context), predictions_(spec.inputs[0]), count_(spec.input_elements()) {}

  int64_t scratch_bytes() const {
    return MeanSquareWorkspaceDoubles(count_) * static_cast<int64_t>(sizeof(double));
  }
  TapeNeeds tape_needs() const override { return {.inputs_for_input = kAllInputs}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    MeanSquare(cuda_.stream(), count_, tape.input(0), tape.input(1),
               static_cast<double*>(cuda_.layer_scratch().data()), tape.result());
    return cuda_.Check("forward of a squared error");
  }

  ValueType prediction_type() const override { return predictions_; }

  absl::Status Predict(const WeightView&, const Tape& tape) override {
    return ToStatus(cudaMemcpyAsync(tape.output, tape.inputs[0], count_ * sizeof(float),
                                    cudaMemcpyDeviceToDevice, cuda_.stream()),
                    "predictions of a squared error");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    const float factor = 2.0f * tape.loss_scale / static_cast<float>(count_);
    for (int i = 0; i < 2; ++i) {
      if (tape.grad_input(i) == nullptr) continue;
      Difference(cuda_.stream(), count_, factor, tape.input(i), tape.input(1 - i),
                 tape.grad_input(i));
    }
    return cuda_.Check("backward of a squared error");
  }

 private:
  CudaContext& cuda_;
  const ValueType predictions_;
  const int64_t count_;
};

}  // namespace
}  // namespace mse

MadeKernels MakeMse(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<mse::CudaMse>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
