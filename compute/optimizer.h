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
#include "compute/elementwise/all.h"
#include "compute/rounding.h"

namespace penstock {

// Orthogonalised momentum for the weight matrices of attention and MLP (Jordan et al., "Muon: An optimizer for
// hidden layers in neural networks", 2024), scaled so that rates and weight decay are those of
// AdamW (Liu et al., arXiv 2502.16982). Embeddings, head, norms and biases take AdamW's steps.
//   v = momentum v + g;  G = g + momentum v
//   X = G / |G|, and five times (Newton and Schulz) X = a X + (b A + c A A) X with A = X X^T
//   w = w (1 - rate weight_decay) - rate 0.2 sqrt(max(rows, columns)) X
// X is what is left of G when its singular values are moved to between 0.7 and 1.2.
struct MuonConfig {
  double momentum = 0.95;
  AdamWConfig adamw;  // of the others; its weight decay is also the matrices'
  // The products of the iteration may read bf16, as in the author's implementation. On a GPU they do; on the CPU they stay f32.
  bool bf16 = false;

  // The first is AdamW's mean for parameters that take its steps; the second stays zero for the others.
  static constexpr const char* kStates[] = {"momentum", "exp_avg_sq"};
  int states() const { return 2; }
  const char* kind() const { return "muon"; }
  double& main_momentum() { return momentum; }
  friend bool operator==(const MuonConfig&, const MuonConfig&) = default;
};
inline constexpr int kMuonIterations = 5;
inline constexpr float kMuonA = 3.4445f, kMuonB = -4.7750f, kMuonC = 2.0315f;
inline constexpr double kMuonNormMin = 1e-7;  // added to |G|

template <typename... Elementwise>
using AnyOptimizer = std::variant<Elementwise..., MuonConfig>;
using OptimizerConfig = OfElementwise<AnyOptimizer>;

// "sgd", "sgd with momentum", "adamw", "nadamw", "muon": kinds whose states differ.
absl::string_view KindOf(const OptimizerConfig& config);

// The coefficient of the first momentum: SGD's and Muon's momentum, Adam's beta1.
void SetMomentum(OptimizerConfig& config, double momentum);

// One parameter tensor's place in the flat arrays.
struct ParameterSlice {
  int64_t offset = 0;  // floats, a multiple of 16
  int64_t count = 0;
  bool decays = true;
  uint64_t identity = 0;  // of the parameter's name: names its random numbers, wherever it lies
  // Rows of a matrix between hidden features, which Muon orthogonalises; 0 for all others.
  int64_t rows = 0;
  int64_t columns = 0;
  // Of the parameter group that it is in (model/parameter_groups.h).
  double rate_scale = 1.0;
  std::optional<double> weight_decay =
      std::nullopt;  // in place of the optimizer's, whether it decays or not

  bool is_hidden_matrix() const { return rows > 0; }
  bool has_decay() const { return decays || weight_decay.has_value(); }
};

// The slices that one rate and one weight decay are for.
struct SliceGroup {
  double rate_scale = 1.0;
  std::optional<double> weight_decay;
  std::vector<size_t> indices;  // of slices

  // The optimizer's configuration for them.
  template <typename Config>
  Config Of(Config config) const {
    config.weight_decay = weight_decay.value_or(config.weight_decay);
    return config;
  }
};
// In the order of their first slices.
std::vector<SliceGroup> GroupSlices(absl::Span<const ParameterSlice> slices);

struct StepArguments {
  const float* weights = nullptr;  // version read
  float* next_weights = nullptr;   // version written; may be equal to `weights`
  uint16_t* next_bf16 = nullptr;   // its bf16 mirror, or null
  const float* gradients = nullptr;
  absl::Span<float* const> state;  // by state slot, flat like the weights
  // Multiplied into every gradient first (clipping): by slice.
  absl::Span<const float> gradient_scales;
  double learning_rate = 0.0;
  // Updates by an optimizer so far, this one included; bias corrections and rounding need it.
  int64_t update = 1;
  // With a key (compute/rounding.h) the mirror is rounded at random, else to nearest even.
  std::optional<uint64_t> rounding_key;

  StochasticRounding RoundingOf(const ParameterSlice& slice) const {
    return {*rounding_key, slice.identity, static_cast<uint32_t>(update)};
  }
};

// Names of the state arrays beside the weights: {"exp_avg", "exp_avg_sq"}; checkpoints use them.
absl::Span<const absl::string_view> StateNamesOf(const OptimizerConfig& config);

// Returns how far an update of Muon moves a matrix along X, and the part of its weights that it keeps.
double MuonRate(const ParameterSlice& matrix, double learning_rate);
double MuonKeep(const MuonConfig& config, const ParameterSlice& matrix, double learning_rate);

// Which of a stage's slices Muon orthogonalizes, and what it leaves to AdamW.
//
// Thread-compatible.
class MuonSlices {
 public:
  explicit MuonSlices(absl::Span<const ParameterSlice> slices);

  // Indices of the slices that are hidden matrices.
  const std::vector<size_t>& matrices() const { return matrices_; }
  const std::vector<ParameterSlice>& others() const { return others_; }
  // A step of the others alone. Valid until the next call.
  StepArguments ArgumentsOfOthers(const StepArguments& whole);

 private:
  std::vector<size_t> matrices_;
  std::vector<ParameterSlice> others_;
  std::vector<size_t> other_indices_;
  std::vector<float> other_scales_;
};

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
