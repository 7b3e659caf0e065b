#include "data/token_sets.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "data/token_shards.h"
#include "tokenizer/byte_pair_training.h"
#include "tokenizer/limits.h"

namespace penstock {
namespace {

constexpr size_t kEncodedBytes = size_t{1} << 20;   // of text, which a thread encodes at a time
constexpr size_t kLineBytesMax = size_t{64} << 20;  // longer ones are cut
constexpr char kJsonLines[] = ".jsonl";

// What is encoded at a time: a document, or a part of one.
struct Piece {
  std::string text;
  bool ends_document = false;
};

// Writes tokens to numbered shards.
class ShardWriter {
 public:
  ShardWriter(Files& files, std::string directory, int64_t vocabulary, int64_t shard_bytes_max)
      : files_(files),
        directory_(std::move(directory)),
        header_(TokenShardHeaderFor(vocabulary)),
        bytes_max_(shard_bytes_max) {}

  absl::Status Add(absl::Span<const int32_t> ids) {
    for (const int32_t id : ids) {
      const auto bytes = static_cast<uint32_t>(id);  // little-endian, as all machines here
      values_.append(reinterpret_cast<const char*>(&bytes), header_.id_bytes);
      if (static_cast<int64_t>(values_.size()) >= bytes_max_) PENSTOCK_RETURN_IF_ERROR(Write());
    }
    return absl::OkStatus();
  }

  absl::Status Finish() { return values_.empty() ? absl::OkStatus() : Write(); }

  int64_t tokens() const { return tokens_; }
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  absl::Status Write() {
    const int64_t count = static_cast<int64_t>(values_.size()) / header_.id_bytes;
    const std::string header = header_.Bytes(count);
    paths_.push_back(JoinPath(directory_, absl::StrFormat("%06d.bin", paths_.size())));
    tokens_ += count;
    PENSTOCK_RETURN_IF_ERROR(files_.WriteDurably(
        paths_.back(), {absl::string_view(header), absl::string_view(values_)}));
    values_.clear();
    return absl::OkStatus();
  }

  Files& files_;
  const std::string directory_;
  const TokenShardHeader header_;
  const int64_t bytes_max_;
  std::string values_;
  int64_t tokens_ = 0;
  std::vector<std::string> paths_;
};

// Encodes pieces on several threads and writes them in order.
class PieceEncoder {
 public:
  PieceEncoder(const Tokenizer& tokenizer, int threads, ShardWriter& writer)
      : tokenizer_(tokenizer),
        end_(tokenizer.SpecialId(SpecialToken::kEos)),
        threads_(threads),
        writer_(writer) {}

  absl::Status Encode(absl::Span<const Piece> pieces) {
    std::vector<absl::StatusOr<std::vector<int32_t>>> ids(pieces.size());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < threads_; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t i = thread; i < pieces.size(); i += threads_) {
          ids[i] = tokenizer_.Encode(pieces[i].text);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < pieces.size(); ++i) {
      PENSTOCK_RETURN_IF_ERROR(ids[i].status());
      if (pieces[i].ends_document && end_.has_value()) ids[i]->push_back(*end_);
      PENSTOCK_RETURN_IF_ERROR(writer_.Add(*ids[i]));
    }
    return absl::OkStatus();
  }

 private:
  const Tokenizer& tokenizer_;
  const std::optional<int32_t> end_;
  const int threads_;
  ShardWriter& writer_;
};

// Adds the pieces of `text` and returns what is left of it: nothing, or what goes on with text that is still to come.
absl::string_view Cut(absl::string_view text, bool is_whole, size_t piece_bytes,
                      std::vector<Piece>& pieces) {
  while (!text.empty()) {
    size_t end = PieceEnd(text, piece_bytes);
    const bool is_last = end == text.size();
    if (is_last && !is_whole) {
      if (text.size() < kLineBytesMax) break;
      end = std::min(text.find_last_of(" \n"), end - 1) + 1;  // of such a line some place must do
    }
    pieces.push_back({std::string(text.substr(0, end)), is_last && is_whole});
    text.remove_prefix(end);
  }
  return text;
}

// A file of texts, piece by piece, of which no more than a few are in memory.
class PieceReader {
 public:
  // `piece_bytes`: of a piece; `pieces`: as many are read at a time.
  static absl::StatusOr<PieceReader> Open(Files& files, const std::string& path,
                                          const std::string& field, size_t piece_bytes,
                                          size_t pieces) {
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files.OpenRandomAccess(path));
    return PieceReader(std::move(file), absl::EndsWith(path, kJsonLines), field, piece_bytes,
                       pieces * kEncodedBytes);
  }

