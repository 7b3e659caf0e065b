// Attention of one head and its gradient, a block of queries after the other. The forward pass
// keeps the logarithm of each row's sum, from which the backward pass computes the probabilities again:
// Dao et al., "FlashAttention", arXiv 2205.14135.
//
// Queries, keys and values are first packed, padded with zeros, so that the products run on whole tiles.
// A strip of queries computes no more than the keys it may see, rounded to tiles at both ends.
#include <math.h>

#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/softmax.h"
#include "compute/cpu/kernels/tile.h"

namespace penstock::PENSTOCK_ISA {
namespace {

constexpr int64_t kBlockQueries = 64;
static_assert(kBlockQueries % kTileRows == 0 && kTileColumns % kTileRows == 0);

// Says how a head's operands are padded.
struct Padding {
  Padding(int64_t head_queries, int64_t head_keys, int64_t head_size)
      : queries(RoundUp(head_queries, kTileColumns)),
        keys(RoundUp(head_keys, kTileColumns)),
        size(RoundUp(head_size, kLanes)) {}
  explicit Padding(const AttentionHead& head) : Padding(head.queries, head.keys, head.size) {}
  int64_t queries, keys, size;

  int64_t query_floats() const { return queries * size; }
  int64_t key_floats() const { return keys * size; }
  int64_t scores_floats() const { return kBlockQueries * keys; }  // [queries of a block, keys]
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

// to [padded, padded size] = factor * from [rows, size].
PENSTOCK_INLINE void PackRows(int64_t rows, int64_t padded, int64_t size, Strided<const float> from,
                              float factor, float* to) {
  const int64_t padded_size = RoundUp(size, kLanes);
  for (int64_t r = 0; r < rows; ++r) {
    float* const row = to + r * padded_size;
    ForVectors(size, [&](int64_t c, auto lanes) {
      Store(Load(from.row(r) + c, lanes) * factor, row + c, All());
    });
  }
  Fill((padded - rows) * padded_size, 0.0f, to + rows * padded_size);
}

// The transpose of keys or values, in panels of kTileColumns of them: panel p is [size, kTileColumns].
PENSTOCK_INLINE void PackPanels(const AttentionHead& head, const Padding& padding,
                                Strided<const float> from, float* to) {
  for (int64_t first = 0; first < padding.keys; first += kTileColumns) {
    float* const panel = to + first * head.size;
    for (int64_t t = 0; t < kTileColumns; ++t) {
      const float* const row = from.row(first + t);
      const bool inside = first + t < head.keys;
      for (int64_t c = 0; c < head.size; ++c) {
        panel[c * kTileColumns + t] = inside ? row[c] : 0.0f;
      }
    }
  }
}

template <Write kWrite = Write::kOver>
PENSTOCK_INLINE void UnpackRow(int64_t size, const float* from, float factor, float* to) {
  ForVectors(size, [&](int64_t c, auto lanes) {
    const Floats values = Load(from + c, All()) * factor;
    Store(kWrite == Write::kAdd ? Load(to + c, lanes) + values : values, to + c, lanes);
  });
}

// A block of queries: rows first .. first + rows of the head.
struct Block {
  const AttentionHead& head;
  int64_t first, rows;

  int64_t strips_end() const { return RoundUp(rows, kTileRows); }
  // Keys a row sees.
  int64_t seen_begin(int64_t row) const { return head.seen_begin(first + row); }
  int64_t seen_end(int64_t row) const { return head.seen_end(first + row); }
  // Keys a strip of rows meets, whole tiles' rows: those that its queries do not see are masked.
  int64_t strip_begin(int64_t strip) const { return seen_begin(strip) / kTileRows * kTileRows; }
  int64_t strip_end(int64_t strip) const {
    const int64_t all = RoundUp(head.keys, kTileRows);
    return head.causal ? Smaller(first + strip + kTileRows, all) : all;
  }
  // Keys any of its rows sees.
  int64_t keys_begin() const { return strip_begin(0); }
  int64_t keys_end() const { return seen_end(rows - 1); }
  // Rows that see a key of the strip that begins at `key`.
  int64_t FirstRowOf(int64_t key) const { return head.causal && key > first ? key - first : 0; }
  int64_t EndRowOf(int64_t key) const {
    const int64_t end =
        head.window == 0 ? rows : Smaller(rows, key + kTileRows - 1 + head.window - first);
    if (head.starts == nullptr) return end;
    // Strips whose keys begin later have no scores there.
    int64_t strip = RoundUp(end, kTileRows) - kTileRows;
    while (strip_begin(strip) > key) strip -= kTileRows;
    return Smaller(end, strip + kTileRows);
  }

