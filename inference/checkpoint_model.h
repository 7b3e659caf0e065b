// CheckpointModel: the model that a checkpoint holds.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/weight_choice.h"
#include "compute/stage.h"
#include "model/families/gpt.h"
#include "model/graph.h"

namespace penstock {

struct CheckpointModel {
  std::string directory;
  Manifest manifest;
  std::optional<GptConfig> gpt;                   // absent: another model
  ModelGraph graph;                               // as it is computed (model/fuse_branches.h)
  WeightChoice weights = WeightChoice::kCurrent;  // its parameters' values
};

// `path`: a checkpoint's directory, or one of checkpoints, of which the newest good one counts. Every file's digest is
// checked.
//
// Errors: NotFound (it has no checkpoint), DataLoss naming the damaged file, Unimplemented (a model or format of another
// version). Whether there are averages shows when they are loaded.
absl::StatusOr<CheckpointModel> OpenCheckpointModel(Files& files, const std::string& path,
                                                    WeightChoice weights = WeightChoice::kCurrent);

// The model that the manifest holds. The manifests of the version before hold none; it then is a GPT and follows from
// their fingerprint.
// Errors: Unimplemented, if it is no model of this version.
absl::StatusOr<StoredModel> ModelOf(const Manifest& manifest);

// Loads the weights of `layers` into a stage of them, without what training carried to its next step.
// Errors: DataLoss (a damaged file), FailedPrecondition (averages are chosen, and it has none).
absl::Status LoadWeights(Files& files, const CheckpointModel& model, LayerRange layers,
                         Stage& stage);

}  // namespace penstock
