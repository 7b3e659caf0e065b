// A tokenizer whose tokens are the characters of a text: `tokenizer: characters` of a job.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

// The distinct characters of `text`, ascending; the place of each is its id. A byte that is part of no character counts as
// U+FFFD.
std::vector<char32_t> AlphabetOf(absl::string_view text);

// A tokenizer.json of these characters for Hugging Face's `tokenizers` and LoadTokenizer: WordLevel, with words of one character.
std::string CharacterTokenizerJson(absl::string_view text);

}  // namespace penstock
