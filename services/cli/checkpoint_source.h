// Where the checkpoint of a command is that takes a path or a job, and which of its weights the command reads.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "checkpoint/weight_choice.h"
#include "services/cli/coordinator_client.h"

namespace penstock {

// `source` if there is such a path, or else where the last checkpoint is of the job with this id at `coordinator`. The path
// exists in `files`.
// Errors: NotFound (no such path or job, or it has no checkpoint, or none that this machine sees); those of the call.
absl::StatusOr<std::string> FindCheckpointPath(Files& files, const std::string& source,
                                               const CoordinatorOptions& coordinator);

// Adds --weights. REQUIRES: `choice` outlives `app`'s parsing.
void AddWeightsOption(CLI::App& app, WeightChoice& choice);

}  // namespace penstock
