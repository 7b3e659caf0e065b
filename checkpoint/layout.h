// The names in a checkpoint directory.
//
//   <root>/step-000000000100/            a checkpoint, complete by the time it has this name
//     MANIFEST.json
//     layer-000-embedding.safetensors    weights, one file per layer: re-partitioning is choosing files
//     optim-000-embedding.safetensors    optimizer state
//   <root>/step-000000000200.tmp-<tag>/  being written, or left by an attempt that died
//     NAME.part                          a file that comes to the coordinator part by part, until it is whole
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
inline constexpr absl::string_view kStagedPartEnding = ".part";  // in staging directories alone

std::string StepDirectoryName(int64_t step);
// The step of a complete checkpoint's directory name; nothing for other names.
std::optional<int64_t> ParseStepDirectoryName(absl::string_view name);

// `tag` names the attempt: what is not a letter, digit or - in it becomes -.
std::string StagingDirectoryName(int64_t step, absl::string_view tag);
struct StagingName {
  int64_t step = 0;
  std::string tag;
};
// Reads the name of a staging directory; nothing for other names.
std::optional<StagingName> ParseStagingDirectoryName(absl::string_view name);

// Whether `path` names a file right in a staging directory that is in no checkpoint. Only the letters are looked at, not the disk.
bool IsStagedFilePath(absl::string_view path);

// The tag of an attempt at a job. No two attempts have the same, so each knows its own staging directories.
std::string StagingTag(absl::string_view job_id, int64_t epoch);
// Returns whether a tag that was read from a name is of an attempt at the job.
bool IsTagOfJob(absl::string_view tag, absl::string_view job_id);

// The directory of a snapshot in the memory of workers. Of two snapshots of a job, the later one's name sorts after the other.
std::string SnapshotDirectory(absl::string_view job_id, int64_t epoch, int64_t step);

// The file of a layer's weights has the one prefix, that of its optimizer's state the other.
inline constexpr absl::string_view kWeightsPrefix = "layer-";
inline constexpr absl::string_view kOptimizerPrefix = "optim-";
std::string WeightsFileName(int layer, absl::string_view layer_name);
std::string OptimizerFileName(int layer, absl::string_view layer_name);

}  // namespace penstock
