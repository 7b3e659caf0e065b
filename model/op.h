// Op: one kind of computation that has kernels: conv2d, linear, attention.
//
// An op is one file in model/ops/: what can be set, which inputs fit, the shape of its output, its parameters and
// its costs. Its kernels are one file in each back-end's folder. model/ops/list.h names them all.
//
// Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "model/attributes.h"

namespace penstock {

// The limit of a value for one sample, and of what an op keeps of a sample from pass to pass. What kernels place of a
// microbatch then has a size in bytes that fits 64 bits.
inline constexpr int64_t kValueElementsMax = int64_t{1} << 33;

// The type of a value for one sample: [time, width] of f32, [height, width, channels] of u8.
struct ValueType {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;

  int64_t elements() const;
  int64_t size_bytes() const { return elements() * SizeOf(dtype); }
  std::string ToString() const;  // "f32 [128, 192]"
  friend bool operator==(const ValueType&, const ValueType&) = default;
};

// One parameter tensor, named and laid out as in the files that users have.
struct ParameterSpec {
  std::string name;            // "h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // its layout is the op's affair
  enum class Init : uint8_t { kZeros, kOnes, kNormal, kUniform, kConstant } init = Init::kNormal;
  // Of kNormal the deviation, of kUniform the bound on both sides, of kConstant the number.
  double init_scale = 0.02;
  bool decays = true;          // weight decay applies (matrices yes, biases and norms no)
  bool maps_features = false;  // a matrix between hidden features, which Muon orthogonalizes
  std::string initial_as;      // the parameter whose initial values it has; empty: its own
  // How PyTorch's own module for it starts it (model/pytorch_init.h): `first` and `second` are then `init` and `init_scale`.
  // None: as here, because PyTorch has no such module, or because it is to start with zeros.
  std::optional<std::pair<Init, double>> in_pytorch;
  // What the parameter group that it is in says of its training (model/parameter_groups.h).
  double rate_scale = 1.0;             // of the learning rate
  std::optional<double> weight_decay;  // in place of the optimizer's, whether it decays or not
  bool frozen = false;                 // no update changes it, so that nobody needs its gradient

  int64_t size() const;
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

// State of a node that no optimizer changes.
struct BufferSpec {
  enum class Kind : uint8_t {
    kStatistic,  // of all samples so far, one for the node: the running mean of a batch norm
    kCarried,    // where the sequence of each sample goes on in the next step: an LSTM's state
  };
  std::string name;
  std::vector<int64_t> shape;  // of what is carried for one sample
  double initial = 0.0;        // what is carried starts from zero
  Kind kind = Kind::kStatistic;
  // Of what is carried in evaluation alone: F changes it where it lies, and reads what it finds there. It is no part of a
  // checkpoint, and has any values at first.
  bool in_place = false;

  int64_t size() const;
  friend bool operator==(const BufferSpec&, const BufferSpec&) = default;
};

// Multiply-adds counted as two operations, for one sample.
struct OpCost {
  double forward_flops = 0;
  double backward_input_flops = 0;
  double backward_weight_flops = 0;
  double repeated_flops =
      0;  // of the backward for the input: what the forward has computed already

  // Of forward and backward, each number computed once.
  double training_flops() const {
    return forward_flops + backward_input_flops - repeated_flops + backward_weight_flops;
  }
};

// A node's inputs and settings, as an op sees them.
struct OpArguments {
  const Attributes& attributes;  // complete
  absl::Span<const ValueType> inputs;
};

// What follows from them.
struct OpResult {
  ValueType output;
  std::vector<ParameterSpec> parameters;  // names without the node's: "weight"
  std::vector<BufferSpec> buffers;
};

// What a loss is a mean over, and what its predictions say.
struct LossTraits {
  int targets = 1;  // the input that holds the targets
  // Targets of this id do not count. Those that count are called valid.
  std::optional<int32_t> ignored;
  // Predictions score this many classes, and a target is one of them; 0: of no classes.
  int64_t classes = 0;
  // The mean of -log p(target), so that its exponential is a perplexity.
  bool is_log_likelihood = false;
};

struct Op {
  absl::string_view name;          // in YAML
  absl::string_view described_as;  // in checkpoints and profiles
  absl::string_view help;
  absl::Span<const AttributeSpec> attributes;
  int inputs_min = 1;
  int inputs_max = 1;
  bool draws = false;  // random numbers, so that the node needs a place of its own among them
  // Errors: InvalidArgument saying which shapes came and what would fit.
  absl::StatusOr<OpResult> (*infer)(const OpArguments&) = nullptr;
  OpCost (*cost)(const OpArguments&) = nullptr;
  // How many different numbers an i32 input may hold, from 0 on, because the op looks them up in a table or compares
  // them with classes; null: any.
  int64_t (*ids)(const OpArguments&, int input) = nullptr;
  // Of a loss: one f32 for each microbatch, the mean over its valid targets, and the end of a model. Null: no loss.
  LossTraits (*loss)(const OpArguments&) = nullptr;

  bool is_loss() const { return loss != nullptr; }

  // By name, which is unique. Addresses differ: a back-end loaded at run time has a table of its own.
  friend bool operator==(const Op& a, const Op& b) { return a.name == b.name; }
};

// Those that a model may be described with.
// Errors: NotFound listing the ops, or the one whose name is nearest.
absl::StatusOr<const Op*> FindOp(absl::string_view name);
absl::Span<const Op* const> AllOps();

// FLOPs of y[rows, outputs] = x[rows, inputs] W: the same count for y, for dx and for dW.
double ProductFlops(double rows, double inputs, double outputs);

// Errors: InvalidArgument "SHAPES do not fit: expected WANTED".
absl::Status ShapesDoNotFit(absl::Span<const ValueType> inputs, absl::string_view wanted);

}  // namespace penstock
