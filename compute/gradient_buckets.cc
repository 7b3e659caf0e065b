#include "compute/gradient_buckets.h"

#include <algorithm>

#include "compute/tensor.h"

namespace penstock {
namespace {

// A gradient that the W of one layer adds to, up to the next one.
struct Piece {
  int64_t first = 0;
  int layer = 0;
};

// All of a stage's, by their places.
std::vector<Piece> PiecesOf(const ParameterArena& arena, LayerRange layers) {
  std::vector<Piece> pieces;
  for (int layer = 0; layer < layers.count; ++layer) {
    const std::vector<int64_t>& offsets = arena.gradient_offsets(layer);
    for (size_t p = 0; p < offsets.size(); ++p) {
      // A parameter of the frozen array has no gradient.
      if (!arena.is_apart(layer, static_cast<int>(p))) pieces.push_back({offsets[p], layer});
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.first < b.first; });
  return pieces;
}

}  // namespace

std::vector<GradientBucket> GradientBucketsOf(const ParameterArena& arena, LayerRange layers,
                                              int64_t bytes_min) {
  const int64_t all = arena.gradient_count();
  const int64_t floats_min =
      std::max(bytes_min / SizeOf(DType::kF32), (all + kBucketsMax - 1) / kBucketsMax);
  std::vector<GradientBucket> buckets;
  // Behind the layers' own gradients lie those of later uses; so from the end of the array on, where the pass begins.
  const std::vector<Piece> pieces = PiecesOf(arena, layers);
  GradientBucket open = {.first = all, .count = 0, .layer = layers.count};
  for (size_t i = pieces.size(); i-- > 0;) {
    const Piece& piece = pieces[i];
    open.count += open.first - piece.first;
    open.first = piece.first;
    open.layer = std::min(open.layer, piece.layer);
    // Layers are not cut in two.
    const bool ends_layer = i == 0 || pieces[i - 1].layer != piece.layer;
    if (!ends_layer || open.count < floats_min) continue;
    buckets.push_back(open);
    open = {.first = piece.first, .count = 0, .layer = layers.count};
  }
  // What is left is small: it joins the bucket that lies behind it.
  if (buckets.empty()) {
    buckets.push_back({.first = 0, .count = all, .layer = 0});
  } else {
    GradientBucket& last = buckets.back();
    last.count += last.first;
    last.first = 0;
    last.layer = std::min(last.layer, open.layer);
  }
  std::stable_sort(
      buckets.begin(), buckets.end(),
      [](const GradientBucket& a, const GradientBucket& b) { return a.layer > b.layer; });
  return buckets;
}

}  // namespace penstock
