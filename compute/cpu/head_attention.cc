#include "compute/cpu/head_attention.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/product.h"

namespace penstock {
namespace {

class F32HeadAttention : public HeadAttention {
 public:
  F32HeadAttention(const Kernels& kernels, const HeadShape& shape)
      : kernels_(kernels),
        workspace_bytes_(kernels.attention_workspace(shape.queries, shape.keys, shape.size) *
                         static_cast<int64_t>(sizeof(float))) {}

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  void Forward(const AttentionHead& head, float* output, int64_t output_stride, float* log_sums,
               int /*thread*/, void* workspace) const override {
    kernels_.attention(head, output, output_stride, log_sums, static_cast<float*>(workspace));
  }

  void Backward(const AttentionHead& head, const float* incoming, int64_t incoming_stride,
                const float* log_sums, const AttentionHeadGradient& gradient, int /*thread*/,
                void* workspace) const override {
    kernels_.attention_gradient(head, incoming, incoming_stride, log_sums, gradient,
                                static_cast<float*>(workspace));
  }

 private:
  const Kernels& kernels_;
  const int64_t workspace_bytes_;
};

// Queries and keys of a block. Larger blocks have faster products, and more that no query sees.
constexpr int64_t kBlock = 128;

int64_t ToBlocks(int64_t rows) { return (rows + kBlock - 1) / kBlock * kBlock; }

// Keys that the queries of a block may see, in whole blocks.
int64_t KeysOfBlock(int64_t keys, int64_t window) {
  return window == 0 ? ToBlocks(keys) : std::min(ToBlocks(keys), ToBlocks(window) + 2 * kBlock);
}

// Keys and queries are padded with zeros to whole blocks.
class Bf16HeadAttention : public HeadAttention {
 public:
  Bf16HeadAttention(const Kernels& kernels, int64_t size) : kernels_(kernels), size_(size) {}

