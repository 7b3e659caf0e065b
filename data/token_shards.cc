#include "data/token_shards.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr char kSuffix[] = ".bin";
constexpr char kFormats[] = "auto, llm.c, u16 or u32";

constexpr int64_t kHeaderNumbers = 256;
constexpr int64_t kHeaderBytes = kHeaderNumbers * static_cast<int64_t>(sizeof(int32_t));
// For the vocabularies of GPT-2 and of Llama 3.
constexpr TokenShardHeader kHeaders[] = {{20240520, 1, 2}, {20240801, 7, 4}};

// Of a shard with more bytes than kDigestedBytes, this many pieces are digested.
constexpr int64_t kDigestedPieces = 64;
constexpr int64_t kDigestPieceBytes = 1 << 16;
constexpr int64_t kDigestedBytes = kDigestedPieces * kDigestPieceBytes;

// How the ids of a shard lie.
struct Layout {
  int64_t offset = 0;
  int id_bytes = 2;
  int64_t tokens = 0;
};

absl::StatusOr<Layout> RawLayout(int64_t size_bytes, int id_bytes) {
  if (size_bytes % id_bytes != 0) {
    return absl::DataLossError(absl::StrCat("has ", size_bytes, " bytes, which are no ids of ",
                                            id_bytes,
                                            " bytes each; it was cut short, or has another format "
                                            "(data.tokens.format)"));
  }
  return Layout{0, id_bytes, size_bytes / id_bytes};
}

absl::StatusOr<Layout> LlmCLayout(const TokenShardHeader& expected, int32_t version, int32_t tokens,
                                  int64_t size_bytes) {
  if (version != expected.version) {
    return absl::InvalidArgumentError(absl::StrCat("is a token file of llm.c of version ", version,
                                                   "; expected version ", expected.version));
  }
  const int64_t wanted = kHeaderBytes + int64_t{tokens} * expected.id_bytes;
  if (tokens < 0 || size_bytes != wanted) {
    return absl::DataLossError(absl::StrCat(
        "has ", size_bytes, " bytes, but its header says ", tokens, " tokens of ",
        expected.id_bytes, " bytes, which take ", wanted, "; it was cut short, or is damaged"));
  }
  return Layout{kHeaderBytes, expected.id_bytes, tokens};
}

absl::StatusOr<Layout> LayoutOf(const RandomAccessFile& file, TokenFormat format) {
  const int64_t size_bytes = file.size_bytes();
  if (format == TokenFormat::kRaw32) return RawLayout(size_bytes, 4);
  if (format == TokenFormat::kRaw16) return RawLayout(size_bytes, 2);
  if (size_bytes >= kHeaderBytes) {
    std::array<int32_t, 3> header = {};
    PENSTOCK_RETURN_IF_ERROR(
        file.Read(0, absl::MakeSpan(reinterpret_cast<std::byte*>(header.data()), sizeof(header))));
    for (const TokenShardHeader& expected : kHeaders) {
      if (header[0] != expected.magic) continue;
      return LlmCLayout(expected, header[1], header[2], size_bytes);
    }
  }
  if (format == TokenFormat::kDetected) return RawLayout(size_bytes, 2);
  return absl::InvalidArgumentError(absl::StrCat(
      "is no token file of llm.c: its first number is neither ", kHeaders[0].magic, " nor ",
      kHeaders[1].magic, "; set data.tokens.format to what it is (", kFormats, ")"));
}

// Makes i32 of ids of `id_bytes` that lie in the last bytes of `ids`, in place.
void Widen(int id_bytes, absl::Span<int32_t> ids) {
  if (id_bytes == sizeof(int32_t)) return;
  const auto* const bytes = reinterpret_cast<const std::byte*>(ids.data());
  const std::byte* from = bytes + ids.size() * (sizeof(int32_t) - sizeof(uint16_t));
  for (int32_t& id : ids) {  // what is written stays behind what is still to be read
    uint16_t narrow;
    std::memcpy(&narrow, from, sizeof(narrow));
    id = narrow;
    from += sizeof(narrow);
  }
}

