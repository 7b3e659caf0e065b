// Between a stage and what a checkpoint keeps of its layers.
//
// Plain functions; the thread that owns the stage's back-end.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "compute/stage.h"
#include "model/chain.h"

namespace penstock {

// Host copies of all layers of `stage`, which holds `layers` of `chain`. A tied head's is empty: its
// weight is kept with the embedding. REQUIRES: nothing is in flight.
std::vector<LayerState> CopyLayers(Stage& stage, const Chain& chain, LayerRange layers);

// Loads all layers of `stage` from a verified checkpoint, a tied head's from the embedding's, and sets
// the number of updates seen.
// Errors: DataLoss or NotFound naming the file, InvalidArgument naming the tensor that does not fit.
absl::Status LoadLayers(Files& files, const std::string& directory, const Manifest& manifest,
                        const Chain& chain, LayerRange layers, Stage& stage);

}  // namespace penstock
