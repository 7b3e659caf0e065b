// ParameterArena: where each parameter of a stage lies in its flat arrays.
//
// Weights, their bf16 mirror, gradients and optimizer state share one layout: layer after layer,
// parameter after parameter, each at a multiple of 16 floats (64 bytes). Two rules serve tied weights:
//
//  - the tied weight comes first, so that its gradient starts the gradient array and can be handed to
//    a reduction without a copy;
//  - when the embedding and the tied head are on the same stage, the head reads the embedding's weight,
//    but its gradient has an accumulator of its own behind all weights, so that the sum of the two uses
//    is the same number as when they are on two stages.
//
// A slice's identity is a digest of the parameter's name, so that the two uses of a tied weight share it.
//
// A value; immutable after it is built.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compute/optimizer.h"
#include "model/chain.h"

namespace penstock {

class ParameterArena {
 public:
  ParameterArena() = default;
  explicit ParameterArena(absl::Span<const LayerSpec> layers);

  int64_t weight_count() const { return weight_count_; }      // floats, with padding
  int64_t gradient_count() const { return gradient_count_; }  // weights, then a local tied head's

  // By parameter of the layer, in floats.
  const std::vector<int64_t>& weight_offsets(int layer) const { return weights_[layer]; }
  const std::vector<int64_t>& gradient_offsets(int layer) const { return gradients_[layer]; }
  // The parameters that the layer's part of an update changes, and its norm counts on one stage: all
  // but a tied head's that the embedding's layer has.
  absl::Span<const ParameterSlice> slices(int layer) const { return slices_[layer]; }

  // Floats of the tied weight at the start of the arrays; 0 if no use of it is here.
  int64_t tied_count() const { return tied_count_; }
  // Both uses are here: where the head's gradient is.
  bool both_uses() const { return gradient_count_ > weight_count_; }
  int64_t head_gradient_offset() const { return weight_count_; }

 private:
  int64_t weight_count_ = 0;
  int64_t gradient_count_ = 0;
  int64_t tied_count_ = 0;
  std::vector<std::vector<int64_t>> weights_;
  std::vector<std::vector<int64_t>> gradients_;
  std::vector<std::vector<ParameterSlice>> slices_;
};

}  // namespace penstock
