// CheckpointModel: the model that a checkpoint holds.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "checkpoint/manifest.h"
#include "compute/stage.h"
#include "model/families/gpt.h"
#include "model/graph.h"

namespace penstock {

struct CheckpointModel {
  std::string directory;
  Manifest manifest;
  std::optional<GptConfig> gpt;  // absent: another model
  ModelGraph graph;              // as it is computed (model/fuse_branches.h)
};

// `path`: a checkpoint's directory, or one of checkpoints, of which the newest good one counts. Every file's digest is
// checked.
//
// Errors: NotFound (it has no checkpoint), DataLoss naming the damaged file, Unimplemented (a model or format of another
// version).
absl::StatusOr<CheckpointModel> OpenCheckpointModel(Files& files, const std::string& path);

// The model that the manifest holds. The manifests of the version before hold none; it then is a GPT and follows from
// their fingerprint.
// Errors: Unimplemented, if it is no model of this version.
absl::StatusOr<StoredModel> ModelOf(const Manifest& manifest);

// Loads the weights of `layers` into a stage of them, without what training carried to its next step.
// Errors: DataLoss (a damaged file).
absl::Status LoadWeights(Files& files, const std::string& directory, const Manifest& manifest,
                         const ModelGraph& graph, LayerRange layers, Stage& stage);

}  // namespace penstock