absl::Status UpdateDigest(const RandomAccessFile& file, Sha256& sha256) {
  const int64_t size_bytes = file.size_bytes();
  const bool is_whole = size_bytes <= kDigestedBytes;
  const int64_t pieces =
      is_whole ? (size_bytes + kDigestPieceBytes - 1) / kDigestPieceBytes : kDigestedPieces;
  std::vector<std::byte> piece(kDigestPieceBytes);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t offset =
        is_whole ? i * kDigestPieceBytes
                 : static_cast<int64_t>(static_cast<__int128>(i) *
                                        (size_bytes - kDigestPieceBytes) / (kDigestedPieces - 1));
    const int64_t bytes = std::min(kDigestPieceBytes, size_bytes - offset);
    PENSTOCK_RETURN_IF_ERROR(file.Read(offset, absl::MakeSpan(piece.data(), bytes)));
    sha256.Update(piece.data(), static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::string TokenShardHeader::Bytes(int64_t tokens) const {
  std::array<int32_t, kHeaderNumbers> numbers = {magic, version, static_cast<int32_t>(tokens)};
  return std::string(reinterpret_cast<const char*>(numbers.data()), kHeaderBytes);
}

TokenShardHeader TokenShardHeaderFor(int64_t vocabulary) {
  return vocabulary <= std::numeric_limits<uint16_t>::max() + 1 ? kHeaders[0] : kHeaders[1];
}

absl::StatusOr<TokenFormat> TokenFormatNamed(absl::string_view name) {
  if (name == "auto") return TokenFormat::kDetected;
  if (name == "llm.c") return TokenFormat::kLlmC;
  if (name == "u16") return TokenFormat::kRaw16;
  if (name == "u32") return TokenFormat::kRaw32;
  return absl::InvalidArgumentError(absl::StrCat("is ", name, "; expected ", kFormats));
}

absl::StatusOr<std::vector<std::string>> TokenShardPaths(Files& files, const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string last = whole.filename().string();
  const bool is_pattern = last.find_first_of("*?[") != std::string::npos;
  const std::string parent = whole.parent_path().string();
  const std::string folder = !is_pattern ? path : parent.empty() ? "." : parent;
  const absl::StatusOr<std::vector<std::string>> names = files.List(folder);
  if (!names.ok()) {
    if (is_pattern) return names.status();
    if (files.Exists(path)) return std::vector<std::string>{path};
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  std::vector<std::string> paths;
  for (const std::string& name : *names) {
    const bool fits = is_pattern ? fnmatch(last.c_str(), name.c_str(), FNM_PERIOD) == 0
                                 : absl::EndsWith(name, kSuffix);
    if (fits) paths.push_back(JoinPath(folder, name));
  }
  if (!paths.empty()) return paths;
  return absl::NotFoundError(is_pattern
                                 ? absl::StrCat(path, " matches no file")
                                 : absl::StrCat(path, " has no file that ends with ", kSuffix));
}

absl::StatusOr<std::string> DigestOfTokenShards(Files& files, const std::string& path,
                                                const std::function<bool()>& stop) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> shards, TokenShardPaths(files, path));
  Sha256 sha256;
  for (const std::string& shard : shards) {
    if (stop()) {
      return absl::CancelledError(absl::StrCat("interrupted while ", shard, " was read"));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                              files.OpenRandomAccess(shard));
    const std::string header = absl::StrCat(std::filesystem::path(shard).filename().string(), "\n",
                                            file->size_bytes(), "\n");
    sha256.Update(header.data(), header.size());
    PENSTOCK_RETURN_IF_ERROR(UpdateDigest(*file, sha256));
  }
  return sha256.HexDigest();
}

absl::StatusOr<std::unique_ptr<TokenShards>> TokenShards::Open(Files& files,
                                                               const std::string& path,
                                                               const TokenShardOptions& options) {
  if (!options.sha256.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string sha256,
                              DigestOfTokenShards(files, path, [] { return false; }));
    if (sha256 != options.sha256) {
      return absl::DataLossError(absl::StrCat(path,
                                              " has other tokens than the job's: its digest is ",
                                              sha256, ", expected ", options.sha256));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> paths, TokenShardPaths(files, path));
  auto shards = std::unique_ptr<TokenShards>(new TokenShards(options.ids));
  for (const std::string& shard : paths) {
    PENSTOCK_RETURN_IF_ERROR(shards->Add(files, shard, options.format));
  }
  return shards;
}

absl::Status TokenShards::Add(Files& files, const std::string& path, TokenFormat format) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files.OpenRandomAccess(path));
  const absl::StatusOr<Layout> layout = LayoutOf(*file, format);
  if (!layout.ok()) {
    return absl::Status(layout.status().code(), absl::StrCat(path, " ", layout.status().message()));
  }
  shards_.push_back({.path = path,
                     .file = std::move(file),
                     .offset = layout->offset,
                     .id_bytes = layout->id_bytes});
  starts_.push_back(starts_.back() + layout->tokens);
  return absl::OkStatus();
}

