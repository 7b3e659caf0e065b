// Between a stage and what a checkpoint keeps of its layers.
//
// Plain functions; the thread that owns the stage's back-end.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "compute/stage.h"
#include "model/graph.h"
#include "worker/message_coder.h"

namespace penstock {

// A layer at one moment, on the host.
struct LayerSnapshot {
  LayerState state;  // without parameters of a layer before it, with which they are kept
  std::vector<NamedArray> all_weights;      // of a layer that uses such parameters, for its digest
  absl::Span<const AttachedFile> attached;  // to the model's first layer

  absl::Span<const NamedArray> parameters() const {
    return all_weights.empty() ? state.weights : all_weights;
  }
};

// Snapshots of all layers of `stage`, which holds `layers` of `model`. REQUIRES: nothing is in flight.
std::vector<LayerSnapshot> CopyLayers(Stage& stage, const ModelGraph& model, LayerRange layers);
// One of them (`layer` of the model) in two parts, for stages that have either alone at a time.
void CopyWeights(Stage& stage, const ModelGraph& model, LayerRange layers, int layer,
                 LayerSnapshot& snapshot);
void CopyOptimizerState(Stage& stage, const ModelGraph& model, LayerRange layers, int layer,
                        LayerSnapshot& snapshot);

// Adds to the snapshots of a stage's layers what its messages left out (worker/message_coder.h): of activations to the last,
// of gradients to the first.
void CopyLeftOut(const StageCoders& coders, std::vector<LayerSnapshot>& layers);

// Loads all layers of `stage` from a verified checkpoint, shared parameters from the layer that they belong to, and sets
// the number of updates seen. A stage that makes no updates has no use for the optimizer's state. `may_go_on` is asked before each layer.
// What messages had left out goes to `coders`; `dropped` is called for each layer where they have no place of that size for it.
// Errors: DataLoss or NotFound naming the file, InvalidArgument naming the tensor that does not fit, or
// that of `may_go_on`.
absl::Status LoadLayers(FileReader& files, const std::string& directory, const Manifest& manifest,
                        const ModelGraph& model, LayerRange layers,
                        absl::FunctionRef<absl::Status()> may_go_on, const StageCoders& coders,
                        absl::FunctionRef<void(int layer)> dropped, Stage& stage,
                        LayerFiles wanted = LayerFiles::kBoth);

}  // namespace penstock
