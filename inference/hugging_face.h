// Hugging Face: a checkpoint as the two files GPT2LMHeadModel.from_pretrained reads.
//
// Tensor names get the prefix "transformer." (all but lm_head.weight), as in a saved GPT2LMHeadModel;
// values and layouts are the checkpoint's. A tied head is stored once, with the embedding.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "compute/stage.h"
#include "inference/checkpoint_model.h"

namespace penstock {

// The content of config.json.
nlohmann::ordered_json HuggingFaceConfig(const GptConfig& config);

// All weights by their names there, in the order of the layers. Errors: DataLoss (a damaged file).
absl::StatusOr<std::vector<NamedArray>> HuggingFaceWeights(Files& files,
                                                           const CheckpointModel& model);

// Checks that Hugging Face has a class for the model. Errors: Unimplemented (it is no GPT).
absl::Status CheckExportsHuggingFace(const ModelGraph& model);

struct ExportedFiles {
  std::string weights;
  std::string config;
};
// Writes them. `output` is a directory (created), or a path that ends with .safetensors, whose folder
// then takes config.json. Errors: those of CheckExportsHuggingFace and of Files; AlreadyExists if a file is there.
absl::StatusOr<ExportedFiles> ExportHuggingFace(Files& files, const CheckpointModel& model,
                                                const std::string& output);

}  // namespace penstock