  // The next pieces; none: that was all.
  absl::StatusOr<std::vector<Piece>> Next() {
    std::vector<Piece> pieces;
    while (pieces.empty() && !(at_end() && buffer_.empty())) {
      PENSTOCK_RETURN_IF_ERROR(Fill());
      absl::string_view rest = buffer_;
      if (is_json_) {
        PENSTOCK_ASSIGN_OR_RETURN(rest, TakeLines(rest, pieces));
      } else {
        rest = Cut(rest, at_end(), piece_bytes_, pieces);
      }
      buffer_.erase(0, buffer_.size() - rest.size());
      if (!pieces.empty() || at_end()) break;
    }
    return pieces;
  }

  int64_t done_bytes() const { return offset_ - static_cast<int64_t>(buffer_.size()); }

 private:
  PieceReader(std::unique_ptr<RandomAccessFile> file, bool is_json, std::string field,
              size_t piece_bytes, size_t buffer_bytes)
      : file_(std::move(file)),
        is_json_(is_json),
        field_(std::move(field)),
        piece_bytes_(piece_bytes),
        buffer_bytes_(buffer_bytes) {}

  bool at_end() const { return offset_ == file_->size_bytes(); }

  absl::Status Fill() {
    const int64_t bytes =
        std::min<int64_t>(static_cast<int64_t>(buffer_bytes_), file_->size_bytes() - offset_);
    const size_t before = buffer_.size();
    buffer_.resize(before + static_cast<size_t>(bytes));
    PENSTOCK_RETURN_IF_ERROR(
        file_->Read(offset_, absl::MakeSpan(reinterpret_cast<std::byte*>(buffer_.data() + before),
                                            static_cast<size_t>(bytes))));
    offset_ += bytes;
    return absl::OkStatus();
  }

  // The documents of whole lines; what is left is the beginning of one.
  absl::StatusOr<absl::string_view> TakeLines(absl::string_view text, std::vector<Piece>& pieces) {
    for (;;) {
      const size_t end = text.find('\n');
      if (end == absl::string_view::npos && (!at_end() || text.empty())) return text;
      ++line_;
      PENSTOCK_RETURN_IF_ERROR(TakeLine(text.substr(0, end), pieces));
      text.remove_prefix(std::min(end, text.size() - 1) + 1);
    }
  }

  absl::Status TakeLine(absl::string_view text, std::vector<Piece>& pieces) const {
    if (absl::StripAsciiWhitespace(text).empty()) return absl::OkStatus();
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains(field_) || !json[field_].is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", line_, " is no JSON object with a text in the field ", field_,
          "; name the field with --field, or give the file another name if it is plain text"));
    }
    Cut(json[field_].get<std::string>(), /*is_whole=*/true, piece_bytes_, pieces);
    return absl::OkStatus();
  }

  std::unique_ptr<RandomAccessFile> file_;
  const bool is_json_;
  const std::string field_;
  const size_t piece_bytes_;
  const size_t buffer_bytes_;  // that are read at a time
  int64_t offset_ = 0;         // of what is not in the buffer
  std::string buffer_;         // read, and not yet taken
  int64_t line_ = 0;
};

// What a vocabulary is learned from.
absl::StatusOr<std::string> BeginningOf(Files& files, const TokenSetOptions& options) {
  std::string text;
  for (const std::string& path : options.from) {
    absl::StatusOr<PieceReader> reader =
        PieceReader::Open(files, path, options.field, kEncodedBytes, /*pieces=*/1);
    PENSTOCK_RETURN_IF_ERROR(reader.status());
    for (;;) {
      const absl::StatusOr<std::vector<Piece>> pieces = reader->Next();
      if (!pieces.ok()) return Annotate(pieces.status(), path);
      if (pieces->empty()) break;
      for (const Piece& piece : *pieces) text += piece.text;
      if (static_cast<int64_t>(text.size()) >= options.learned_bytes_max) return text;
    }
  }
  return text;
}

struct ChosenTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  const char* name = kTokenizerJsonName;  // of its file
  std::string content;
};

