// TokenShards: files of token ids, read where they lie, so that they may be larger than memory.
//
// A shard is one of
//
//   llm.c       a header of 256 i32, then ids: magic 20240520 and version 1 for u16 (GPT-2's), 20240801 and 7 for u32 (Llama
//               3's); the third number of the header is the number of tokens
//   raw         ids alone, u16 as nanoGPT writes them, or u32
//
// all little-endian. The shards of a directory or pattern are one sequence, in the order of their names; a window may begin
// in one and end in the next.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "data/token_sequence.h"

namespace penstock {

enum class TokenFormat : uint8_t {
  kDetected,  // llm.c by its header, else raw u16
  kLlmC,
  kRaw16,
  kRaw32,
};

// By its name in job files: "auto", "llm.c", "u16", "u32". Errors: InvalidArgument listing them.
absl::StatusOr<TokenFormat> TokenFormatNamed(absl::string_view name);

struct TokenShardOptions {
  TokenFormat format = TokenFormat::kDetected;
  std::string sha256;  // DigestOfTokenShards; empty accepts any
  // Tokens are below this: what the model looks up.
  int64_t ids = std::numeric_limits<int32_t>::max();
};

// The files that `path` names: itself, or all `.bin` of a directory, or those whose names match a pattern in its last part
// ("corpus/train_*.bin"), sorted by name. Errors: NotFound (there are none), those of `files`.
absl::StatusOr<std::vector<std::string>> TokenShardPaths(Files& files, const std::string& path);

// What says whether shards are the same: the SHA-256 of their names without folders, their sizes and their content. Of a
// shard above 4 MiB it takes 64 pieces, evenly spread, so that any size takes milliseconds; a change between them goes
// unnoticed. `stop` is asked before each shard.
// Errors: those of TokenShardPaths and of the disk; Cancelled.
absl::StatusOr<std::string> DigestOfTokenShards(Files& files, const std::string& path,
                                                const std::function<bool()>& stop);

// How a shard of llm.c begins: with ids of two bytes where a vocabulary fits them, else of four.
struct TokenShardHeader {
  int32_t magic = 0;
  int32_t version = 0;
  int id_bytes = 2;

  std::string Bytes(int64_t tokens) const;  // of a shard with this number of ids
};
TokenShardHeader TokenShardHeaderFor(int64_t vocabulary);

class TokenShards final : public TokenSequence {
 public:
  // Errors: those of TokenShardPaths; InvalidArgument (a file that is no shard), DataLoss (a shard that was cut short;
  // another digest), ResourceExhausted (too many open files).
  static absl::StatusOr<std::unique_ptr<TokenShards>> Open(Files& files, const std::string& path,
                                                           const TokenShardOptions& options);

  int64_t tokens() const override { return starts_.back(); }
  absl::Status Copy(int64_t first, absl::Span<int32_t> ids) const override;
  void WillNeed(int64_t first, int64_t count) const override;

 private:
  struct Shard {
    std::string path;
    std::unique_ptr<RandomAccessFile> file;
    int64_t offset = 0;  // of the first id
    int id_bytes = 2;
  };

  explicit TokenShards(int64_t ids) : ids_(ids) {}
  absl::Status Add(Files& files, const std::string& path, TokenFormat format);
  // Calls `visit` with each shard of a window, the first of its tokens there, and how many.
  template <typename Visit>
  absl::Status ForParts(int64_t first, int64_t count, Visit visit) const;
  absl::Status CheckIds(const Shard& shard, int64_t first, absl::Span<const int32_t> ids) const;

  const int64_t ids_;
  std::vector<Shard> shards_;
  std::vector<int64_t> starts_ = {0};  // first token of each shard, and the end
};

}  // namespace penstock
