// Optimizer: how a gradient changes weights, over flat arrays.
//
// A step reads the weights of one version and writes the next, which may be the same memory (in
// place) or another (when the replaced version is still to be read): no copy is ever made for a stash.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/rounding.h"
#include "compute/update_constants.h"

namespace penstock {

// v = momentum * v + g + weight_decay * w;  w -= rate * v.
struct SgdConfig {
  double momentum = 0.0;
  double weight_decay = 0.0;
  friend bool operator==(const SgdConfig&, const SgdConfig&) = default;
};

// Adam with bias correction and decoupled weight decay: Loshchilov and Hutter, arXiv 1711.05101.
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w = w (1 - rate weight_decay) - rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  friend bool operator==(const AdamWConfig&, const AdamWConfig&) = default;
};

using OptimizerConfig = std::variant<SgdConfig, AdamWConfig>;

// One parameter tensor's place in the flat arrays.
struct ParameterSlice {
  int64_t offset = 0;  // floats, a multiple of 16
  int64_t count = 0;
  bool decays = true;
  uint64_t identity = 0;  // of the parameter's name: names its random numbers, wherever it lies
};

struct StepArguments {
  const float* weights = nullptr;  // version read
  float* next_weights = nullptr;   // version written; may be equal to `weights`
  uint16_t* next_bf16 = nullptr;   // its bf16 mirror, or null
  const float* gradients = nullptr;
  absl::Span<float* const> state;  // by state slot, flat like the weights
  // Multiplied into every gradient first (clipping): by slice.
  absl::Span<const float> gradient_scales;
  double learning_rate = 0.0;
  int64_t update = 1;  // counts from 1; AdamW's bias correction; the version that is written
  // With a key (compute/rounding.h) the mirror is rounded at random, else to nearest even.
  std::optional<uint64_t> rounding_key;

  StochasticRounding RoundingOf(const ParameterSlice& slice) const {
    return {*rounding_key, slice.identity, static_cast<uint32_t>(update)};
  }
};

// Names of the state arrays besides the weights: {"exp_avg", "exp_avg_sq"}; checkpoints use them.
absl::Span<const absl::string_view> StateNamesOf(const SgdConfig& config);
absl::Span<const absl::string_view> StateNamesOf(const AdamWConfig& config);

SgdConstants ConstantsOf(const SgdConfig& config, double learning_rate);
AdamWConstants ConstantsOf(const AdamWConfig& config, double learning_rate, int64_t update);

// Steps the slices it was made for; other parts of the arrays are neither read nor written.
//
// Thread safety: the thread that owns the back-end.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual absl::Span<const absl::string_view> state_names() const = 0;
  // Errors: those of the device.
  virtual absl::Status Step(const StepArguments& arguments) = 0;
};

// Squared norms of the slices it was made for.
//
// Thread safety: the thread that owns the back-end.
class SliceNorms {
 public:
  virtual ~SliceNorms() = default;
  // squared_norms[slice] = sum of squares, in double, in a fixed order. Waits for the device.
  // Errors: those of the device.
  virtual absl::Status Measure(const float* values, absl::Span<double> squared_norms) = 0;
};

}  // namespace penstock
