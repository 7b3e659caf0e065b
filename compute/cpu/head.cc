// The head: logits = input W^T and their mean cross-entropy against the targets.
//
// F leaves the logits and each row's log-sum; I turns the logits into their gradient. For float that is
// in place, so they are kept until W; bf16 gradients have their own place, and the float logits go
// after I.
//
// Parameter: weight [vocabulary, width], the token embedding's when tied.
#include <cstring>
#include <type_traits>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/layers.h"
#include "compute/cpu/linear.h"
#include "compute/cpu/row_blocks.h"

namespace penstock {
namespace {

template <typename Number>
class CpuHead : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Create(CpuContext& context, const HeadLayer& config,
                                                       BatchShape shape) {
    std::unique_ptr<CpuHead> head(new CpuHead(context, config, shape));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(head->PlaceScratch()));
    const LinearShape linear{head->rows_, head->chunk_, config.width, config.vocabulary,
                             /*outputs_first=*/true};
    PENSTOCK_ASSIGN_OR_RETURN(head->linear_, Linear<Number>::Create(context, linear, 0));
    return std::unique_ptr<Layer>(std::move(head));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape,
                       const Tensor& output) override {
    const auto* targets = tape.targets.data<int32_t>();
    Multiply(weights, tape, LogitsOf(tape));
    std::memcpy(targets_.in(tape.stash.data()), targets, rows_ * sizeof(int32_t));
    *output.data<float>() = static_cast<float>(MeanLoss(targets, tape));
    return absl::OkStatus();
  }

  absl::Status Logits(const WeightView& weights, const Tape& tape, const Tensor& output) override {
    Multiply(weights, tape, output.data<float>());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights, const Tape& tape,
                             const Tensor& grad_input) override {
    const float scale = tape.loss_scale / static_cast<float>(rows_);
    const float* logits = LogitsOf(tape);
    Number* gradient = LogitsGradient(tape);
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      const int64_t at = first * config_.vocabulary;
      cpu_.kernels.of<Number>().cross_entropy_gradient(
          count, config_.vocabulary, logits + at, targets_.in(tape.stash.data()) + first,
          log_sums_.in(tape.stash.data()) + first, scale, gradient + at);
    });
    for (int64_t first = 0; first < rows_; first += chunk_) {
      linear_.BackwardInput(weights, gradient + first * config_.vocabulary,
                            grad_input.data<float>() + first * config_.width);
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    linear_.BackwardWeight(gradients, Input(tape), LogitsGradient(tape));
    return absl::OkStatus();
  }

 private:
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  CpuHead(CpuContext& context, const HeadLayer& config, BatchShape shape)
      : cpu_(context),
        config_(config),
        rows_(shape.batch * shape.time),
        time_(shape.time),
        chunk_(ChunkOf(rows_)) {
    BlockLayout stash, kept;
    targets_ = stash.Add<int32_t>(rows_);
    log_sums_ = stash.Add<float>(rows_);
    logits_ = (kFloat ? kept : stash).template Add<float>(rows_ * config.vocabulary);
    input_ = kept.Add<Number>(kFloat ? 0 : rows_ * config.width);
    needs_.stash_bytes = stash.size_bytes();
    needs_.kept_bytes = kept.size_bytes();

    BlockLayout weight_stash;
    gradient_ = weight_stash.Add<Number>(kFloat ? 0 : rows_ * config.vocabulary);
    needs_.weight_stash_bytes = weight_stash.size_bytes();
    needs_.input_for_weight = kFloat;
  }

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    block_losses_ = scratch.Add<double>(BlocksOf(rows_));
    return scratch.size_bytes();
  }

  // The input as the products read it.
  const Number* Input(const Tape& tape) const {
    if constexpr (kFloat) {
      return tape.input.data<float>();
    } else {
      return input_.in(tape.kept.data());
    }
  }

  float* LogitsOf(const Tape& tape) const {
    return logits_.in(kFloat ? tape.kept.data() : tape.stash.data());
  }

  Number* LogitsGradient(const Tape& tape) const {
    if constexpr (kFloat) {
      return LogitsOf(tape);
    } else {
      return gradient_.in(tape.weight_stash.data());
    }
  }

  void Multiply(const WeightView& weights, const Tape& tape, float* logits) const {
    if constexpr (!kFloat) {
      cpu_.kernels.to_bf16(rows_ * config_.width, tape.input.data<float>(),
                           input_.in(tape.kept.data()));
    }
    for (int64_t first = 0; first < rows_; first += chunk_) {
      linear_.Forward(weights, Input(tape) + first * config_.width,
                      logits + first * config_.vocabulary);
    }
  }

  double MeanLoss(const int32_t* targets, const Tape& tape) const {
    double* losses = block_losses_.in(cpu_.layer_scratch.data());
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
      losses[block] = cpu_.kernels.cross_entropy(
          count, config_.vocabulary, LogitsOf(tape) + first * config_.vocabulary, targets + first,
          log_sums_.in(tape.stash.data()) + first);
    });
    double sum = 0.0;
    for (int64_t block = 0; block < BlocksOf(rows_); ++block) {
      sum += losses[block];
    }
    return sum / static_cast<double>(rows_);
  }

  CpuContext& cpu_;
  const HeadLayer config_;
  const int64_t rows_, time_, chunk_;
  Linear<Number> linear_;
  TapeNeeds needs_;
  Place<int32_t> targets_;      // stash
  Place<float> log_sums_;       // stash
  Place<float> logits_;         // kept if float, else stash
  Place<Number> input_;         // kept, unless float
  Place<Number> gradient_;      // weight stash, unless float
  Place<double> block_losses_;  // scratch
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeCpuHead(CpuContext& context, const HeadLayer& config,
                                                   BatchShape shape, bool bf16) {
  return bf16 ? CpuHead<Bf16>::Create(context, config, shape)
              : CpuHead<float>::Create(context, config, shape);
}

}  // namespace penstock
