// Hugging Face: a checkpoint as a directory that from_pretrained of transformers reads.
//
// Values and layouts are the checkpoint's. A tied head is stored once, with the embedding. Files are written tensor by
// tensor, and no more than a layer is held.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "inference/checkpoint_model.h"

namespace penstock {

// As large as the shards that transformers writes.
inline constexpr int64_t kShardBytesMax = 5'000'000'000;

struct HuggingFaceOptions {
  // A directory (created), or a path that ends with .safetensors, whose folder then takes the other files.
  std::string output;
  // A directory of transformers that tokenizer, special tokens and names of labels come from, whatever tokenizer the
  // checkpoint has; or one with a tokenizer alone, which says the special tokens then. Empty: the tokenizer is the checkpoint's, and the rest, and a tokenizer where it has none, come from the
  // directory whose weights the model started from, if it is still there.
  std::string source;
  int64_t shard_bytes_max = kShardBytesMax;
};

struct ExportedFiles {
  std::string weights;  // model.safetensors, or the index of its shards
  std::string config;
  std::vector<std::string> others;
};

// Checks that transformers has a class for the model. Errors: Unimplemented.
absl::Status CheckExportsHuggingFace(const ModelGraph& model);

// Errors: those of CheckExportsHuggingFace and of Files; Unimplemented (options that no class has), DataLoss (a damaged
// file), FailedPrecondition (averages are chosen, and the checkpoint has none), AlreadyExists if a file is there, NotFound
// (a source that is named and has neither config.json nor a tokenizer).
absl::StatusOr<ExportedFiles> ExportHuggingFace(Files& files, const CheckpointModel& model,
                                                const HuggingFaceOptions& options);

}  // namespace penstock
