// ParameterArena: where each parameter of a stage lies in its flat arrays.
//
// Weights, their bf16 mirror, gradients and optimizer state share one layout: layer after layer,
// parameter after parameter, each at a multiple of 16 floats (64 bytes). Two rules serve parameters that are used
// more than once:
//
//  - the parameters of a tie (model/graph.h) lie beside each other, before those of single layers, so that their
//    gradients can be handed to a reduction without a copy;
//  - the second and later uses on one stage read the first's weight, but their gradients have accumulators of their
//    own behind all weights, so that the sum of the uses is the same number as when they are on several stages. Those
//    of one use of a tie lie beside each other, too.
//
// Frozen parameters (model/parameter_groups.h) have no accumulator and no optimizer's state, and lie in an array of their
// own, which all versions of the weights share. A node's kernels read one array, though, so those of a node that trains
// others lie behind the trained ones, in every version; its kernels add up gradients for them that nobody reads.
//
// A slice's identity is a digest of the parameter's name, so that all uses of a tied weight share it.
//
// A value; immutable after it is built.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compute/optimizer.h"
#include "model/graph.h"

namespace penstock {

class ParameterArena {
 public:
  // The accumulator of a second or later use: where it is, and where that of the use is to which it is added.
  struct Use {
    int64_t offset = 0;
    int64_t before = 0;
    int64_t count = 0;  // floats
  };

  // What a stage has of a tie, as if it were one tensor.
  struct TiedParameters {
    int64_t first = 0;  // where the weights are, and the gradient of the stage's first use
    int64_t last = 0;   // the gradient of its last use
    int64_t count = 0;  // floats, with padding; 0: the stage has no use
    std::vector<Use>
        uses;  // the later ones, in order; empty where all uses of the tie are on this stage
  };

  ParameterArena() = default;
  ParameterArena(const ModelGraph& model, LayerRange layers);

  // In floats, with padding: of a version, its first part that updates change, and the frozen array.
  int64_t weight_count() const { return weight_count_; }
  int64_t trained_count() const { return trained_count_; }
  int64_t frozen_count() const { return frozen_count_; }
  int64_t gradient_count() const { return gradient_count_; }  // weights, then later uses

  // By parameter of the layer, in floats; whether it is in the frozen array, where all parameters of a node are or none.
  const std::vector<int64_t>& weight_offsets(int layer) const { return weights_[layer]; }
  bool is_apart(int layer, int parameter) const { return apart_[layer][parameter]; }
  const std::vector<int64_t>& gradient_offsets(int layer) const { return gradients_[layer]; }
  // The parameters that the layer's part of an update changes, none of them frozen, and its norm counts on one stage: all
  // but those that an earlier layer of the stage has.
  absl::Span<const ParameterSlice> slices(int layer) const { return slices_[layer]; }
  // By slice: the layer of the model that it belongs to, which is before the stage where another stage has the first
  // use of a tie.
  absl::Span<const int> slice_owners(int layer) const { return slice_owners_[layer]; }
  // Frozen parameters: in every version, and in the frozen array.
  absl::Span<const ParameterSlice> kept_slices() const { return kept_slices_; }
  absl::Span<const ParameterSlice> apart_slices() const { return apart_slices_; }

  // By tie of the model.
  const TiedParameters& tied(int tie) const { return tied_[tie]; }
  // Of parameters whose uses are all on this stage. Adding each to the one before, from the last of these on, gives
  // the sum.
  absl::Span<const Use> later_uses() const { return later_uses_; }

 private:
  int64_t weight_count_ = 0;
  int64_t trained_count_ = 0;
  int64_t frozen_count_ = 0;
  int64_t gradient_count_ = 0;
  std::vector<std::vector<int64_t>> weights_;
  std::vector<std::vector<int64_t>> gradients_;
  std::vector<std::vector<bool>> apart_;
  std::vector<std::vector<ParameterSlice>> slices_;
  std::vector<std::vector<int>> slice_owners_;
  std::vector<ParameterSlice> kept_slices_;
  std::vector<ParameterSlice> apart_slices_;
  std::vector<TiedParameters> tied_;
  std::vector<Use> later_uses_;
};

}  // namespace penstock
