// TextOutput: the text of tokens that come one by one, for a reader who wants it as soon as it is sure.
//
// Held back are the bytes of a character that is not complete, and what may be the beginning of a text to stop at.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace penstock {

class TextOutput {
 public:
  // `before`: the tokens that came before, whose text is known. REQUIRES: `tokenizer` outlives it; no stop is empty.
  TextOutput(const Tokenizer& tokenizer, std::vector<int32_t> before,
             std::vector<std::string> stops);

  // Takes the next token, and returns what can be shown now, before the first text to stop at.
  // Errors: OutOfRange (an id that no token has).
  absl::StatusOr<std::string> Add(int32_t token);
  // No more tokens come: what was held back.
  std::string TakeRest();

  // Whether a text to stop at has come.
  bool stopped() const { return stopped_; }

 private:
  // The text of taken_ and pending_, and where that of pending_ begins in it.
  struct Decoded {
    std::string text;
    size_t begin = 0;
  };
  absl::StatusOr<Decoded> Decode() const;
  // Of held_, what can be shown.
  std::string TakeSure();

  const Tokenizer& tokenizer_;
  const std::vector<std::string> stops_;
  // A token's text may depend on the one before it, so the last tokens whose text was taken are decoded with the new ones.
  std::vector<int32_t> taken_, pending_;
  std::string held_;  // decoded, but not sure
  bool stopped_ = false;
};

}  // namespace penstock
