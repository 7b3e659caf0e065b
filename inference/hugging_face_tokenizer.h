// The tokenizer of an exported model: its files, and which of its tokens have a purpose.
//
// It is that of the checkpoint or that of a directory of transformers, and never some files of one and some of the other: of
// two tokenizers in a directory each reader takes the one that it looks for first.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "inference/checkpoint_model.h"
#include "nlohmann/json.hpp"
#include "tokenizer/tokenizer.h"

namespace penstock {

inline constexpr int64_t kSourceFileBytesMax = 256 << 20;

struct ExportedTokenizer {
  struct File {
    std::string name;
    std::string content;
  };
  std::vector<File> files;
  // The checkpoint's, if it is not the one of the source, of which config.json says the special tokens; that of a source without
  // config.json; else null.
  std::unique_ptr<Tokenizer> own;
};

// `source`: a directory of transformers; empty: there is none. Its files are taken if the checkpoint has no tokenizer or the
// same one, or if `overrides` and it has one. A tokenizer of the checkpoint, and one without config.json, gets a
// tokenizer_config.json, without which AutoTokenizer takes the class that is usual for the model, and that adds tokens of its own.
// Errors: those of `files`, and of LoadTokenizer for the checkpoint's.
absl::StatusOr<ExportedTokenizer> TokenizerForExport(Files& files, const CheckpointModel& model,
                                                     const std::string& source, bool overrides);

// Sets bos_token_id, eos_token_id and pad_token_id in `config`, which is made an object if it is none, to the ids of the
// tokenizer, or to null where it has no such token.
void SetSpecialTokens(const Tokenizer& tokenizer, nlohmann::json& config);

}  // namespace penstock
