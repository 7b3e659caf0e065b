// The attention of a block: causal softmax attention between the two linear maps.
//
// The expansion gives query, key and value of all heads side by side, [rows, 3 width]. Each (sample,
// head) is worked on by itself (head_attention.h). F keeps only queries, keys, values and the
// logarithm of each row's sum; I computes the probabilities again from them. What is kept is float.
#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "compute/cpu/head_attention.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/residual_branch.h"

namespace penstock::cpu {
namespace attention_branch {
namespace {

template <typename Number>
class AttentionMiddle : public Middle<Number> {
 public:
  AttentionMiddle(CpuContext& context, const BranchShape& shape, int64_t heads, int64_t time,
                  std::unique_ptr<const HeadAttention> of_head)
      : cpu_(context),
        shape_(shape),
        heads_(heads),
        time_(time),
        size_(shape.width / heads),
        of_head_(std::move(of_head)),
        scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(size_)))) {
    BlockLayout stash;
    expansion_ = stash.Add<float>(shape.rows * shape.expanded);
    log_sums_ = stash.Add<float>(shape.rows * heads);
    stash_bytes_ = stash.size_bytes();

    BlockLayout scratch;
    incoming_ = scratch.Add<float>(shape.chunk * shape.projected);
    results_ = scratch.Add<float>(kDirect ? 0 : shape.chunk * shape.expanded);
    threads_ = scratch.Add<char>(context.threads.count() * of_head_->workspace_bytes());
    scratch_bytes_ = scratch.size_bytes();
  }

  int64_t stash_bytes() const override { return stash_bytes_; }
  int64_t scratch_bytes() const override { return scratch_bytes_; }

  float* ExpansionTarget(RowRange range, void* stash, void* /*scratch*/) override {
    return expansion_.in(stash) + range.first * shape_.expanded;
  }

  void Forward(RowRange range, float* expansion, const float* bias, Number* output, void* stash,
               void* scratch) override {
    cpu_.threads.ForBlocks(range.count, kBlockRows, [&](int64_t row, int64_t count, int64_t) {
      cpu_.kernels.add_bias(count, shape_.expanded, expansion + row * shape_.expanded, bias);
    });
    float* result = Direct(output, scratch);
    ForHeads(range, scratch, [&](int64_t sample, int64_t head, int thread, void* workspace) {
      of_head_->Forward(HeadOf(expansion + Offset(sample, head, shape_.expanded)),
                        result + Offset(sample, head, shape_.width), shape_.width,
                        LogSums(stash, range, sample, head), thread, workspace);
    });
    if constexpr (!kDirect) {
      cpu_.kernels.to_bf16(range.count * shape_.projected, result, output);
    }
  }

  float* IncomingTarget(Number* /*gradient*/, void* scratch) override {
    return incoming_.in(scratch);
  }

  void Backward(RowRange range, float* incoming, Number* gradient, float* block_sums, void* stash,
                void* scratch) override {
    float* expansion = ExpansionTarget(range, stash, scratch);
    float* result = Direct(gradient, scratch);
    ForHeads(range, scratch, [&](int64_t sample, int64_t head, int thread, void* workspace) {
      const int64_t at = Offset(sample, head, shape_.expanded);
      float* const query = result + at;
      of_head_->Backward(HeadOf(expansion + at), incoming + Offset(sample, head, shape_.width),
                         shape_.width, LogSums(stash, range, sample, head),
                         {{query, shape_.expanded},
                          {query + shape_.width, shape_.expanded},
                          {query + 2 * shape_.width, shape_.expanded}},
                         thread, workspace);
    });
    const int64_t width = shape_.expanded;
    cpu_.threads.ForBlocks(range.count, kBlockRows, [&](int64_t row, int64_t count, int64_t block) {
      float* sums = block_sums + block * width;
      if constexpr (kDirect) {
        cpu_.kernels.column_sums(count, width, result + row * width, sums);
      } else {
        cpu_.kernels.bf16.mask_column_sums(count, width, result + row * width, nullptr,
                                           gradient + row * width, sums);
      }
    });
  }

 private:
  // Float results can be written straight to their place.
  static constexpr bool kDirect = std::is_same_v<Number, float>;

  float* Direct(Number* target, void* scratch) const {
    if constexpr (kDirect) {
      return target;
    } else {
      return results_.in(scratch);
    }
  }

  AttentionHead HeadOf(const float* query) const {
    const int64_t stride = shape_.expanded;
    return {.queries = time_,
            .keys = time_,
            .size = size_,
            .causal = true,
            .scale = scale_,
            .query = {query, stride},
            .key = {query + shape_.width, stride},
            .value = {query + 2 * shape_.width, stride}};
  }

  // Where a head of a sample begins in rows of `width`.
  int64_t Offset(int64_t sample, int64_t head, int64_t width) const {
    return sample * time_ * width + head * size_;
  }

  float* LogSums(void* stash, RowRange range, int64_t sample, int64_t head) const {
    return log_sums_.in(stash) + (range.first + sample * time_) * heads_ + head * time_;
  }

  // body(sample of the range, head, thread, its workspace).
  template <typename Body>
  void ForHeads(RowRange range, void* scratch, Body body) const {
    cpu_.threads.For(range.count / time_ * heads_, [&](int64_t task, int thread) {
      body(task / heads_, task % heads_, thread,
           threads_.in(scratch) + thread * of_head_->workspace_bytes());
    });
  }

  CpuContext& cpu_;
  const BranchShape shape_;
  const int64_t heads_, time_, size_;  // size_: of a head
  const std::unique_ptr<const HeadAttention> of_head_;
  const float scale_;
  Place<float> expansion_;  // stash [rows, 3 width]
  Place<float> log_sums_;   // stash [batch, heads, time]
  Place<float> incoming_;   // scratch [chunk, width]
  Place<float> results_;    // scratch [chunk, 3 width], unless kDirect
  Place<char> threads_;     // scratch, a workspace for each thread
  int64_t stash_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

// Whole samples, about as many rows as other ops take.
int64_t SampleChunk(int64_t batch, int64_t time) {
  const int64_t samples_max = std::max<int64_t>(1, ChunkOf(batch * time) / time);
  int64_t samples = std::min(samples_max, batch);
  while (batch % samples != 0) {
    --samples;
  }
  return samples * time;
}

template <typename Number>
MadeKernels Make(CpuContext& context, const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t width = spec.width();
  const BranchShape branch = {.rows = spec.rows(),
                              .chunk = spec.fp8 ? spec.rows() : SampleChunk(spec.samples, time),
                              .width = width,
                              .expanded = 3 * width,
                              .projected = width,
                              .outputs_first = spec.attributes().word("layout") == "outputs_first",
                              .fp8 = spec.fp8};
  const int64_t heads = spec.attributes().integer("heads");
  PENSTOCK_ASSIGN_OR_RETURN(auto of_head,
                            MakeHeadAttention(context, {time, time, width / heads}, spec.bf16));
  return ResidualBranch<Number>::Create(
      context, branch, Dropout(spec.attributes().number("dropout"), time),
      std::make_unique<AttentionMiddle<Number>>(context, branch, heads, time, std::move(of_head)));
}

}  // namespace
}  // namespace attention_branch

MadeKernels MakeAttentionBranch(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? attention_branch::Make<Bf16>(context, spec)
                   : attention_branch::Make<float>(context, spec);
}

}  // namespace penstock::cpu
