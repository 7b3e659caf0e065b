// JsonTokenizer: a tokenizer.json that was read, as its parts one after the other: added tokens, normalizer, words, tokens of
// words, framing; and back.
//
// Thread safety: as Tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/tokenizer.h"

namespace penstock {

// A normalized text without added tokens to ids.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the ids of `text`. Errors: those of Tokenizer::Encode.
  virtual absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) const = 0;
  virtual bool can_be_cut() const { return true; }  // see Tokenizer
  // Appends what the token adds to a text that begins (`is_first`) or goes on.
  virtual void Decode(absl::string_view token, bool is_first, std::string& text) const = 0;
};

struct TokenizerParts {
  std::vector<std::string> tokens;  // by id; "" where there is none
  std::vector<bool> is_special;     // by id
  absl::flat_hash_map<std::string, int32_t> ids;
  AddedTokens before_normalizer, after_normalizer;
  Normalizer normalizer;
  std::unique_ptr<WordModel> model;
  std::vector<int32_t> framing_before, framing_after;  // of Framing::kOfFile
  std::string unknown;                                 // the model's unknown token, or ""
};

class JsonTokenizer final : public Tokenizer {
 public:
  explicit JsonTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              Framing framing) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids,
                                     SpecialTokens special_tokens) const override;
  bool can_be_cut() const override { return parts_.model->can_be_cut(); }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(parts_.tokens.size()); }
  std::optional<int32_t> IdOf(absl::string_view token) const override;
  std::optional<int32_t> SpecialId(SpecialToken which) const override;

 private:
  const TokenizerParts parts_;
};

// The error for an id that no token has.
absl::Status NoSuchToken(size_t index, int32_t id, int64_t vocabulary_size);

// The tokens that are usual for a purpose.
absl::Span<const char* const> UsualNames(SpecialToken which);

}  // namespace penstock