template <typename Visit>
absl::Status TokenShards::ForParts(int64_t first, int64_t count, Visit visit) const {
  auto shard = std::upper_bound(starts_.begin(), starts_.end(), first) - starts_.begin() - 1;
  while (count > 0) {
    const int64_t part = std::min(count, starts_[shard + 1] - first);
    if (part > 0) PENSTOCK_RETURN_IF_ERROR(visit(shards_[shard], first - starts_[shard], part));
    first += part;
    count -= part;
    ++shard;
  }
  return absl::OkStatus();
}

absl::Status TokenShards::Copy(int64_t first, absl::Span<int32_t> ids) const {
  size_t done = 0;
  return ForParts(first, static_cast<int64_t>(ids.size()),
                  [&](const Shard& shard, int64_t token, int64_t count) -> absl::Status {
                    const absl::Span<int32_t> part = ids.subspan(done, static_cast<size_t>(count));
                    const int64_t bytes = count * shard.id_bytes;
                    std::byte* const end = reinterpret_cast<std::byte*>(part.data() + part.size());
                    PENSTOCK_RETURN_IF_ERROR(shard.file->Read(shard.offset + token * shard.id_bytes,
                                                              absl::MakeSpan(end - bytes, end)));
                    Widen(shard.id_bytes, part);
                    done += part.size();
                    return CheckIds(shard, token, part);
                  });
}

absl::Status TokenShards::CheckIds(const Shard& shard, int64_t first,
                                   absl::Span<const int32_t> ids) const {
  uint32_t largest = 0;  // an id above 2^31 is negative as i32
  for (const int32_t id : ids) largest = std::max(largest, static_cast<uint32_t>(id));
  if (largest < static_cast<uint64_t>(ids_)) return absl::OkStatus();
  const auto place = std::find_if(ids.begin(), ids.end(), [largest](int32_t id) {
    return static_cast<uint32_t>(id) == largest;
  });
  return absl::InvalidArgumentError(absl::StrCat(shard.path, ": token ",
                                                 first + (place - ids.begin()), " is ", largest,
                                                 ", but the model knows the ids below ", ids_,
                                                 "; make its vocabulary larger, or take tokens of "
                                                 "its tokenizer (or set data.tokens.format, if "
                                                 "this is no file of ",
                                                 shard.id_bytes, "-byte ids)"));
}

void TokenShards::WillNeed(int64_t first, int64_t count) const {
  ForParts(first, count, [](const Shard& shard, int64_t token, int64_t part) {
    shard.file->WillNeed(shard.offset + token * shard.id_bytes, part * shard.id_bytes);
    return absl::OkStatus();
  }).IgnoreError();  // there is none
}

}  // namespace penstock