  absl::Status Init(const HeadShape& shape, int threads) {
    for (int thread = 0; thread < threads; ++thread) {
      PENSTOCK_ASSIGN_OR_RETURN(Products made, MakeProducts());
      products_.push_back(std::move(made));
    }
    LayOut(shape);
    return absl::OkStatus();
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  void Forward(const AttentionHead& head, float* output, int64_t output_stride, float* log_sums,
               int thread, void* workspace) const override {
    const Products& products = products_[thread];
    void* const scratch = product_scratch_.in(workspace);
    PackForBoth(head, workspace);
    float* const scores = scores_.in(workspace);
    Bf16* const weights = weights_.in(workspace);
    float inverse_sums[kBlock];
    ForBlocks(head, [&](const AttentionScores& block) {
      ForKeys(block, [&](int64_t key) {
        products.scores.Run(QueriesAt(block.first, workspace), keys_.in(workspace) + key * size_,
                            scores + block.At(0, key), scratch);
      });
      kernels_.attention_weights(head, block, scores, weights, log_sums + block.first,
                                 inverse_sums);
      float* const mixed = ZeroMixed(workspace);
      ForKeys(block, [&](int64_t key) {
        products.mix.Run(weights + block.At(0, key), values_.in(workspace) + key * size_, mixed,
                         scratch);
      });
      for (int64_t r = 0; r < block.rows; ++r) {
        float* const to = output + (block.first + r) * output_stride;
        for (int64_t c = 0; c < size_; ++c) to[c] = mixed[r * size_ + c] * inverse_sums[r];
      }
    });
  }

  void Backward(const AttentionHead& head, const float* incoming, int64_t incoming_stride,
                const float* log_sums, const AttentionHeadGradient& gradient, int thread,
                void* workspace) const override {
    const Products& products = products_[thread];
    void* const scratch = product_scratch_.in(workspace);
    PackForBoth(head, workspace);
    Bf16* const outgoing = outgoing_.in(workspace);
    kernels_.rows_to_bf16(head.queries, ToBlocks(head.queries), size_, {incoming, incoming_stride},
                          outgoing);
    float* const key_sums = key_sums_.in(workspace);
    float* const value_sums = value_sums_.in(workspace);
    float* const scores = scores_.in(workspace);
    float* const weight_gradients = weight_gradients_.in(workspace);
    Bf16* const weights = weights_.in(workspace);
    Bf16* const score_gradients = score_gradients_.in(workspace);
    std::fill_n(key_sums, ToBlocks(head.keys) * size_, 0.0f);
    std::fill_n(value_sums, ToBlocks(head.keys) * size_, 0.0f);
    ForBlocks(head, [&](const AttentionScores& block) {
      const Bf16* const queries = QueriesAt(block.first, workspace);
      const Bf16* const outgoing_rows = outgoing + block.first * size_;
      ForKeys(block, [&](int64_t key) {
        const int64_t at = block.At(0, key);
        products.scores.Run(queries, keys_.in(workspace) + key * size_, scores + at, scratch);
        products.scores.Run(outgoing_rows, values_.in(workspace) + key * size_,
                            weight_gradients + at, scratch);
      });
      kernels_.attention_weight_gradients(head, block, scores, weight_gradients,
                                          log_sums + block.first, weights, score_gradients);
      float* const mixed = ZeroMixed(workspace);
      ForKeys(block, [&](int64_t key) {
        const int64_t at = block.At(0, key);
        ZeroRowsFrom(block.rows, weights + at);
        ZeroRowsFrom(block.rows, score_gradients + at);
        if (gradient.value.data != nullptr) {
          products.to_keys.Run(weights + at, outgoing_rows, value_sums + key * size_, scratch);
        }
        if (gradient.key.data != nullptr) {
          products.to_keys.Run(score_gradients + at, queries, key_sums + key * size_, scratch);
        }
        if (gradient.query.data != nullptr) {
          products.mix.Run(score_gradients + at, keys_.in(workspace) + key * size_, mixed, scratch);
        }
      });
      if (gradient.query.data == nullptr) return;
      for (int64_t r = 0; r < block.rows; ++r) {
        std::copy_n(mixed + r * size_, size_, gradient.query.row(block.first + r));
      }
    });
    const auto unpack = [&](const float* sums, Strided<float> to) {
      for (int64_t k = 0; to.data != nullptr && k < head.keys; ++k) {
        if (gradient.adds_to_keys) {
          kernels_.add_into(size_, sums + k * size_, to.row(k));
        } else {
          std::copy_n(sums + k * size_, size_, to.row(k));
        }
      }
    };
    unpack(key_sums, gradient.key);
    unpack(value_sums, gradient.value);
  }

 private:
  // Of one thread.
  struct Products {
    std::unique_ptr<CpuContext> context;
    MatrixProduct scores;   // [queries, keys] = [queries, size] [keys, size]^T
    MatrixProduct mix;      // [queries, size] += [queries, keys] [keys, size]
    MatrixProduct to_keys;  // [keys, size] += [queries, keys]^T [queries, size]
  };

  absl::StatusOr<Products> MakeProducts() const {
    Products products;
    products.context = std::make_unique<CpuContext>(/*thread_count=*/1, kernels_);
    const auto make = [&](const ProductShape& shape) {
      return MatrixProduct::Create(*products.context, shape, dnnl::memory::data_type::bf16,
                                   Primitive::ScratchOf::kCaller);
    };
    PENSTOCK_ASSIGN_OR_RETURN(
        products.scores,
        make({.rows = kBlock, .columns = kBlock, .inner = size_, .transposed_right = true}));
    PENSTOCK_ASSIGN_OR_RETURN(
        products.mix,
        make({.rows = kBlock, .columns = size_, .inner = kBlock, .accumulate = true}));
    PENSTOCK_ASSIGN_OR_RETURN(products.to_keys, make({.rows = kBlock,
                                                      .columns = size_,
                                                      .inner = kBlock,
                                                      .transposed_left = true,
                                                      .accumulate = true}));
    return products;
  }

  void LayOut(const HeadShape& shape) {
    const int64_t padded_queries = ToBlocks(shape.queries);
    const int64_t padded_keys = ToBlocks(shape.keys);
    const int64_t scores = kBlock * KeysOfBlock(shape.keys, shape.window);
    const Products& products = products_.front();
    BlockLayout workspace;
    queries_ = workspace.Add<Bf16>(padded_queries * size_);
    outgoing_ = workspace.Add<Bf16>(padded_queries * size_);
    keys_ = workspace.Add<Bf16>(padded_keys * size_);
    values_ = workspace.Add<Bf16>(padded_keys * size_);
    key_sums_ = workspace.Add<float>(padded_keys * size_);
    value_sums_ = workspace.Add<float>(padded_keys * size_);
    scores_ = workspace.Add<float>(scores);
    weight_gradients_ = workspace.Add<float>(scores);
    weights_ = workspace.Add<Bf16>(scores);
    score_gradients_ = workspace.Add<Bf16>(scores);
    mixed_ = workspace.Add<float>(kBlock * size_);
    product_scratch_ =
        workspace.Add<char>(std::max({products.scores.scratch_bytes(), products.mix.scratch_bytes(),
                                      products.to_keys.scratch_bytes()}));
    workspace_bytes_ = workspace.size_bytes();
  }

  const Bf16* QueriesAt(int64_t first, void* workspace) const {
    return queries_.in(workspace) + first * size_;
  }

  void PackForBoth(const AttentionHead& head, void* workspace) const {
    kernels_.rows_to_bf16(head.queries, ToBlocks(head.queries), size_, head.query,
                          queries_.in(workspace));
    const int64_t padded = ToBlocks(head.keys);
    kernels_.rows_to_bf16(head.keys, padded, size_, head.key, keys_.in(workspace));
    kernels_.rows_to_bf16(head.keys, padded, size_, head.value, values_.in(workspace));
  }

  float* ZeroMixed(void* workspace) const {
    float* const mixed = mixed_.in(workspace);
    std::fill_n(mixed, kBlock * size_, 0.0f);
    return mixed;
  }

  // What lies in the rows of a block behind the head's last query takes part in sums over queries.
  void ZeroRowsFrom(int64_t rows, Bf16* block) const {
    std::memset(block + rows * kBlock, 0, (kBlock - rows) * kBlock * sizeof(Bf16));
  }

  // body(block) for each block of queries, with the blocks of keys that any of them sees.
  template <typename Body>
  void ForBlocks(const AttentionHead& head, Body body) const {
    for (int64_t first = 0; first < head.queries; first += kBlock) {
      const int64_t rows = std::min(kBlock, head.queries - first);
      body(AttentionScores{.first = first,
                           .rows = rows,
                           .begin = head.seen_begin(first) / kBlock * kBlock,
                           .end = ToBlocks(head.seen_end(first + rows - 1)),
                           .block = kBlock});
    }
  }

  template <typename Body>
  void ForKeys(const AttentionScores& block, Body body) const {
    for (int64_t key = block.begin; key < block.end; key += kBlock) body(key);
  }

  const Kernels& kernels_;
  const int64_t size_;
  std::vector<Products> products_;          // by thread
  Place<Bf16> queries_, outgoing_;          // [padded queries, size]
  Place<Bf16> keys_, values_;               // [padded keys, size]
  Place<float> key_sums_, value_sums_;      // [padded keys, size]
  Place<float> scores_, weight_gradients_;  // [queries of a block, padded keys]
  Place<Bf16> weights_, score_gradients_;   // [queries of a block, padded keys]
  Place<char> product_scratch_;
  Place<float> mixed_;  // [queries of a block, size]
  int64_t workspace_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HeadAttention>> MakeHeadAttention(const CpuContext& context,
                                                                 const HeadShape& shape,
                                                                 bool bf16) {
  // Smaller heads are faster in f32, and so are those of which a query sees a small part of a square.
  const bool is_small = shape.queries < kBlock || shape.keys < kBlock;
  const bool sees_few = shape.window > 0 && shape.window < 2 * kBlock;
  if (!bf16 || is_small || sees_few) {
    return std::make_unique<F32HeadAttention>(context.kernels, shape);
  }
  auto made = std::make_unique<Bf16HeadAttention>(context.kernels, shape.size);
  PENSTOCK_RETURN_IF_ERROR(made->Init(shape, context.threads.count()));
  return made;
}

}  // namespace penstock
