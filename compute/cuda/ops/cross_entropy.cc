// The mean cross-entropy of logits over the targets that count. F leaves each row's log-sum and how many targets count,
// from which I computes the probabilities again.
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace cross_entropy {
namespace {

class CudaCrossEntropy : public OpKernels {
 public:
  CudaCrossEntropy(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        logits_(spec.inputs[0]),
        classes_(spec.width()),
        rows_(spec.rows()),
        ignored_(spec.loss().ignored.value_or(kNoTarget)),
        smoothing_(static_cast<float>(spec.attributes().number("label_smoothing"))) {
    BlockLayout stash;
    log_sums_ = stash.Add<float>(rows_);
    valid_ = stash.Add<int32_t>(1);
    needs_ = {.stash_bytes = stash.size_bytes(), .inputs_for_input = kAllInputs};
  }

  // Counts the rows' losses.
  int64_t scratch_bytes() const { return rows_ * static_cast<int64_t>(sizeof(float)); }
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ClassLossForward(cuda_.stream(), LossOf(tape),
                     static_cast<float*>(cuda_.layer_scratch().data()), tape.result());
    return cuda_.Check("forward of a cross-entropy");
  }

  ValueType prediction_type() const override { return logits_; }

  absl::Status Predict(const WeightView&, const Tape& tape) override {
    return ToStatus(cudaMemcpyAsync(tape.output, tape.inputs[0], rows_ * classes_ * sizeof(float),
                                    cudaMemcpyDeviceToDevice, cuda_.stream()),
                    "predictions of a cross-entropy");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ClassLossBackward(cuda_.stream(), LossOf(tape), tape.loss_scale, tape.grad_input());
    return cuda_.Check("backward of a cross-entropy");
  }

 private:
  ClassLoss LossOf(const Tape& tape) const {
    return {.rows = rows_,
            .classes = classes_,
            .logits = tape.input(),
            .targets = tape.input<int32_t>(1),
            .ignored = ignored_,
            .smoothing = smoothing_,
            .log_sums = log_sums_.in(tape.stash),
            .valid = valid_.in(tape.stash),
            .ranks = tape.ranks};
  }

  CudaContext& cuda_;
  const ValueType logits_;
  const int64_t classes_, rows_;
  const int32_t ignored_;
  const float smoothing_;
  TapeNeeds needs_;
  Place<float> log_sums_;  // stash [rows]
  Place<int32_t> valid_;   // stash [1]
};

}  // namespace
}  // namespace cross_entropy

MadeKernels MakeCrossEntropy(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<cross_entropy::CudaCrossEntropy>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
