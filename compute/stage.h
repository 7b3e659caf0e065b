// Stage: consecutive layers of a chain on one device, with their weights in every live version.
//
// Weights, gradients and optimizer state are flat arenas. A version of the weights is one flat array;
// Step writes the next version into the same array, or, when the replaced one is still to be read,
// into another that is kept for this purpose (weight stashing without copies).
//
// Thread safety: one thread at a time. Memory of microbatches comes from the back-end's pool; after the
// first few microbatches a stage allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "compute/backend.h"
#include "model/chain.h"

namespace penstock {

struct StageOptions {
  LayerRange layers;
  BatchShape batch;
  Precision precision = Precision::kF32;
  OptimizerConfig optimizer;
  uint64_t seed = 0;
  int64_t versions_max = 1;          // live weight versions at the most (the verifier's number)
  int64_t microbatches_in_flight_max = 1;  // between F and W (the verifier's number)
};

// A host copy of named tensors in f32, as checkpoints hold them.
struct NamedArray {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

class Stage {
 public:
  // REQUIRES: `backend` and `chain` outlive the stage.
  // Errors: InvalidArgument (layers outside the chain), Unimplemented (the back-end lacks a kernel),
  // ResourceExhausted (out of memory).
  static absl::StatusOr<std::unique_ptr<Stage>> Create(Backend& backend, const Chain& chain,
                                                       const StageOptions& options);
  virtual ~Stage() = default;

  bool has_embedding() const { return has_embedding_; }  // reads token ids
  bool has_head() const { return has_head_; }            // reads targets, computes the loss
  // Of a tensor that crosses into or out of this stage: [batch, time, width] f32.
  Shape boundary_shape() const { return boundary_shape_; }

  // Fills version 0 with the initial weights of the job's seed (the same for every partition).
  virtual void InitializeWeights() = 0;

  // `input`: from the previous stage, or token ids [batch, time] i32. `targets`: for the head.
  // Returns the output; for the head an empty tensor, its loss is read with TakeLoss.
  // `first_sample`: global index of the microbatch's row 0. REQUIRES: `version` is live.
  virtual absl::StatusOr<Tensor> Forward(MicrobatchId microbatch, int64_t first_sample,
                                         int64_t version, const Tensor& input,
                                         const Tensor& targets) = 0;
  // Forward without dropout that leaves nothing behind but the output (or the loss).
  virtual absl::StatusOr<Tensor> Evaluate(int64_t version, const Tensor& input,
                                          const Tensor& targets) = 0;
  // The mean loss over the time steps and samples of the last Forward or Evaluate. REQUIRES: has_head().
  virtual double TakeLoss() = 0;

  // Returns the gradient for the previous stage (empty for the embedding). `grad_output` is empty for
  // the head. `loss_scale`: the factor of this microbatch's mean loss in the update it belongs to
  // (1 / microbatches of the update), applied where the gradient starts.
  virtual absl::StatusOr<Tensor> BackwardInput(MicrobatchId microbatch, int64_t version,
                                               const Tensor& grad_output, float loss_scale) = 0;
  virtual absl::Status BackwardWeight(MicrobatchId microbatch, int64_t version) = 0;

  // Squared gradient norm of each layer, by layer of the stage. A tied weight counts with the
  // embedding's layer only (after its gradients were combined).
  virtual void LayerSquaredNorms(absl::Span<double> norms) = 0;

  // Tied weights. The gradient of "wte.weight" of the given use, as a flat f32 tensor that refers to
  // the arena (no copy), and the sum head + embedding put in its place before the step.
  virtual Tensor TiedGradient() = 0;
  virtual void SetTiedGradient(const Tensor& head, const Tensor& embedding) = 0;
  // Both uses on this stage: adds the head's gradient to the embedding's.
  virtual void CombineLocalTiedGradients() = 0;

  struct StepOptions {
    double learning_rate = 0.0;
    // By layer of the stage: the factor clipping puts on its gradients (all equal for global clipping).
    absl::Span<const float> gradient_scales;
    bool keep_replaced = false;  // the replaced version is still to be read
    int64_t oldest_live_version = 0;
  };
  // Makes version `version` from version - 1, then clears the gradients.
  virtual absl::Status Step(int64_t version, const StepOptions& options) = 0;

  // Host copies by layer of the stage, at the current version. REQUIRES: nothing is in flight.
  virtual std::vector<NamedArray> LayerWeights(int layer) = 0;
  virtual std::vector<NamedArray> LayerOptimizerState(int layer) = 0;  // "<parameter>.<slot>"
  // Errors: InvalidArgument naming a tensor that is missing, unexpected or has another shape.
  virtual absl::Status LoadLayerWeights(int layer, absl::Span<const NamedArray> arrays) = 0;
  virtual absl::Status LoadLayerOptimizerState(int layer, absl::Span<const NamedArray> arrays) = 0;
  // The number the current weights and their bias corrections count as: updates so far.
  virtual void SetVersion(int64_t version) = 0;
  // SHA-256 (hex) of each layer's parameters at the current version.
  virtual std::vector<std::string> LayerDigests() = 0;

  // Tied head on another stage than the embedding keeps its own copy of "wte.weight" under that name.
  struct MemoryStats {
    int64_t weight_bytes = 0;  // all versions now allocated
    int64_t versions_allocated = 0;
    int64_t gradient_bytes = 0;
    int64_t optimizer_bytes = 0;
  };
  virtual MemoryStats memory() const = 0;

  // Logits of the last time step for sampling: [batch, vocabulary] on the host. REQUIRES: has_head().
  virtual absl::StatusOr<std::vector<float>> NextTokenLogits(int64_t version, const Tensor& input) = 0;

 protected:
  bool has_embedding_ = false;
  bool has_head_ = false;
  Shape boundary_shape_;
};

}  // namespace penstock
