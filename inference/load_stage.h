// LoadStage: a checkpoint's whole model as one stage, to compute with and not to train.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "compute/stage.h"
#include "inference/checkpoint_model.h"

namespace penstock {

// `samples`: of a forward. REQUIRES: `backend` outlives the stage.
// Errors: those of Stage::Create; those of LoadWeights.
absl::StatusOr<std::unique_ptr<Stage>> LoadStage(Files& files, const CheckpointModel& model,
                                                 int64_t samples, Backend& backend);

}  // namespace penstock
