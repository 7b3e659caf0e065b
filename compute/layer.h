// Layer: the kernels of one layer, with the three passes separately callable.
//
// Forward leaves in `stash` what the backward passes need; BackwardInput leaves in `weight_stash`
// what BackwardWeight needs (typically the gradients of the outputs of its linear maps), so that W may
// run later than I, or be left out of a frozen layer. Sizes are fixed per microbatch shape. The
// stash of F is kept until after W.
//
// Weights and gradients are flat: parameter p of the layer starts at offsets[p] (floats, a multiple
// of 16) after the given base; the stage's arena owns them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "compute/tensor.h"

namespace penstock {

// Where randomness of a pass comes from: the same numbers for the same job, sample and layer,
// whatever the partition.
struct PassContext {
  uint64_t seed = 0;
  int layer_index = 0;        // in the chain
  int64_t first_sample = 0;   // global index of row 0
  bool training = true;       // false: no dropout, nothing is stashed
};

// Read-only parameters of one layer at one version. `bf16` mirrors `f32` element by element when the
// precision is kBf16, else it is null.
struct LayerWeights {
  const float* f32 = nullptr;
  const uint16_t* bf16 = nullptr;
  const int64_t* offsets = nullptr;  // by parameter of the LayerSpec
};

struct LayerGradients {
  float* f32 = nullptr;  // accumulated into (+=), never overwritten
  const int64_t* offsets = nullptr;
};

class Layer {
 public:
  virtual ~Layer() = default;

  virtual int64_t stash_bytes() const = 0;         // per microbatch, from F to W
  virtual int64_t weight_stash_bytes() const = 0;  // per microbatch, from I to W

  // input: [batch, time, width] f32, or token ids [batch, time] i32 for the embedding.
  // output: [batch, time, width] f32; the head writes the mean loss of the microbatch (one f32).
  // targets: [batch, time] i32, read by the head only.
  virtual void Forward(const PassContext& context, const LayerWeights& weights, const Tensor& input,
                       const Tensor& targets, const Tensor& output, void* stash) = 0;

  // grad_output: as output; for the head it is the factor by which the mean loss is scaled (a host
  // number in `loss_scale`), and the tensor is empty. grad_input: as input; empty for the embedding.
  virtual void BackwardInput(const PassContext& context, const LayerWeights& weights,
                             const Tensor& grad_output, float loss_scale, const Tensor& grad_input,
                             void* stash, void* weight_stash) = 0;

  // Adds the microbatch's gradients to `gradients`.
  virtual void BackwardWeight(const PassContext& context, const LayerWeights& weights,
                              const LayerGradients& gradients, void* stash, void* weight_stash) = 0;
};

}  // namespace penstock
