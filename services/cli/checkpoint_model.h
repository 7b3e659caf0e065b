// CheckpointModel: the model that a checkpoint holds, found by path or by job id.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "checkpoint/manifest.h"
#include "model/chain.h"
#include "model/gpt.h"
#include "services/cli/coordinator_client.h"

namespace penstock {

struct CheckpointModel {
  std::string directory;
  Manifest manifest;
  GptConfig config;
  Chain chain;
};

// `source`: a checkpoint's directory, a directory of checkpoints (the newest good one counts), or the
// id of a job at `coordinator`. Every file's digest is checked.
//
// Errors: NotFound (no such path or job, or it has no checkpoint), DataLoss naming the damaged file,
// Unimplemented (a model or format of another version).
absl::StatusOr<CheckpointModel> OpenCheckpointModel(Files& files, const std::string& source,
                                                    const CoordinatorOptions& coordinator);

// The model a manifest describes, reconstructed from its fingerprint.
// Errors: Unimplemented, if no model of this version has that fingerprint.
absl::StatusOr<GptConfig> GptConfigOf(const Manifest& manifest);

}  // namespace penstock
