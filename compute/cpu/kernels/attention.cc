// Causal attention of one head and its gradient, a block of queries after the other. The forward pass
// keeps the logarithm of each row's sum, from which the backward pass computes the probabilities again:
// Dao et al., "FlashAttention", arXiv 2205.14135.
//
// Queries, keys and values are first packed, padded with zeros, so that the products run on whole tiles.
// A strip of queries computes no more than the keys it may see, rounded up to a tile.
#include <math.h>

#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/tile.h"

namespace penstock::PENSTOCK_ISA {
namespace {

constexpr int64_t kBlockQueries = 64;
static_assert(kBlockQueries % kTileRows == 0 && kTileColumns % kTileRows == 0);

// Says how a head's operands are padded.
struct Padding {
  Padding(int64_t head_time, int64_t head_size)
      : time(RoundUp(head_time, kTileColumns)), size(RoundUp(head_size, kLanes)) {}
  int64_t time, size;

  int64_t rows_floats() const { return time * size; }             // [time, size]
  int64_t scores_floats() const { return kBlockQueries * time; }  // [queries of a block, time]
  int64_t block_floats() const { return kBlockQueries * size; }
};

// Hands out a thread's workspace piece by piece.
class Pieces {
 public:
  explicit Pieces(float* workspace) : next_(workspace) {}
  float* Take(int64_t floats) {
    float* const piece = next_;
    next_ += floats;
    return piece;
  }

 private:
  float* next_;
};

// to [padding.time, padding.size] = factor * from [time, size].
PENSTOCK_INLINE void PackRows(const AttentionHead& head, const Padding& padding, const float* from,
                              int64_t stride, float factor, float* to) {
  for (int64_t t = 0; t < head.time; ++t) {
    float* const row = to + t * padding.size;
    ForVectors(head.size, [&](int64_t c, auto lanes) {
      Store(Load(from + t * stride + c, lanes) * factor, row + c, All());
    });
  }
  Fill((padding.time - head.time) * padding.size, 0.0f, to + head.time * padding.size);
}

// The transpose, in panels of kTileColumns time steps: panel p is [size, kTileColumns].
PENSTOCK_INLINE void PackPanels(const AttentionHead& head, const Padding& padding,
                                const float* from, int64_t stride, float* to) {
  for (int64_t first = 0; first < padding.time; first += kTileColumns) {
    float* const panel = to + first * head.size;
    for (int64_t t = 0; t < kTileColumns; ++t) {
      const float* const row = from + (first + t) * stride;
      const bool inside = first + t < head.time;
      for (int64_t c = 0; c < head.size; ++c) {
        panel[c * kTileColumns + t] = inside ? row[c] : 0.0f;
      }
    }
  }
}

PENSTOCK_INLINE void UnpackRow(int64_t size, const float* from, float factor, float* to) {
  ForVectors(size,
             [&](int64_t c, auto lanes) { Store(Load(from + c, All()) * factor, to + c, lanes); });
}

// A block of queries: rows first .. first + rows of the head.
struct Block {
  int64_t first, rows;
  int64_t strips_end() const { return RoundUp(rows, kTileRows); }
  // Keys a strip of rows meets, whole tiles' rows: those after its last query are masked.
  int64_t limit(int64_t strip) const { return first + strip + kTileRows; }
};

// scores [rows, time] = left panels, for the keys each strip may see (and the rest of their panel).
PENSTOCK_INLINE void Scores(const Block& block, const Padding& padding, int64_t size,
                            const float* left, const float* panels, float* scores) {
  for (int64_t key = 0; key < block.first + block.rows; key += kTileColumns) {
    for (int64_t strip = 0; strip < block.strips_end(); strip += kTileRows) {
      if (block.limit(strip) > key) {
        Tile<kTileVectors, Write::kOver>(
            {left + (block.first + strip) * padding.size, padding.size, 1},
            {panels + key * size, kTileColumns}, size, scores + strip * padding.time + key,
            padding.time);
      }
    }
  }
}

// result [rows, size] = weights right, summed over the keys each strip may see.
PENSTOCK_INLINE void MixKeys(const Block& block, const Padding& padding, const float* weights,
                             const float* right, float* result) {
  for (int64_t strip = 0; strip < block.strips_end(); strip += kTileRows) {
    Strip<Write::kOver>({weights + strip * padding.time, padding.time, 1}, {right, padding.size},
                        padding.size, block.limit(strip), result + strip * padding.size,
                        padding.size);
  }
}

// sums [time, size] += weights^T right, over the block's queries that may see each strip of keys.
PENSTOCK_INLINE void AddToKeys(const Block& block, const Padding& padding, const float* weights,
                               const float* right, float* sums) {
  for (int64_t key = 0; key < block.first + block.rows; key += kTileRows) {
    const int64_t from = key > block.first ? key - block.first : 0;
    Strip<Write::kAdd>({weights + from * padding.time + key, 1, padding.time},
                       {right + (block.first + from) * padding.size, padding.size}, padding.size,
                       block.rows - from, sums + key * padding.size, padding.size);
  }
}

PENSTOCK_INLINE float RowMax(const float* row, int64_t count) {
  Floats largest = Broadcast(row[0]);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    largest = Max(largest, Load(row + c, All()));
  }
  float result = MaxLane(largest);
  for (; c < count; ++c) {
    result = row[c] > result ? row[c] : result;
  }
  return result;
}

// Zeroes the lanes of a partial vector that do not take part.
PENSTOCK_INLINE Floats Masked(Floats values, All) { return values; }
PENSTOCK_INLINE Floats Masked(Floats values, First lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    values[lane] = lane < lanes.count ? values[lane] : 0.0f;
  }
  return values;
}

