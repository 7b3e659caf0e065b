// PassPlan: what each pass of a stage does, step by step, with the memory that it takes and gives back.
//
// Made once for a run of layers and a microbatch's size, from the graph and from what the kernels need of their
// neighbours' values. Stage carries the steps out; ActivationBytes walks the same steps and adds up bytes, so that a
// stage's memory is known before anything runs. Slots are the tensors of one microbatch: what a pass is given, values,
// blocks of kernels, gradients. A slot is given back right after the last step that reads it, in whichever pass.
//
// Rules:
//  - Forward, nodes run in the model's order; backward, in its reverse.
//  - The gradient of a value is added from its last reader to its first, so that a cut splits the sum at a prefix and
//    every partition gives the same bits. What comes from behind a cut is the sum of all readers there.
//  - A bundle of one value is that value's tensor. A larger one is copied together where it is made, and viewed where it
//    is received.
//  - What is carried to a microbatch is copied before F may change it, and the copy kept until R has read it.
//  - In bf16, values that another layer reads are rounded when they are made, and their gradients at each addition,
//    whether there is a cut or not, so that cuts change no bit. Bundles are then bf16, and what is made of them f32.
//
//  - What nobody needs is not computed: no I for values that no trained parameter is behind, no W for nodes whose
//    parameters are all frozen. Where no gradient crosses a cut, a signal does (model/bundle.h).
//
// A value; immutable after it is made.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compute/op_kernels.h"
#include "compute/tensor.h"
#include "model/bundle.h"
#include "model/graph.h"

namespace penstock {

struct PassStep {
  enum class Kind : uint8_t {
    kTake,    // `slot` gets memory of its own
    kShare,   // `slot` is the memory of `from`, `offset` bytes on
    kRun,     // the pass of `node`
    kCarry,   // `slot` becomes what buffer `buffer` of `node` carries to the microbatch
    kCopy,    // `from`, whole, to `slot`, `offset` bytes on
    kNarrow,  // the same, from f32 to bf16
    kWiden,   // all of `slot` from bf16 to f32, out of `from`, `offset` bytes on
    kRound,   // `slot` to numbers that bf16 has
    kAdd,     // slot = from + slot
    kGive,    // `slot` is not needed any more
  };
  Kind kind = Kind::kRun;
  int slot = -1;
  int from = -1;
  int64_t offset = 0;
  int node = -1;    // of the stage
  int buffer = -1;  // of the node
};

struct PassPlan {
  struct Slot {
    DType dtype = DType::kF32;
    Shape shape;           // of a block: its bytes, as u8
    bool crosses = false;  // into another stage, so that timing decides when its memory comes back

    int64_t size_bytes() const { return shape.elements() * SizeOf(dtype); }
  };
  // By node of the stage; -1: none.
  struct NodeSlots {
    std::array<int, kNodeInputsMax> inputs;
    std::array<int, kNodeInputsMax> grad_inputs;
    std::array<int, kNodeBuffersMax> states;  // that F and R start from
    int output = -1, grad_output = -1, stash = -1, kept = -1, weight_stash = -1;
    NodeSlots() {
      inputs.fill(-1);
      grad_inputs.fill(-1);
      states.fill(-1);
    }
  };

  int first_node = 0;
  int node_count = 0;
  std::vector<Slot> slots;
  std::vector<NodeSlots> nodes;

  std::vector<int> ports;       // of the model, that nodes here read; ascending
  std::vector<int> port_slots;  // by entry of `ports`
  // What passes are given and return; -1 at the ends of the model, and what they return also at StageEnds::kLayers.
  int input = -1;        // given to F
  int output = -1;       // returned by F: the bundle, or the loss
  int grad_output = -1;  // given to I
  int grad_input = -1;   // returned by I

  // F of a stage that keeps what its backward needs; R does the same without the output.
  std::vector<PassStep> forward, recompute;
  // F that keeps nothing but the input, and one that keeps nothing at all.
  std::vector<PassStep> forward_only, evaluate;
  std::vector<PassStep> backward_input, backward_weight;
};

// What is before and behind the layers: other stages, whose bundles are taken apart and copied together, or layers of the
// same stage. Then values are received as they are, in f32 and as views of one tensor, and stay where they were made, so
// that passes return nothing but the loss: a layer's passes are what they are inside a stage, which a profile has to tell.
enum class StageEnds : uint8_t { kCuts, kLayers };

// `crossing`: the type in which values cross from layer to layer, kF32 or kBf16. `needs`: by node of the range.
PassPlan MakePassPlan(const ModelGraph& model, LayerRange layers, int64_t samples,
                      const std::vector<TapeNeeds>& needs, DType crossing = DType::kF32,
                      StageEnds ends = StageEnds::kCuts);

// [samples, dims...] of a value; flat if it has more dimensions than tensors do.
Shape ShapeOf(const ValueType& type, int64_t samples);
// The tensor of a bundle: that of its value, or flat.
Shape ShapeOf(const ModelGraph& model, const Bundle& bundle, int64_t samples);

}  // namespace penstock
