// Tokenizer: text to the numbers of its tokens, and back.
//
// LoadTokenizer reads the files of others, and gives the ids that their own libraries give: `tokenizer.json` of Hugging
// Face's `tokenizers` (byte-level BPE, WordPiece and WordLevel) and `.model` of SentencePiece (unigram and BPE). A part of a file that
// is not implemented is refused by its name and its place, so that no text is ever cut otherwise than its file says.
//
// Any bytes are taken as text. A byte that is part of no UTF-8 character
//   in byte-level BPE   is kept: it is a token (with its like beside it, perhaps several to a token), and the texts before and
//                       after it are tokenized each by itself. Decode gives the same bytes back;
//   elsewhere           is read as U+FFFD.
//
// Thread safety: all methods may be called from any thread; nothing that can be seen changes after loading.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"

namespace penstock {

// What is put around a text: the tokens that the file's post-processor adds (of a `.model`: none), or none.
enum class Framing : uint8_t { kNone, kOfFile };

// Whether Decode shows the tokens that stand for no text, such as <s>.
enum class SpecialTokens : uint8_t { kSkip, kShow };

enum class SpecialToken : uint8_t { kBos, kEos, kPadding, kUnknown, kMask };

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Special tokens that are written out in the text are their own ids where the file lists them as added tokens.
  // Errors: ResourceExhausted (the file's pattern takes too many steps for this text), InvalidArgument (a word that is no token
  // of a WordLevel model without an unknown one).
  virtual absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                                      Framing framing = Framing::kNone) const = 0;

  // The text of the ids. Its bytes need not be UTF-8, as tokens of byte-level BPE may be parts of characters.
  // Errors: OutOfRange (an id that no token has, with its index).
  virtual absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids, SpecialTokens special_tokens = SpecialTokens::kSkip) const = 0;

  // Whether a text has the ids of its pieces, one after the other, where each piece but the last ends with a letter before a line
  // end. Not so if something is put before every text, such as a space. (Of unigram models the sum of scores so far is
  // rounded, so that of ways that are as good but for that, a piece may have another than the whole text.)
  virtual bool can_be_cut() const = 0;

  // One more than the largest id, so what a model needs. There may be ids below that no token has.
  virtual int64_t vocabulary_size() const = 0;

  // The id of the token that the file writes so.
  virtual std::optional<int32_t> IdOf(absl::string_view token) const = 0;

  // The special token of that purpose: what a `.model` says, and in `tokenizer.json`, which does not say it, the token with one
  // of the usual names (<s>, <|begin_of_text|>, [PAD], ...).
  virtual std::optional<int32_t> SpecialId(SpecialToken which) const = 0;
};

// The tokenizer `bytes`: every byte is a token, and its id.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

// `path`: a `tokenizer.json` (or another name that ends with .json), a `.model`, or a directory with either.
// Errors have the path in front: those of files; InvalidArgument (not such a file, truncated, or it contradicts itself),
// Unimplemented (a part that is not known here), OutOfRange (larger than limits.h allows).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(Files& files, const std::string& path);

// The usual names of both kinds of file.
inline constexpr char kTokenizerJsonName[] = "tokenizer.json";
inline constexpr char kTokenizerModelName[] = "tokenizer.model";

// The names that a tokenizer's file may have in a directory, the one that counts first in front.
absl::Span<const char* const> TokenizerFileNames();

// The usual name of a file of the kind that the name of `file` says. REQUIRES: FindTokenizerFile gave it.
const char* UsualTokenizerName(absl::string_view file);

// The file that LoadTokenizer reads for `path`: itself, or that of a directory. Of a directory with both kinds it is the
// tokenizer.json, unless that has parts that are not known here, as those of Llama 2 and Mistral do; then it is the
// tokenizer.model, which has the same ids. Errors: NotFound, InvalidArgument (it is neither), those of `files`.
absl::StatusOr<std::string> FindTokenizerFile(Files& files, const std::string& path);

// The same as LoadTokenizer, with the file that was read: once, whatever the directory has. `check` sees its path and content before an error of its
// content is told. Errors: as LoadTokenizer, and that of `check`.
struct TokenizerFile {
  std::string path;
  std::string content;
  std::unique_ptr<Tokenizer> tokenizer = nullptr;
};
absl::StatusOr<TokenizerFile> OpenTokenizerFile(
    Files& files, const std::string& path,
    absl::FunctionRef<absl::Status(const TokenizerFile& file)> check);

// The same as LoadTokenizer of the content of a file, whose name says its kind. Errors: as LoadTokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerFile(Files& files, const std::string& file,
                                                              absl::string_view content);

// The same of contents. Errors: as LoadTokenizer, without the path.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(absl::string_view json);
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceModel(absl::string_view model);

}  // namespace penstock
