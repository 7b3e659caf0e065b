// Attention: each (sample, head) is worked on by itself (kernels/attention.cc). F keeps the logarithm of each row's sum,
// from which I computes the probabilities again.
#include <cmath>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace attention {
namespace {

class CpuAttention : public OpKernels {
 public:
  CpuAttention(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        side_by_side_(spec.inputs.size() < 3),
        has_lengths_(spec.inputs.size() % 2 == 0),
        samples_(spec.samples),
        queries_(spec.inputs[0].dims[0]),
        keys_(spec.inputs[side_by_side_ ? 0 : 1].dims[0]),
        width_(spec.node.output.dims.back()),
        stride_(spec.width()),
        heads_(spec.attributes().integer("heads")),
        size_(width_ / heads_),
        causal_(spec.attributes().flag("causal")),
        thread_floats_(context.kernels.attention_workspace(queries_, keys_, size_)) {
    BlockLayout stash;
    log_sums_ = stash.Add<float>(samples_ * heads_ * queries_);
    needs_.stash_bytes = stash.size_bytes();
    needs_.inputs_for_input = kAllInputs;
  }

  int64_t scratch_bytes() const {
    return cpu_.threads.count() * thread_floats_ * static_cast<int64_t>(sizeof(float));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForHeads([&](int64_t sample, int64_t head, float* memory) {
      const AttentionHead of = HeadOf(tape, sample, head);
      const Strided<float> output = {tape.result() + sample * queries_ * width_ + head * size_,
                                     width_};
      if (of.keys == 0) return FillRows(output, 0, queries_);
      cpu_.kernels.attention(of, output.data, output.stride, LogSums(tape, sample, head), memory);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ForHeads([&](int64_t sample, int64_t head, float* memory) {
      const AttentionHead of = HeadOf(tape, sample, head);
      const auto part = [&](Which which) {
        return Part(tape.grad_input(InputOf(which)), which, sample, head);
      };
      const AttentionHeadGradient gradient = {
          .query = part(kQuery), .key = part(kKey), .value = part(kValue)};
      FillRows(gradient.key, of.keys, keys_);
      FillRows(gradient.value, of.keys, keys_);
      if (of.keys == 0) return FillRows(gradient.query, 0, queries_);
      cpu_.kernels.attention_gradient(of,
                                      tape.gradient() + sample * queries_ * width_ + head * size_,
                                      width_, LogSums(tape, sample, head), gradient, memory);
    });
    return absl::OkStatus();
  }

 private:
  enum Which : int { kQuery, kKey, kValue };

  int InputOf(Which which) const { return side_by_side_ ? 0 : which; }

  // A head's queries, keys or values, or their gradients, in an input; null data where that is not there.
  template <typename T>
  Strided<T> Part(T* input, Which which, int64_t sample, int64_t head) const {
    if (input == nullptr) return {};
    const int64_t time = which == kQuery ? queries_ : keys_;
    const int64_t column = (side_by_side_ ? which * width_ : 0) + head * size_;
    return {input + sample * time * stride_ + column, stride_};
  }

  AttentionHead HeadOf(const Tape& tape, int64_t sample, int64_t head) const {
    const int lengths = side_by_side_ ? 1 : 3;
    const auto part = [&](Which which) {
      return Part(tape.input(InputOf(which)), which, sample, head);
    };
    return {.queries = queries_,
            .keys = has_lengths_ ? tape.input<int32_t>(lengths)[sample] : keys_,
            .size = size_,
            .causal = causal_,
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size_))),
            .query = part(kQuery),
            .key = part(kKey),
            .value = part(kValue)};
  }

  float* LogSums(const Tape& tape, int64_t sample, int64_t head) const {
    return log_sums_.in(tape.stash) + (sample * heads_ + head) * queries_;
  }

  // Zeros to a head's rows from `first` to `end`.
  void FillRows(Strided<float> rows, int64_t first, int64_t end) const {
    if (rows.data == nullptr) return;
    for (int64_t r = first; r < end; ++r) cpu_.kernels.fill(size_, 0.0f, rows.row(r));
  }

  // body(sample, head, memory of the thread).
  template <typename Body>
  void ForHeads(Body body) const {
    auto* const memory = static_cast<float*>(cpu_.layer_scratch.data());
    cpu_.threads.For(samples_ * heads_, [&](int64_t task, int thread) {
      body(task / heads_, task % heads_, memory + thread * thread_floats_);
    });
  }

  CpuContext& cpu_;
  const bool side_by_side_;  // queries, keys and values are one input
  const bool has_lengths_;
  const int64_t samples_, queries_, keys_;
  const int64_t width_;         // of the output
  const int64_t stride_;        // of the inputs' rows
  const int64_t heads_, size_;  // size_: of a head
  const bool causal_;
  const int64_t thread_floats_;
  TapeNeeds needs_;
  Place<float> log_sums_;  // stash [samples, heads, queries]
};

}  // namespace
}  // namespace attention

MadeKernels MakeAttention(CpuContext& context, const KernelSpec& spec) {
  auto op = std::make_unique<attention::CpuAttention>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(op->scratch_bytes()));
  return op;
}

}  // namespace penstock::cpu