// That of options.tokenizer, or one that is learned. It is read where the user has it, so that errors name this file, and
// not a copy.
absl::StatusOr<ChosenTokenizer> ChooseTokenizer(Files& files, const TokenSetOptions& options) {
  ChosenTokenizer chosen;
  if (!options.tokenizer.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(TokenizerFile file,
                              OpenTokenizerFile(files, options.tokenizer, [](const TokenizerFile&) {
                                return absl::OkStatus();
                              }));
    chosen.name = UsualTokenizerName(file.path);
    chosen.content = std::move(file.content);
    chosen.tokenizer = std::move(file.tokenizer);
    return chosen;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, BeginningOf(files, options));
  PENSTOCK_ASSIGN_OR_RETURN(chosen.content,
                            TrainBytePairs(text, {.vocabulary_size = options.vocabulary}));
  PENSTOCK_ASSIGN_OR_RETURN(chosen.tokenizer, ParseTokenizerJson(chosen.content));
  return chosen;
}

absl::Status CheckEmpty(Files& files, const TokenSetOptions& options) {
  if (options.from.empty()) return absl::InvalidArgumentError("there is no text to take tokens of");
  if (!TokenShardPaths(files, options.to).ok()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(options.to, " has token files already; name another directory"));
}

absl::StatusOr<int64_t> SizeOf(Files& files, const std::vector<std::string>& paths) {
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                              files.OpenRandomAccess(path));
    bytes += file->size_bytes();
  }
  return bytes;
}

}  // namespace

size_t PieceEnd(absl::string_view text, size_t from) {
  for (size_t end = std::max<size_t>(from, 1); end < text.size(); ++end) {
    if ((text[end] == '\n' || text[end] == '\r') && absl::ascii_isalpha(text[end - 1])) return end;
  }
  return text.size();
}

absl::StatusOr<PreparedTokens> PrepareTokens(Files& files, const TokenSetOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckEmpty(files, options));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t all_bytes, SizeOf(files, options.from));
  const auto report = [&](int64_t done, const std::string& what) {
    return options.progress ? options.progress(done, all_bytes, what) : absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(options.to));
  PreparedTokens prepared;
  PENSTOCK_RETURN_IF_ERROR(
      report(0, options.tokenizer.empty() ? "learning a vocabulary" : options.tokenizer));
  PENSTOCK_ASSIGN_OR_RETURN(const ChosenTokenizer chosen, ChooseTokenizer(files, options));
  const Tokenizer& tokenizer = *chosen.tokenizer;
  prepared.tokenizer = JoinPath(options.to, chosen.name);
  PENSTOCK_RETURN_IF_ERROR(
      files.WriteDurably(prepared.tokenizer, {absl::string_view(chosen.content)}));
  prepared.vocabulary = tokenizer.vocabulary_size();
  const size_t piece_bytes = tokenizer.can_be_cut() ? kEncodedBytes : kLineBytesMax;
  int64_t done_bytes = 0;  // of the files before
  ShardWriter writer(files, options.to, prepared.vocabulary, options.shard_bytes_max);
  PieceEncoder encoder(tokenizer, options.threads, writer);
  for (const std::string& path : options.from) {
    // As much as keeps the threads busy, but so little that progress is seen.
    absl::StatusOr<PieceReader> reader = PieceReader::Open(
        files, path, options.field, piece_bytes, 4 * static_cast<size_t>(options.threads));
    PENSTOCK_RETURN_IF_ERROR(reader.status());
    for (;;) {
      const absl::StatusOr<std::vector<Piece>> pieces = reader->Next();
      if (!pieces.ok()) return Annotate(pieces.status(), path);
      if (pieces->empty()) break;
      PENSTOCK_RETURN_IF_ERROR(Annotate(encoder.Encode(*pieces), path));
      for (const Piece& piece : *pieces) {
        prepared.text_bytes += static_cast<int64_t>(piece.text.size());
        prepared.documents += piece.ends_document ? 1 : 0;
      }
      PENSTOCK_RETURN_IF_ERROR(report(done_bytes + reader->done_bytes(), path));
    }
    done_bytes += reader->done_bytes();
  }
  PENSTOCK_RETURN_IF_ERROR(writer.Finish());
  if (writer.tokens() == 0) return absl::InvalidArgumentError("the texts are empty");
  prepared.tokens = writer.tokens();
  prepared.shards = writer.paths();
  return prepared;
}

}  // namespace penstock
