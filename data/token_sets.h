// Token sets: texts to a directory of token shards (token_shards.h) with the tokenizer that made them.
//
// A text file is a document; of a `.jsonl` file each line is one, which is the text in one of its fields. Documents are cut into
// pieces that are encoded in parallel, and written in their order, so that the files depend on nothing but the texts, the
// tokenizer and the size of shards. Pieces are of about 1 MiB and end where a line ends with a letter, if that
// changes no token (Tokenizer::can_be_cut); else they are whole documents, of which 64 MiB are taken at a time.
//
// A plain function; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "tokenizer/tokenizer.h"

namespace penstock {

struct TokenSetOptions {
  std::vector<std::string> from;  // files
  std::string to;                 // the directory
  std::string tokenizer;  // its path; empty: a vocabulary of byte pairs is learned from the texts
  int64_t vocabulary = 8192;                      // of what is learned
  int64_t learned_bytes_max = int64_t{64} << 20;  // it is learned from the beginning of the texts
  std::string field = "text";                     // of the lines of .jsonl files
  int64_t shard_bytes_max = int64_t{256} << 20;
  int threads = 1;
  // Called now and then; its error ends the work. May be empty.
  std::function<absl::Status(int64_t done_bytes, int64_t all_bytes, const std::string& what)>
      progress;
};

struct PreparedTokens {
  int64_t documents = 0;
  int64_t text_bytes = 0;
  int64_t tokens = 0;
  int64_t vocabulary = 0;
  std::vector<std::string> shards;  // their paths
  std::string tokenizer;            // its path
};

// Errors: NotFound and PermissionDenied (a text), InvalidArgument (no text; a line of a .jsonl file, with its number; an option),
// AlreadyExists (the directory has shards), those of the tokenizer, of `files` and of `progress`.
absl::StatusOr<PreparedTokens> PrepareTokens(Files& files, const TokenSetOptions& options);

// Where a piece of `text` that has at least `from` bytes may end: its size, or a place behind a letter and before a line end.
size_t PieceEnd(absl::string_view text, size_t from);

}  // namespace penstock
