// A checkpoint's weights as model.safetensors, or as shards with an index, written tensor by tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "inference/checkpoint_model.h"

namespace penstock {

// The tensors of each file: as many as fit in `bytes_max` together, at least one.
std::vector<std::vector<TensorType>> SplitIntoShards(absl::Span<const TensorType> tensors,
                                                     int64_t bytes_max);

struct WeightsOutput {
  std::string directory;
  std::string file;  // of one shard
  int64_t shard_bytes_max = 0;
  // The name that a parameter gets.
  absl::FunctionRef<std::string(absl::string_view parameter)> name;
};

// Writes all parameters in the order of the layers, each once. Returns the paths, that of the index, or of the only file,
// first.
// Errors: DataLoss (a damaged file of the checkpoint), AlreadyExists, those of ChooseWeights and of `files`.
absl::StatusOr<std::vector<std::string>> WriteWeights(Files& files, const CheckpointModel& model,
                                                      const WeightsOutput& output);

// Errors: AlreadyExists.
absl::Status CheckAbsent(Files& files, const std::string& path);

}  // namespace penstock