 private:
  static int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

// scores [rows, keys] = left panels, for the keys each strip may see (and the rest of their panel).
PENSTOCK_INLINE void Scores(const Block& block, const Padding& padding, int64_t size,
                            const float* left, const float* panels, float* scores) {
  const int64_t first_panel = block.keys_begin() / kTileColumns * kTileColumns;
  for (int64_t key = first_panel; key < block.keys_end(); key += kTileColumns) {
    for (int64_t strip = 0; strip < block.strips_end(); strip += kTileRows) {
      if (block.strip_end(strip) > key && block.strip_begin(strip) < key + kTileColumns) {
        Tile<kTileVectors, Write::kOver>(
            {left + (block.first + strip) * padding.size, padding.size, 1},
            {panels + key * size, kTileColumns}, size, scores + strip * padding.keys + key,
            padding.keys);
      }
    }
  }
}

// result [rows, size] = weights right, summed over the keys each strip may see.
PENSTOCK_INLINE void MixKeys(const Block& block, const Padding& padding, const float* weights,
                             const float* right, float* result) {
  for (int64_t strip = 0; strip < block.strips_end(); strip += kTileRows) {
    const int64_t begin = block.strip_begin(strip);
    Strip<Write::kOver>({weights + strip * padding.keys + begin, padding.keys, 1},
                        {right + begin * padding.size, padding.size}, padding.size,
                        block.strip_end(strip) - begin, result + strip * padding.size,
                        padding.size);
  }
}

// sums [keys, size] += weights^T right, over the block's queries that may see each strip of keys.
PENSTOCK_INLINE void AddToKeys(const Block& block, const Padding& padding, const float* weights,
                               const float* right, float* sums) {
  for (int64_t key = block.keys_begin(); key < block.keys_end(); key += kTileRows) {
    const int64_t from = block.FirstRowOf(key);
    Strip<Write::kAdd>({weights + from * padding.keys + key, 1, padding.keys},
                       {right + (block.first + from) * padding.size, padding.size}, padding.size,
                       block.EndRowOf(key) - from, sums + key * padding.size, padding.size);
  }
}

// Zeros to what a strip meets of a row of scores but the row does not see.
PENSTOCK_INLINE void Mask(const Block& block, int64_t row, float* scores) {
  const int64_t strip = row / kTileRows * kTileRows;
  const auto fill = [scores](int64_t begin, int64_t end) {
    if (begin < end) Fill(end - begin, 0.0f, scores + begin);
  };
  fill(block.strip_begin(strip), block.seen_begin(row));
  fill(block.seen_end(row), block.strip_end(strip));
}

// body(place, count) for the pieces of a row of scores between two keys, one in each square.
template <typename Body>
PENSTOCK_INLINE void ForPieces(const AttentionScores& of, int64_t row, int64_t begin, int64_t end,
                               Body body) {
  for (int64_t key = begin; key < end;) {
    const int64_t square_end = (key / of.block + 1) * of.block;
    const int64_t piece_end = square_end < end ? square_end : end;
    body(of.At(row, key), piece_end - key);
    key = piece_end;
  }
}

// Zeros to what a row of `to` has outside of the keys begin .. end.
PENSTOCK_INLINE void ZeroUnseen(const AttentionScores& of, int64_t row, int64_t begin, int64_t end,
                                Bf16* to) {
  const auto zero = [&](int64_t place, int64_t count) {
    __builtin_memset(to + place, 0, count * sizeof(Bf16));
  };
  ForPieces(of, row, of.begin, begin, zero);
  ForPieces(of, row, end > of.begin ? end : of.begin, of.end, zero);
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
  for (int64_t first = 0; first < head.queries; first += kBlockQueries) {
    const int64_t rest = head.queries - first;
    body(Block{head, first, rest < kBlockQueries ? rest : kBlockQueries});
  }
}

}  // namespace

int64_t AttentionWorkspace(int64_t queries, int64_t keys, int64_t size) {
  const Padding padding(queries, keys, size);
  // The gradient takes the most: seven operands, two blocks of scores, one block of results.
  return 2 * padding.query_floats() + 5 * padding.key_floats() + 2 * padding.scores_floats() +
         padding.block_floats();
}

void Attention(const AttentionHead& head, float* output, int64_t output_stride, float* log_sums,
               float* workspace) {
  const Padding padding(head);
  Pieces pieces(workspace);
  float* const queries = pieces.Take(padding.query_floats());
  float* const key_panels = pieces.Take(padding.key_floats());
  float* const values = pieces.Take(padding.key_floats());
  float* const scores = pieces.Take(padding.scores_floats());
  float* const mixed = pieces.Take(padding.block_floats());
  PackRows(head.queries, padding.queries, head.size, head.query, head.scale, queries);
  PackPanels(head, padding, head.key, key_panels);
  PackRows(head.keys, padding.keys, head.size, head.value, 1.0f, values);

  ForBlocks(head, [&](const Block& block) {
    float inverse_sums[kBlockQueries];
    Scores(block, padding, head.size, queries, key_panels, scores);
    for (int64_t r = 0; r < block.rows; ++r) {
      float* const row = scores + r * padding.keys;
      float* const seen = row + block.seen_begin(r);
      const int64_t count = block.seen_end(r) - block.seen_begin(r);
      const float largest = count > 0 ? RowMax(seen, count) : 0.0f;
      const float sum = ExpRow(seen, count, largest);
      Mask(block, r, row);
      log_sums[block.first + r] = largest + logf(sum);
      inverse_sums[r] = count > 0 ? 1.0f / sum : 0.0f;
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
  const Padding padding(head);
  Pieces pieces(workspace);
  float* const queries = pieces.Take(padding.query_floats());
  float* const outgoing = pieces.Take(padding.query_floats());
  float* const keys = pieces.Take(padding.key_floats());
  float* const key_panels = pieces.Take(padding.key_floats());
  float* const value_panels = pieces.Take(padding.key_floats());
  float* const key_sums = pieces.Take(padding.key_floats());
  float* const value_sums = pieces.Take(padding.key_floats());
  float* const scores = pieces.Take(padding.scores_floats());
  float* const score_gradients = pieces.Take(padding.scores_floats());
  float* const mixed = pieces.Take(padding.block_floats());
  // Scaled queries give scaled scores, and carry the scale into the keys' gradient.
  PackRows(head.queries, padding.queries, head.size, head.query, head.scale, queries);
  PackRows(head.keys, padding.keys, head.size, head.key, 1.0f, keys);
  PackPanels(head, padding, head.key, key_panels);
  PackPanels(head, padding, head.value, value_panels);
  PackRows(head.queries, padding.queries, head.size, {incoming, incoming_stride}, 1.0f, outgoing);
  Fill(padding.key_floats(), 0.0f, key_sums);
  Fill(padding.key_floats(), 0.0f, value_sums);

  ForBlocks(head, [&](const Block& block) {
    Scores(block, padding, head.size, queries, key_panels, scores);
    Scores(block, padding, head.size, outgoing, value_panels, score_gradients);
    for (int64_t r = 0; r < block.rows; ++r) {
      float* const row = scores + r * padding.keys;
      float* const row_gradient = score_gradients + r * padding.keys;
      const int64_t begin = block.seen_begin(r);
      SoftmaxGradientRow(block.seen_end(r) - begin, log_sums[block.first + r], row + begin,
                         row_gradient + begin);
      Mask(block, r, row);
      Mask(block, r, row_gradient);
    }
    AddToKeys(block, padding, scores, outgoing, value_sums);
    AddToKeys(block, padding, score_gradients, queries, key_sums);
    if (gradient.query.data == nullptr) return;
    MixKeys(block, padding, score_gradients, keys, mixed);
    for (int64_t r = 0; r < block.rows; ++r) {
      UnpackRow(head.size, mixed + r * padding.size, head.scale,
                gradient.query.row(block.first + r));
    }
  });
  const auto unpack = [&](const float* sums, Strided<float> to) {
    if (to.data == nullptr) return;
    for (int64_t k = 0; k < head.keys; ++k) {
      const float* const row = sums + k * padding.size;
      if (gradient.adds_to_keys) {
        UnpackRow<Write::kAdd>(head.size, row, 1.0f, to.row(k));
      } else {
        UnpackRow(head.size, row, 1.0f, to.row(k));
      }
    }
  };
  unpack(key_sums, gradient.key);
  unpack(value_sums, gradient.value);
}

void AttentionWeights(const AttentionHead& head, const AttentionScores& of, const float* scores,
                      Bf16* weights, float* log_sums, float* inverse_sums) {
  for (int64_t r = 0; r < of.rows; ++r) {
    const int64_t begin = head.seen_begin(of.first + r);
    const int64_t end = head.seen_end(of.first + r);
    if (begin == end) {
      ZeroUnseen(of, r, begin, end, weights);
      log_sums[r] = logf(0.0f);
      inverse_sums[r] = 0.0f;
      continue;
    }
    Floats maxima = Broadcast(scores[of.At(r, begin)]);
    ForPieces(of, r, begin, end, [&](int64_t place, int64_t count) {
      ForVectors(count, [&](int64_t c, auto lanes) {
        maxima = Max(maxima, LoadOr(scores + place + c, maxima, lanes));
      });
    });
    const float largest = MaxLane(maxima);
    Floats sums = {};
    ForPieces(of, r, begin, end, [&](int64_t place, int64_t count) {
      ForVectors(count, [&](int64_t c, auto lanes) {
        const Floats score = (Load(scores + place + c, lanes) - largest) * head.scale;
        const Floats weight = Masked(Exp(score), lanes);
        Store(weight, weights + place + c, lanes);
        sums += weight;
      });
    });
    ZeroUnseen(of, r, begin, end, weights);
    const float sum = SumLanes(sums);
    log_sums[r] = largest * head.scale + logf(sum);
    inverse_sums[r] = 1.0f / sum;
  }
}

void AttentionWeightGradients(const AttentionHead& head, const AttentionScores& of, float* scores,
                              const float* gradients, const float* log_sums, Bf16* weights,
                              Bf16* score_gradients) {
  for (int64_t r = 0; r < of.rows; ++r) {
    const int64_t begin = head.seen_begin(of.first + r);
    const int64_t end = head.seen_end(of.first + r);
    Floats products = {};
    ForPieces(of, r, begin, end, [&](int64_t place, int64_t count) {
      ForVectors(count, [&](int64_t c, auto lanes) {
        float* const score = scores + place + c;
        const Floats weight = Exp(Load(score, lanes) * head.scale - log_sums[r]);
        Store(weight, score, lanes);
        Store(weight, weights + place + c, lanes);
        products += weight * Load(gradients + place + c, lanes);  // absent lanes add zero
      });
    });
    const float dot = SumLanes(products);
    ForPieces(of, r, begin, end, [&](int64_t place, int64_t count) {
      ForVectors(count, [&](int64_t c, auto lanes) {
        const Floats gradient = Load(gradients + place + c, lanes) - dot;
        Store(Load(scores + place + c, lanes) * gradient * head.scale, score_gradients + place + c,
              lanes);
      });
    });
    ZeroUnseen(of, r, begin, end, weights);
    ZeroUnseen(of, r, begin, end, score_gradients);
  }
}

}  // namespace penstock::PENSTOCK_ISA