// row -> exp(row - shift). Returns the sum.
PENSTOCK_INLINE float ExpRow(float* row, int64_t count, float shift) {
  Floats sum = {};
  ForVectors(count, [&](int64_t c, auto lanes) {
    const Floats value = Masked(Exp(Load(row + c, lanes) - shift), lanes);
    Store(value, row + c, lanes);
    sum += value;
  });
  return SumLanes(sum);
}

// probabilities p = exp(scores - log_sum); gradients g -> p (g - sum of p g).
PENSTOCK_INLINE void SoftmaxGradientRow(int64_t count, float log_sum, float* scores,
                                        float* gradients) {
  Floats products = {};
  ForVectors(count, [&](int64_t c, auto lanes) {
    const Floats probability = Exp(Load(scores + c, lanes) - log_sum);
    Store(probability, scores + c, lanes);
    products += probability * Load(gradients + c, lanes);  // absent lanes add zero
  });
  const float dot = SumLanes(products);
  ForVectors(count, [&](int64_t c, auto lanes) {
    Store(Load(scores + c, lanes) * (Load(gradients + c, lanes) - dot), gradients + c, lanes);
  });
}

template <typename Body>
PENSTOCK_INLINE void ForBlocks(const AttentionHead& head, Body body) {
  for (int64_t first = 0; first < head.time; first += kBlockQueries) {
    const int64_t rest = head.time - first;
    body(Block{first, rest < kBlockQueries ? rest : kBlockQueries});
  }
}

}  // namespace

int64_t AttentionWorkspace(int64_t time, int64_t size) {
  const Padding padding(time, size);
  // The gradient takes the most: seven operands, two blocks of scores, one block of results.
  return 7 * padding.rows_floats() + 2 * padding.scores_floats() + padding.block_floats();
}

