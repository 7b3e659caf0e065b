// The attention of a block: causal softmax attention between the two linear maps.
//
// The expansion gives query, key and value of all heads side by side, [rows, 3 width]. Each (sample,
// head) is worked on by itself, a block of query rows after the other against the keys up to its last
// row, so that most of the masked half is never computed. Of F only queries, keys, values and the
// logarithm of each row's sum are kept; I computes the probabilities again from them (FlashAttention,
// arXiv 2205.14135). Everything here is float, also when the linear maps read bf16.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "compute/cpu/layers.h"
#include "compute/cpu/residual_branch.h"
#include "compute/cpu/small_product.h"

namespace penstock {
namespace {

constexpr int64_t kQueryRows = 64;  // of a block

template <typename Number>
class AttentionMiddle : public Middle<Number> {
 public:
  AttentionMiddle(CpuContext& context, const BranchShape& shape, int64_t heads, int64_t time)
      : cpu_(context),
        shape_(shape),
        heads_(heads),
        time_(time),
        size_(shape.width / heads),
        scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(size_)))) {
    BlockLayout stash;
    expansion_ = stash.Add<float>(shape.rows * shape.expanded);
    log_sums_ = stash.Add<float>(shape.rows * heads);
    stash_bytes_ = stash.size_bytes();

    BlockLayout scratch;
    incoming_ = scratch.Add<float>(shape.chunk * shape.projected);
    results_ = scratch.Add<float>(kDirect ? 0 : shape.chunk * shape.expanded);
    const int64_t block = std::min(kQueryRows, time);
    thread_floats_ = 2 * block * time + block;
    threads_ = scratch.Add<float>(context.threads.count() * thread_floats_);
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
    ForHeads(range, scratch, [&](int64_t sample, int64_t head, float* memory) {
      ForwardHead(HeadAt(expansion, sample, head),
                  result + sample * time_ * shape_.width + head * size_,
                  LogSums(stash, range, sample, head), memory);
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
    ForHeads(range, scratch, [&](int64_t sample, int64_t head, float* memory) {
      BackwardHead(HeadAt(expansion, sample, head), HeadAt(result, sample, head),
                   incoming + sample * time_ * shape_.width + head * size_,
                   LogSums(stash, range, sample, head), memory);
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
  // Whether results are float and so can be written where they are wanted.
  static constexpr bool kDirect = std::is_same_v<Number, float>;

  // Query, key and value of one head: [time, size], rows `shape_.expanded` floats apart.
  struct Head {
    float* query;
    float* key;
    float* value;
  };

  float* Direct(Number* target, void* scratch) const {
    if constexpr (kDirect) {
      return target;
    } else {
      return results_.in(scratch);
    }
  }

  Head HeadAt(float* expansion, int64_t sample, int64_t head) const {
    float* query = expansion + sample * time_ * shape_.expanded + head * size_;
    return {query, query + shape_.width, query + 2 * shape_.width};
  }

  float* LogSums(void* stash, RowRange range, int64_t sample, int64_t head) const {
    return log_sums_.in(stash) + (range.first + sample * time_) * heads_ + head * time_;
  }

  // body(sample of the range, head, memory of the thread).
  template <typename Body>
  void ForHeads(RowRange range, void* scratch, Body body) const {
    float* memory = threads_.in(scratch);
    cpu_.threads.For(range.count / time_ * heads_, [&](int64_t task, int thread) {
      body(task / heads_, task % heads_, memory + thread * thread_floats_);
    });
  }

  void ForwardHead(const Head& head, float* output, float* log_sums, float* memory) const {
    const int64_t stride = shape_.expanded;
    float* scores = memory;
    float* inverse_sums = memory + 2 * std::min(kQueryRows, time_) * time_;
    for (int64_t first = 0; first < time_; first += kQueryRows) {
      const int64_t rows = std::min(kQueryRows, time_ - first);
      const int64_t columns = first + rows;
      SmallProduct({rows, columns, size_}, scale_, ConstMatrix{head.query + first * stride, stride},
                   Transposed{head.key, stride}, 0.0f, {scores, columns});
      cpu_.kernels.causal_softmax({rows, columns, columns, first}, scores, log_sums + first,
                                  inverse_sums);
      float* result = output + first * shape_.width;
      SmallProduct({rows, size_, columns}, 1.0f, ConstMatrix{scores, columns},
                   ConstMatrix{head.value, stride}, 0.0f, {result, shape_.width});
      cpu_.kernels.scale_rows(rows, size_, shape_.width, inverse_sums, result);
    }
  }

  // The last block of queries meets all keys, so it comes first and overwrites their gradients; the
  // blocks before it add.
  void BackwardHead(const Head& head, const Head& gradient, const float* incoming,
                    const float* log_sums, float* memory) const {
    const int64_t stride = shape_.expanded;
    float* scores = memory;
    float* score_gradients = memory + std::min(kQueryRows, time_) * time_;
    const int64_t last = (time_ - 1) / kQueryRows * kQueryRows;
    for (int64_t first = last; first >= 0; first -= kQueryRows) {
      const int64_t rows = std::min(kQueryRows, time_ - first);
      const int64_t columns = first + rows;
      const float keep = first == last ? 0.0f : 1.0f;
      const ConstMatrix query{head.query + first * stride, stride};
      const ConstMatrix output_gradient{incoming + first * shape_.width, shape_.width};
      SmallProduct({rows, columns, size_}, scale_, query, Transposed{head.key, stride}, 0.0f,
                   {scores, columns});
      SmallProduct({rows, columns, size_}, 1.0f, output_gradient, Transposed{head.value, stride},
                   0.0f, {score_gradients, columns});
      cpu_.kernels.causal_softmax_gradient({rows, columns, columns, first}, scale_,
                                           log_sums + first, scores, score_gradients);
      SmallProduct({columns, size_, rows}, 1.0f, Transposed{scores, columns}, output_gradient, keep,
                   {gradient.value, stride});
      SmallProduct({columns, size_, rows}, 1.0f, Transposed{score_gradients, columns}, query, keep,
                   {gradient.key, stride});
      SmallProduct({rows, size_, columns}, 1.0f, ConstMatrix{score_gradients, columns},
                   ConstMatrix{head.key, stride}, 0.0f, {gradient.query + first * stride, stride});
    }
  }

  CpuContext& cpu_;
  const BranchShape shape_;
  const int64_t heads_, time_, size_;  // size_: of a head
  const float scale_;
  Place<float> expansion_;  // stash [rows, 3 width]
  Place<float> log_sums_;   // stash [batch, heads, time]
  Place<float> incoming_;   // scratch [chunk, width]
  Place<float> results_;    // scratch [chunk, 3 width], unless kDirect
  Place<float> threads_;    // scratch of each thread: two blocks of scores, inverse sums
  int64_t thread_floats_ = 0;
  int64_t stash_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

// Whole samples, about as many rows as other layers take.
int64_t SampleChunk(BatchShape shape) {
  const int64_t samples_max = std::max<int64_t>(1, ChunkOf(shape.batch * shape.time) / shape.time);
  int64_t samples = std::min(samples_max, shape.batch);
  while (shape.batch % samples != 0) {
    --samples;
  }
  return samples * shape.time;
}

template <typename Number>
absl::StatusOr<std::unique_ptr<Layer>> Make(CpuContext& context, const AttentionLayer& config,
                                            BatchShape shape) {
  const BranchShape branch{shape.batch * shape.time, SampleChunk(shape), config.width,
                           3 * config.width, config.width};
  return ResidualBranch<Number>::Create(
      context, branch, Dropout(config.dropout, shape.time),
      std::make_unique<AttentionMiddle<Number>>(context, branch, config.heads, shape.time));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeCpuAttention(CpuContext& context,
                                                        const AttentionLayer& config,
                                                        BatchShape shape, bool bf16) {
  return bf16 ? Make<Bf16>(context, config, shape) : Make<float>(context, config, shape);
}

}  // namespace penstock
