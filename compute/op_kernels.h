// OpKernels: the kernels of one node of a model, with the three passes separately callable.
//
// A pass never depends on other nodes, so results are the same for every partition. W may run any time
// after I, or never (a frozen node). Passes leave data for one another in blocks of the microbatch that differ in how
// long they live, so that memory goes back as early as the schedule allows:
//
//     stash          F .. I    what only the backward pass of the input needs
//     kept           F .. W    inputs of the linear maps
//     weight_stash   I .. W    gradients of the outputs of the linear maps
//
// Weights and gradients are flat: parameter p of the node starts at offsets[p] (floats, a multiple
// of 16) after the given base; the stage owns them.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compute/tensor.h"
#include "model/graph.h"

namespace penstock {

// What a node can read at most (concat, in Inception's blocks and U-Nets).
inline constexpr int kNodeInputsMax = 16;
// Buffers of a node (model/op.h, BufferSpec) at most.
inline constexpr int kNodeBuffersMax = 4;

// What kernels are made of.
struct KernelSpec {
  const Node& node;
  std::vector<ValueType> inputs;  // for one sample
  int64_t samples = 0;            // in a microbatch
  bool bf16 =
      false;  // products read bf16 (all but Precision::kF32, on a device that has such products)
  bool fp8 = false;  // of bf16: those of linear maps read fp8 where they can (compute/fp8.h)

  const Attributes& attributes() const { return node.attributes; }
  // REQUIRES: the node is a loss.
  LossTraits loss() const { return node.op->loss({node.attributes, inputs}); }
  int64_t input_elements(int i = 0) const { return samples * inputs[i].elements(); }
  int64_t output_elements() const { return samples * node.output.elements(); }
  // Of input i with its last dimension taken apart.
  int64_t width(int i = 0) const { return inputs[i].dims.back(); }
  int64_t rows(int i = 0) const { return input_elements(i) / width(i); }
};

// Where the randomness of a pass comes from: the same numbers for the same job, sample and node,
// whatever the partition.
struct PassContext {
  uint64_t seed = 0;
  uint32_t draw = 0;            // Node::draw
  int64_t first_sample = 0;     // global index of row 0
  bool training = true;         // false: no dropout, and statistics come from buffers
  bool updates_buffers = true;  // F of training; R repeats what F did and changes none
};

// The parameters of one node at one version. `bf16` mirrors `f32` element by element where the
// precision has a mirror, else it is null.
struct WeightView {
  const float* f32 = nullptr;
  const uint16_t* bf16 = nullptr;
  const int64_t* offsets = nullptr;  // by parameter of the node

  const float* parameter(int p) const { return f32 + offsets[p]; }
  const uint16_t* bf16_parameter(int p) const { return bf16 + offsets[p]; }
};

struct GradientView {
  float* f32 = nullptr;  // accumulated into (+=), never overwritten
  const int64_t* offsets = nullptr;

  float* parameter(int p) const { return f32 + offsets[p]; }
};

// Sets of a node's inputs, bit i for input i.
using InputSet = uint32_t;
inline constexpr InputSet kAllInputs = ~InputSet{0};
inline constexpr InputSet kNoInputs = 0;

// The memory that a node asks of one microbatch, and what its passes read of its neighbours' values. Whatever no pass
// reads any more goes back to the pool.
struct TapeNeeds {
  int64_t stash_bytes = 0;
  int64_t kept_bytes = 0;
  int64_t weight_stash_bytes = 0;
  InputSet inputs_for_input = kNoInputs;   // I reads these inputs
  InputSet inputs_for_weight = kNoInputs;  // W does
  bool output_for_input = false;           // I reads the node's own output
  bool grad_output_for_weight = false;     // W reads the gradient of the output; I always may
  bool passes_input = false;  // the output is input 0 with another shape: F does nothing
  InputSet passes_gradient =
      kNoInputs;  // the gradients of these are that of the output: I writes nothing there
};

// The memory of one pass of one node over one microbatch. Null: not there in this pass. Blocks are uninitialised
// when a pass first gets them.
struct Tape {
  std::array<const void*, kNodeInputsMax> inputs = {};
  void* output = nullptr;
  const void* grad_output = nullptr;
  // Null also where no gradient is wanted. A node without parameters is not asked for its backward where none is, so one
  // with a single input always has a place to write to.
  std::array<void*, kNodeInputsMax> grad_inputs = {};
  void* stash = nullptr;
  void* kept = nullptr;
  void* weight_stash = nullptr;
  // By buffer of the node. Statistics:
  std::array<float*, kNodeBuffersMax> buffers = {};
  // What is carried, [samples, ...]: F reads what its samples start from, and writes what those of the next step do. R
  // reads the same and is given no place to write to. I and W are given neither, so F keeps what they need. Of what is
  // changed in place (BufferSpec::in_place) there is the latter alone.
  std::array<const float*, kNodeBuffersMax> states = {};
  std::array<float*, kNodeBuffersMax> next_states = {};
  float loss_scale =
      1.0f;  // of this microbatch's mean loss in the update; read by I and W of a loss
  // F of a loss over classes, in evaluation: by target, how many classes score higher; of those that score the same,
  // the ones before it count as higher. -1 of a target that is not valid.
  int32_t* ranks = nullptr;

  template <typename T = float>
  const T* input(int i = 0) const {
    return static_cast<const T*>(inputs[i]);
  }
  float* result() const { return static_cast<float*>(output); }
  const float* gradient() const { return static_cast<const float*>(grad_output); }
  float* grad_input(int i = 0) const { return static_cast<float*>(grad_inputs[i]); }
};

class OpKernels {
 public:
  virtual ~OpKernels() = default;

  virtual TapeNeeds tape_needs() const = 0;

  // Why these are not the kernels that the device has for most such nodes, but much slower ones; empty where they are.
  virtual absl::string_view fallback() const { return {}; }

  // Reads the inputs, writes the output; a loss its mean over the microbatch's valid targets, one f32 (0 if there is
  // none), and the ranks of the targets, if they are asked for.
  // REQUIRES: ids are inside the tables that they look up.
  virtual absl::Status Forward(const PassContext& context, const WeightView& weights,
                               const Tape& tape) = 0;

  // For one sample, of a loss that has predictions: [..., classes] f32.
  virtual ValueType prediction_type() const { return {}; }
  // Writes these to the output. Uses tape.kept.
  virtual absl::Status Predict(const WeightView& /*weights*/, const Tape& /*tape*/) {
    return absl::UnimplementedError("the model's loss has no predictions");
  }

  // Reads the gradient of the output, writes those of the inputs that are wanted, each shaped as its input.
  virtual absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                                     const Tape& tape) = 0;

  // Adds the microbatch's gradients to `gradients`. A node without parameters is never asked.
  virtual absl::Status BackwardWeight(const PassContext& /*context*/,
                                      const GradientView& /*gradients*/, const Tape& /*tape*/) {
    return absl::OkStatus();
  }
};

}  // namespace penstock
