// The head: logits = input W^T and their mean cross-entropy against the targets that count. More logits than are worth
// their memory are computed in chunks (compute/cpu/chunked_head.h).
//
// F leaves the logits and each row's log-sum; I turns the logits into their gradient. For float that is
// in place, so they are kept until W; bf16 gradients have their own place, and the float logits go
// after I.
//
// Parameter: weight [vocabulary, width], the token embedding's when tied.
#include <type_traits>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/chunked_head.h"
#include "compute/cpu/linear.h"
#include "compute/cpu/losses.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace gpt_head {
namespace {

template <typename Number>
class CpuGptHead : public OpKernels {
 public:
  static MadeKernels Create(CpuContext& context, const KernelSpec& spec) {
    std::unique_ptr<CpuGptHead> head(new CpuGptHead(context, spec));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(BlocksOf(head->rows_) *
                                                           static_cast<int64_t>(sizeof(double))));
    const LinearShape linear{head->rows_, ChunkOf(head->rows_), head->width_, head->vocabulary_,
                             /*outputs_first=*/true};
    PENSTOCK_ASSIGN_OR_RETURN(head->linear_, Linear<Number>::Create(context, linear, 0));
    return std::unique_ptr<OpKernels>(std::move(head));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    Multiply(weights, tape, LogitsOf(tape));
    *tape.result() = MeanLoss(tape);
    if (tape.ranks != nullptr) {
      cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
        cpu_.kernels.target_ranks(RowsOf(tape, first, count), tape.ranks + first);
      });
    }
    return absl::OkStatus();
  }

  ValueType prediction_type() const override { return {DType::kF32, {time_, vocabulary_}}; }

  absl::Status Predict(const WeightView& weights, const Tape& tape) override {
    Multiply(weights, tape, tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    const float scale = ScaleOfValid(tape, ValidTargetsOf(tape, rows_, ignored_));
    Number* gradient = LogitsGradient(tape);
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      cpu_.kernels.of<Number>().cross_entropy_gradient(RowsOf(tape, first, count), scale,
                                                       gradient + first * vocabulary_);
    });
    if (tape.grad_input() != nullptr) {
      linear_.BackwardInput(weights, gradient, tape.grad_input());
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    linear_.BackwardWeight(gradients, Input(tape), LogitsGradient(tape));
    return absl::OkStatus();
  }

 private:
  static constexpr InputSet kActivation = 1;
  static constexpr InputSet kTargets = 2;
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  CpuGptHead(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        vocabulary_(spec.attributes().integer("vocabulary")),
        width_(spec.width()),
        rows_(spec.rows()),
        time_(spec.inputs[0].dims[0]),
        ignored_(spec.loss().ignored.value_or(kNoTarget)),
        smoothing_(static_cast<float>(spec.attributes().number("label_smoothing"))) {
    BlockLayout stash, kept;
    log_sums_ = stash.Add<float>(rows_);
    logits_ = (kFloat ? kept : stash).template Add<float>(rows_ * vocabulary_);
    input_ = kept.Add<Number>(kFloat ? 0 : rows_ * width_);
    needs_.stash_bytes = stash.size_bytes();
    needs_.kept_bytes = kept.size_bytes();

    BlockLayout weight_stash;
    gradient_ = weight_stash.Add<Number>(kFloat ? 0 : rows_ * vocabulary_);
    needs_.weight_stash_bytes = weight_stash.size_bytes();
    needs_.inputs_for_input = kTargets;
    needs_.inputs_for_weight = kFloat ? kActivation : kNoInputs;
  }

  // The input as the products read it.
  const Number* Input(const Tape& tape) const {
    if constexpr (kFloat) {
      return tape.input();
    } else {
      return input_.in(tape.kept);
    }
  }

  float* LogitsOf(const Tape& tape) const { return logits_.in(kFloat ? tape.kept : tape.stash); }

  Number* LogitsGradient(const Tape& tape) const {
    if constexpr (kFloat) {
      return LogitsOf(tape);
    } else {
      return gradient_.in(tape.weight_stash);
    }
  }

  void Multiply(const WeightView& weights, const Tape& tape, float* logits) const {
    if constexpr (!kFloat) {
      cpu_.kernels.to_bf16(rows_ * width_, tape.input(), input_.in(tape.kept));
    }
    linear_.Forward(weights, Input(tape), logits);
  }

  CrossEntropyRows RowsOf(const Tape& tape, int64_t first, int64_t count) const {
    return {count,
            vocabulary_,
            LogitsOf(tape) + first * vocabulary_,
            tape.input<int32_t>(1) + first,
            log_sums_.in(tape.stash) + first,
            ignored_,
            smoothing_};
  }

  float MeanLoss(const Tape& tape) const {
    const double sum = SumOfBlocks(cpu_, rows_, kBlockRows, [&](int64_t first, int64_t count) {
      return cpu_.kernels.cross_entropy(RowsOf(tape, first, count));
    });
    return MeanOfValid(sum, ValidTargetsOf(tape, rows_, ignored_));
  }

  CpuContext& cpu_;
  const int64_t vocabulary_, width_, rows_, time_;
  const int32_t ignored_;
  const float smoothing_;
  Linear<Number> linear_;
  TapeNeeds needs_;
  Place<float> log_sums_;   // stash
  Place<float> logits_;     // kept if float, else stash
  Place<Number> input_;     // kept, unless float
  Place<Number> gradient_;  // weight stash, unless float
};

}  // namespace
}  // namespace gpt_head

MadeKernels MakeGptHead(CpuContext& context, const KernelSpec& spec) {
  if (IsChunkedHead(spec)) return MakeChunkedHead(context, spec);
  return spec.bf16 ? gpt_head::CpuGptHead<Bf16>::Create(context, spec)
                   : gpt_head::CpuGptHead<float>::Create(context, spec);
}

}  // namespace penstock::cpu
