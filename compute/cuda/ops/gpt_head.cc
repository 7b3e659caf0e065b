// The head: logits = input W^T and their mean cross-entropy against the targets.
//
// F computes the loss and turns the logits into their gradient in one pass, up to the factor that I and W
// put into their products; so probabilities are never stored, and logits are the only large array.
//
// Parameter: weight [vocabulary, width], the token embedding's when tied.
#include <optional>

#include "base/check.h"
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/linear.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace gpt_head {
namespace {

// Rows of logits begin at multiples of this, so that cuBLASLt finds its fast kernels for any vocabulary.
constexpr int64_t kLogitsAlignment = 64;

template <typename Number>
class CudaGptHead : public OpKernels {
 public:
  static MadeKernels Create(CudaContext& context, const KernelSpec& spec) {
    std::unique_ptr<CudaGptHead> head(new CudaGptHead(context, spec));
    const LinearShape padded = head->Linear(head->stride_);
    PENSTOCK_ASSIGN_OR_RETURN(
        head->forward_,
        MatrixProduct::Create(context, ForwardShape<Number>(padded, kTypeOf<Number>)));
    PENSTOCK_ASSIGN_OR_RETURN(
        head->logits_,
        MatrixProduct::Create(context, ForwardShape<Number>(head->Linear(0), CUDA_R_32F)));
    PENSTOCK_ASSIGN_OR_RETURN(
        head->backward_,
        MatrixProduct::Create(context, BackwardInputShape<Number>(padded, CUDA_R_32F)));
    PENSTOCK_ASSIGN_OR_RETURN(head->weight_, WeightGradient<Number>::Create(context, padded, 0));
    return std::unique_ptr<OpKernels>(std::move(head));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    Number* logits = gradient_.in(tape.kept);
    PENSTOCK_RETURN_IF_ERROR(forward_.Run({.left = ConvertedInput(tape),
                                           .right = ParameterOf<Number>(weights, 0),
                                           .result = logits}));
    CrossEntropy(cuda_.stream(), LossOf(context, tape), logits);
    return cuda_.Check("forward of the head");
  }

  ValueType prediction_type() const override { return {DType::kF32, {time_, vocabulary_}}; }

  absl::Status Predict(const WeightView& weights, const Tape& tape) override {
    PENSTOCK_RETURN_IF_ERROR(logits_.Run({.left = ConvertedInput(tape),
                                          .right = ParameterOf<Number>(weights, 0),
                                          .result = tape.result()}));
    return cuda_.Check("predictions of the head");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    if (tape.grad_input() == nullptr) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(backward_.Run({.left = gradient_.in(tape.kept),
                                            .right = ParameterOf<Number>(weights, 0),
                                            .result = tape.grad_input(),
                                            .alpha = Scale(tape)}));
    return cuda_.Check("backward of the head's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    PENSTOCK_RETURN_IF_ERROR(
        weight_.Add(gradients, Input(tape), gradient_.in(tape.kept), Scale(tape)));
    return cuda_.Check("backward of the head's weight");
  }

 private:
  static constexpr InputSet kActivation = 1;

  CudaGptHead(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        vocabulary_(spec.attributes().integer("vocabulary")),
        width_(spec.width()),
        rows_(spec.rows()),
        time_(spec.inputs[0].dims[0]),
        ignored_(spec.loss().ignored),
        smoothing_(static_cast<float>(spec.attributes().number("label_smoothing"))),
        stride_((vocabulary_ + kLogitsAlignment - 1) / kLogitsAlignment * kLogitsAlignment) {
    BlockLayout stash, kept;
    row_losses_ = stash.Add<float>(rows_);
    valid_ = stash.Add<int32_t>(ignored_.has_value() ? 1 : 0);
    gradient_ = kept.Add<Number>(rows_ * stride_);
    input_ = kept.Add<Number>(kIsFloat<Number> ? 0 : rows_ * width_);
    needs_.stash_bytes = stash.size_bytes();
    needs_.kept_bytes = kept.size_bytes();
    needs_.inputs_for_weight = kIsFloat<Number> ? kActivation : kNoInputs;
  }

  TokenLoss LossOf(const PassContext& context, const Tape& tape) const {
    return {.rows = rows_,
            .vocabulary = vocabulary_,
            .stride = stride_,
            .targets = tape.input<int32_t>(1),
            .ignored = ignored_.value_or(0),
            .smoothing = smoothing_,
            .with_gradient = context.training,
            .row_losses = row_losses_.in(tape.stash),
            .ranks = tape.ranks,
            .valid = ignored_.has_value() ? valid_.in(tape.stash) : nullptr,
            .loss = tape.result()};
  }

  LinearShape Linear(int64_t output_stride) const {
    return {.rows = rows_,
            .inputs = width_,
            .outputs = vocabulary_,
            .outputs_first = true,
            .output_stride = output_stride};
  }

  // Scales the gradient of the mean over the rows. What F leaves makes one over those that count of it.
  float Scale(const Tape& tape) const { return tape.loss_scale / static_cast<float>(rows_); }

  // The input as the products read it.
  const Number* Input(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.input();
    } else {
      return input_.in(tape.kept);
    }
  }

  // Returns the input, first converted where it has another type.
  const Number* ConvertedInput(const Tape& tape) const {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), rows_ * width_, tape.input(), input_.in(tape.kept));
    }
    return Input(tape);
  }

  CudaContext& cuda_;
  const int64_t vocabulary_, width_, rows_, time_;
  const std::optional<int32_t> ignored_;
  const float smoothing_;
  const int64_t stride_;
  MatrixProduct forward_, logits_, backward_;
  WeightGradient<Number> weight_;
  TapeNeeds needs_;
  Place<float> row_losses_;  // stash [rows]
  Place<int32_t> valid_;     // stash [1], unless all targets count
  Place<Number> gradient_;   // kept [rows, stride]: logits, then their gradient
  Place<Number> input_;      // kept [rows, width], unless float
};

}  // namespace
}  // namespace gpt_head

MadeKernels MakeGptHead(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? gpt_head::CudaGptHead<Bf16>::Create(context, spec)
                   : gpt_head::CudaGptHead<float>::Create(context, spec);
}

}  // namespace penstock::cuda
