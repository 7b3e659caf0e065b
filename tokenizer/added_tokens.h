// AddedTokens: the tokens that are found in a text before anything else is done with it, such as <|endoftext|>: at each place
// the longest of them.
//
// Immutable once made; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tokenizer/byte_trie.h"

namespace penstock {

class AddedTokens {
 public:
  AddedTokens() = default;
  // Texts and ids. REQUIRES: no text is empty.
  explicit AddedTokens(const std::vector<std::pair<std::string, int32_t>>& tokens)
      : trie_(Views(tokens)), empty_(tokens.empty()) {
    for (const auto& token : tokens) begins_[static_cast<uint8_t>(token.first[0])] = true;
  }

  struct Found {
    size_t begin = 0;
    size_t end = 0;  // begin == end: there is none
    int32_t id = -1;
  };
  // The first in `text` at or after `start`.
  Found Find(absl::string_view text, size_t start) const {
    if (empty_) return {text.size(), text.size()};
    for (size_t at = start; at < text.size(); ++at) {
      if (!begins_[static_cast<uint8_t>(text[at])]) continue;
      const ByteTrie::Found found = trie_.Longest(text.substr(at));
      if (found.value >= 0) return {at, at + found.bytes, found.value};
    }
    return {text.size(), text.size()};
  }

 private:
  static std::vector<std::pair<absl::string_view, int32_t>> Views(
      const std::vector<std::pair<std::string, int32_t>>& tokens) {
    return {tokens.begin(), tokens.end()};
  }

  ByteTrie trie_;
  bool begins_[256] = {};
  bool empty_ = true;
};

}  // namespace penstock
