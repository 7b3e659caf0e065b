// SaveLayers: the files of a worker's layers in a checkpoint's staging directory.
//
// Weights with a number that is not finite are never written: no checkpoint resumes from spoilt weights.
//
// A plain function; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "penstock/v1/cluster.pb.h"
#include "worker/layer_state.h"

namespace penstock {

// A layer that was saved: its files, and the digest of its parameters (Stage::LayerDigests).
struct SavedLayer {
  int32_t layer = 0;  // of the model
  std::string name;
  std::string sha256;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointFile> attached;
};

// What an event tells of them.
v1::LayersSaved SavedMessage(int64_t step, const std::vector<SavedLayer>& layers);

// Writes `layers` into the directory `staging`. `may_go_on` is asked before each layer.
// Errors: FailedPrecondition naming a layer and tensor that is not finite, that of `may_go_on`, or those of Files.
absl::StatusOr<std::vector<SavedLayer>> SaveLayers(FileWriter& files, const std::string& staging,
                                                   const std::vector<LayerSnapshot>& layers,
                                                   absl::FunctionRef<absl::Status()> may_go_on);

}  // namespace penstock
