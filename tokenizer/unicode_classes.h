// What utf8proc says of a character, as BERT's rules ask for it.
//
// Plain functions. REQUIRES: code < kCharactersEnd.
#pragma once

namespace penstock {

// Categories Cc, Cf and Co, but for tab and the ends of lines.
bool IsControl(char32_t code);
bool IsNonspacingMark(char32_t code);
// ASCII's symbols, too.
bool IsPunctuation(char32_t code);
char32_t LowerCaseOf(char32_t code);

}  // namespace penstock
