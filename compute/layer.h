// Layer: the kernels of one layer, with the three passes separately callable.
//
// A pass never depends on other layers, so results are the same for every partition. W may run any time
// after I, or never (a frozen layer). Passes leave data for one another in the microbatch's Tape, in
// blocks that differ in how long they live, so that memory goes back as early as the schedule allows:
//
//     stash          F .. I    what only the backward pass of the input needs
//     kept           F .. W    inputs of the linear maps
//     weight_stash   I .. W    gradients of the outputs of the linear maps
//
// Weights and gradients are flat: parameter p of the layer starts at offsets[p] (floats, a multiple
// of 16) after the given base; the stage owns them.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "compute/tensor.h"

namespace penstock {

// Where the randomness of a pass comes from: the same numbers for the same job, sample and layer,
// whatever the partition.
struct PassContext {
  uint64_t seed = 0;
  int layer_index = 0;       // in the chain
  int64_t first_sample = 0;  // global index of row 0
  bool training = true;      // false: no dropout
};

// The parameters of one layer at one version. `bf16` mirrors `f32` element by element when the
// precision is kBf16, else it is null.
struct WeightView {
  const float* f32 = nullptr;
  const uint16_t* bf16 = nullptr;
  const int64_t* offsets = nullptr;  // by parameter of the LayerSpec

  const float* parameter(int p) const { return f32 + offsets[p]; }
  const uint16_t* bf16_parameter(int p) const { return bf16 + offsets[p]; }
};

struct GradientView {
  float* f32 = nullptr;  // accumulated into (+=), never overwritten
  const int64_t* offsets = nullptr;

  float* parameter(int p) const { return f32 + offsets[p]; }
};

// The memory that a layer asks of the tape of one microbatch.
struct TapeNeeds {
  int64_t stash_bytes = 0;
  int64_t kept_bytes = 0;
  int64_t weight_stash_bytes = 0;
  bool input_for_weight = false;        // W reads tape.input; else it goes back after I
  bool grad_output_for_weight = false;  // W reads tape.grad_output; else it goes back after I
};

// The data that one microbatch leaves behind in one layer. Tensors refer to what the neighbours made;
// the blocks are uninitialised when a pass first gets them.
struct Tape {
  Tensor input;        // [batch, time, width] f32, or token ids [batch, time] i32
  Tensor targets;      // [batch, time] i32, read by F of the head only
  Tensor grad_output;  // [batch, time, width] f32, empty for the head
  float loss_scale =
      1.0f;  // of this microbatch's mean loss in the update; read by I and W of the head
  Buffer stash;
  Buffer kept;
  Buffer weight_stash;
};

class Layer {
 public:
  virtual ~Layer() = default;

  virtual TapeNeeds tape_needs() const = 0;

  // Reads input (and targets), writes `output`: [batch, time, width] f32; for the head the mean loss of
  // the microbatch, one f32.
  // REQUIRES: token ids are inside the vocabulary.
  virtual absl::Status Forward(const PassContext& context, const WeightView& weights,
                               const Tape& tape, const Tensor& output) = 0;

  // A head reads input and writes `output`: [batch, time, vocabulary] f32. Uses tape.kept.
  virtual absl::Status Logits(const WeightView& /*weights*/, const Tape& /*tape*/,
                              const Tensor& /*output*/) {
    return absl::UnimplementedError("only a head has logits");
  }

  // Reads grad_output, writes `grad_input`, shaped as the input (empty for the embedding).
  virtual absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                                     const Tape& tape, const Tensor& grad_input) = 0;

  // Adds the microbatch's gradients to `gradients`.
  virtual absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                                      const Tape& tape) = 0;
};

}  // namespace penstock