void Attention(const AttentionHead& head, float* output, int64_t output_stride, float* log_sums,
               float* workspace) {
  const Padding padding(head.time, head.size);
  Pieces pieces(workspace);
  float* const queries = pieces.Take(padding.rows_floats());
  float* const key_panels = pieces.Take(padding.rows_floats());
  float* const values = pieces.Take(padding.rows_floats());
  float* const scores = pieces.Take(padding.scores_floats());
  float* const mixed = pieces.Take(padding.block_floats());
  PackRows(head, padding, head.query, head.stride, head.scale, queries);
  PackPanels(head, padding, head.key, head.stride, key_panels);
  PackRows(head, padding, head.value, head.stride, 1.0f, values);

  ForBlocks(head, [&](const Block& block) {
    float inverse_sums[kBlockQueries];
    Scores(block, padding, head.size, queries, key_panels, scores);
    for (int64_t r = 0; r < block.rows; ++r) {
      float* const row = scores + r * padding.time;
      const int64_t visible = block.first + r + 1;
      const float largest = RowMax(row, visible);
      const float sum = ExpRow(row, visible, largest);
      Fill(block.limit(r / kTileRows * kTileRows) - visible, 0.0f, row + visible);
      log_sums[block.first + r] = largest + logf(sum);
      inverse_sums[r] = 1.0f / sum;
    }
    MixKeys(block, padding, scores, values, mixed);
    for (int64_t r = 0; r < block.rows; ++r) {
      UnpackRow(head.size, mixed + r * padding.size, inverse_sums[r],
                output + (block.first + r) * output_stride);
    }
  });
}

void AttentionGradient(const AttentionHead& head, const float* incoming, int64_t incoming_stride,
                       const float* log_sums, const AttentionHeadGradient& gradient,
                       float* workspace) {
  const Padding padding(head.time, head.size);
  Pieces pieces(workspace);
  float* const queries = pieces.Take(padding.rows_floats());
  float* const keys = pieces.Take(padding.rows_floats());
  float* const key_panels = pieces.Take(padding.rows_floats());
  float* const value_panels = pieces.Take(padding.rows_floats());
  float* const outgoing = pieces.Take(padding.rows_floats());
  float* const key_sums = pieces.Take(padding.rows_floats());
  float* const value_sums = pieces.Take(padding.rows_floats());
  float* const scores = pieces.Take(padding.scores_floats());
  float* const score_gradients = pieces.Take(padding.scores_floats());
  float* const mixed = pieces.Take(padding.block_floats());
  // Scaled queries give scaled scores, and carry the scale into the keys' gradient.
  PackRows(head, padding, head.query, head.stride, head.scale, queries);
  PackRows(head, padding, head.key, head.stride, 1.0f, keys);
  PackPanels(head, padding, head.key, head.stride, key_panels);
  PackPanels(head, padding, head.value, head.stride, value_panels);
  PackRows(head, padding, incoming, incoming_stride, 1.0f, outgoing);
  Fill(padding.rows_floats(), 0.0f, key_sums);
  Fill(padding.rows_floats(), 0.0f, value_sums);

  ForBlocks(head, [&](const Block& block) {
    Scores(block, padding, head.size, queries, key_panels, scores);
    Scores(block, padding, head.size, outgoing, value_panels, score_gradients);
    for (int64_t r = 0; r < block.rows; ++r) {
      float* const row = scores + r * padding.time;
      float* const row_gradient = score_gradients + r * padding.time;
      const int64_t visible = block.first + r + 1;
      const int64_t masked = block.limit(r / kTileRows * kTileRows) - visible;
      SoftmaxGradientRow(visible, log_sums[block.first + r], row, row_gradient);
      Fill(masked, 0.0f, row + visible);
      Fill(masked, 0.0f, row_gradient + visible);
    }
    AddToKeys(block, padding, scores, outgoing, value_sums);
    AddToKeys(block, padding, score_gradients, queries, key_sums);
    MixKeys(block, padding, score_gradients, keys, mixed);
    for (int64_t r = 0; r < block.rows; ++r) {
      UnpackRow(head.size, mixed + r * padding.size, head.scale,
                gradient.query + (block.first + r) * gradient.stride);
    }
  });
  for (int64_t t = 0; t < head.time; ++t) {
    UnpackRow(head.size, key_sums + t * padding.size, 1.0f, gradient.key + t * gradient.stride);
    UnpackRow(head.size, value_sums + t * padding.size, 1.0f, gradient.value + t * gradient.stride);
  }
}

}  // namespace penstock::PENSTOCK_ISA
