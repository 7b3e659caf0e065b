// Attention: each (sample, head) is worked on by itself (head_attention.h). F keeps the logarithm of each row's sum,
// from which I computes the probabilities again. In I a task has the heads that read the same keys and values, in their
// order, so that the sum of their gradients is the same bits for any number of threads. Where a row has several documents,
// each pass first finds where they begin.
#include "compute/ops/attention.h"

#include <cmath>
#include <memory>
#include <utility>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/head_attention.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace attention {
namespace {

using penstock::attention::Part;
using penstock::attention::Sizes;
using enum penstock::attention::Part;

class CpuAttention : public OpKernels {
 public:
  CpuAttention(CpuContext& context, const Sizes& sizes,
               std::unique_ptr<const HeadAttention> of_head)
      : cpu_(context), s_(sizes), of_head_(std::move(of_head)) {
    BlockLayout stash;
    log_sums_ = stash.Add<float>(s_.samples * s_.heads * s_.queries);
    needs_.stash_bytes = stash.size_bytes();
    needs_.inputs_for_input = kAllInputs;
    BlockLayout scratch;
    threads_ = scratch.Add<char>(context.threads.count() * of_head_->workspace_bytes());
    starts_ = scratch.Add<int32_t>(s_.has_positions ? s_.samples * s_.queries : 0);
    scratch_bytes_ = scratch.size_bytes();
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    FindStarts(tape);
    ForEach(s_.heads, [&](int64_t sample, int64_t head, int thread) {
      const AttentionHead of = HeadOf(tape, sample, head);
      const Strided<float> output = {tape.result() + OutputAt(sample, head), s_.width()};
      if (of.keys == 0) return FillRows(output, 0, s_.queries);
      of_head_->Forward(of, output.data, output.stride, LogSums(tape, sample, head), thread,
                        Workspace(thread));
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    FindStarts(tape);
    ForEach(s_.key_value_heads, [&](int64_t sample, int64_t group, int thread) {
      const int64_t first = group * s_.group();
      for (int64_t head = first; head < first + s_.group(); ++head) {
        BackwardOfHead(tape, sample, head, /*is_first=*/head == first, thread);
      }
    });
    return absl::OkStatus();
  }

 private:
  // By query, where its document begins.
  void FindStarts(const Tape& tape) const {
    if (!s_.has_positions) return;
    const auto* const positions = tape.input<int32_t>(s_.inputs());
    int32_t* const starts = starts_.in(cpu_.layer_scratch.data());
    for (int64_t sample = 0; sample < s_.samples; ++sample) {
      int64_t start = 0;
      for (int64_t t = 0; t < s_.queries; ++t) {
        const int64_t at = sample * s_.queries + t;
        if (positions[at] == 0) start = t;
        starts[at] = static_cast<int32_t>(start);
      }
    }
  }

  // is_first: of those with the same keys and values.
  void BackwardOfHead(const Tape& tape, int64_t sample, int64_t head, bool is_first,
                      int thread) const {
    const AttentionHead of = HeadOf(tape, sample, head);
    const auto part = [&](Part which) {
      return RowsOf(tape.grad_input(s_.InputOf(which)), which, sample, head);
    };
    const AttentionHeadGradient gradient = {
        .query = part(kQuery), .key = part(kKey), .value = part(kValue), .adds_to_keys = !is_first};
    if (is_first) {
      FillRows(gradient.key, of.keys, s_.keys);
      FillRows(gradient.value, of.keys, s_.keys);
    }
    if (of.keys == 0) return FillRows(gradient.query, 0, s_.queries);
    of_head_->Backward(of, tape.gradient() + OutputAt(sample, head), s_.width(),
                       LogSums(tape, sample, head), gradient, thread, Workspace(thread));
  }

  // The queries, keys or values that a head reads, or their gradients, in an input; null data where that is not there.
  template <typename T>
  Strided<T> RowsOf(T* input, Part part, int64_t sample, int64_t head) const {
    if (input == nullptr) return {};
    const int64_t stride = s_.StrideOf(part);
    const int64_t number = part == kQuery ? head : head / s_.group();
    return {input + sample * s_.TimeOf(part) * stride + s_.ColumnOf(part) + number * s_.size,
            stride};
  }

  AttentionHead HeadOf(const Tape& tape, int64_t sample, int64_t head) const {
    const auto part = [&](Part which) {
      return RowsOf(tape.input(s_.InputOf(which)), which, sample, head);
    };
    return {.queries = s_.queries,
            .keys = s_.has_lengths ? tape.input<int32_t>(s_.inputs())[sample] : s_.keys,
            .size = s_.size,
            .causal = s_.causal,
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s_.size))),
            .window = s_.window,
            .starts = s_.has_positions ? starts_.in(cpu_.layer_scratch.data()) + sample * s_.queries
                                       : nullptr,
            .query = part(kQuery),
            .key = part(kKey),
            .value = part(kValue)};
  }

  int64_t OutputAt(int64_t sample, int64_t head) const {
    return sample * s_.queries * s_.width() + head * s_.size;
  }

  float* LogSums(const Tape& tape, int64_t sample, int64_t head) const {
    return log_sums_.in(tape.stash) + (sample * s_.heads + head) * s_.queries;
  }

  // Zeros to a head's rows from `first` to `end`.
  void FillRows(Strided<float> rows, int64_t first, int64_t end) const {
    if (rows.data == nullptr) return;
    for (int64_t r = first; r < end; ++r) cpu_.kernels.fill(s_.size, 0.0f, rows.row(r));
  }

  void* Workspace(int thread) const {
    return threads_.in(cpu_.layer_scratch.data()) + thread * of_head_->workspace_bytes();
  }

  // body(sample, number, thread), for numbers 0 .. count of each sample.
  template <typename Body>
  void ForEach(int64_t count, Body body) const {
    cpu_.threads.For(s_.samples * count,
                     [&](int64_t task, int thread) { body(task / count, task % count, thread); });
  }

  CpuContext& cpu_;
  const Sizes s_;
  const std::unique_ptr<const HeadAttention> of_head_;
  TapeNeeds needs_;
  int64_t scratch_bytes_ = 0;
  Place<float> log_sums_;  // stash [samples, heads, queries]
  Place<char> threads_;    // scratch, a workspace for each thread
  Place<int32_t> starts_;  // scratch [samples, queries], of documents
};

}  // namespace
}  // namespace attention

MadeKernels MakeAttention(CpuContext& context, const KernelSpec& spec) {
  const attention::Sizes sizes(spec);
  PENSTOCK_ASSIGN_OR_RETURN(
      auto of_head,
      MakeHeadAttention(context, {sizes.queries, sizes.keys, sizes.size, sizes.window}, spec.bf16));
  auto op = std::make_unique<attention::CpuAttention>(context, sizes, std::move(of_head));
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(op->scratch_bytes()));
  return op;
}

}  // namespace penstock::cpu
