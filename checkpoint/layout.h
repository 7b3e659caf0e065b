// The names in a checkpoint directory.
//
//   <root>/step-000000000100/            a checkpoint, complete by the time it has this name
//     MANIFEST.json
//     layer-000-embedding.safetensors    weights, one file per layer: re-partitioning is choosing files
//     optim-000-embedding.safetensors    optimizer state
//   <root>/step-000000000200.tmp-<tag>/  being written, or left by an attempt that died
//   <root>/.penstock.lock                locked by the coordinator whose job writes here
//
// Plain functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

inline constexpr char kManifestName[] = "MANIFEST.json";

std::string StepDirectoryName(int64_t step);
// The step of a complete checkpoint's directory name; nothing for other names.
std::optional<int64_t> ParseStepDirectoryName(absl::string_view name);

// `tag` names the attempt: what is not a letter, digit or - in it becomes -.
std::string StagingDirectoryName(int64_t step, absl::string_view tag);
bool IsStagingDirectoryName(absl::string_view name);

std::string WeightsFileName(int layer, absl::string_view layer_name);
std::string OptimizerFileName(int layer, absl::string_view layer_name);

}  // namespace penstock
