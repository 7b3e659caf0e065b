#include "base/glob.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace penstock {
namespace {

TEST(MatchesGlob, Stars_StandForAnyCharacters) {
  EXPECT_TRUE(MatchesGlob("h.*.attn.*", "h.0.attn.c_attn.weight"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("*.bias", "h.0.ln_1.bias"));
  EXPECT_TRUE(MatchesGlob("*a*b", "xaxbxb"));
  EXPECT_TRUE(MatchesGlob("w**e", "wte"));
  EXPECT_FALSE(MatchesGlob("*.bias", "h.0.ln_1.bias.m"));
  EXPECT_FALSE(MatchesGlob("h.*", "ln_f.weight"));
  EXPECT_FALSE(MatchesGlob("*a*b", "xbxa"));
}

TEST(MatchesGlob, OtherCharacters_StandForThemselves) {
  EXPECT_TRUE(MatchesGlob("h.?.x", "h.1.x"));
  EXPECT_FALSE(MatchesGlob("h.?.x", "h.10.x"));
  EXPECT_FALSE(MatchesGlob("h.1", "hx1"));
  EXPECT_FALSE(MatchesGlob("", "a"));
  EXPECT_FALSE(MatchesGlob("a", ""));
  EXPECT_TRUE(MatchesGlob("", ""));
}

// The definition, one character at a time.
bool Matches(const std::string& pattern, const std::string& text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    return Matches(pattern.substr(1), text) || (!text.empty() && Matches(pattern, text.substr(1)));
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         Matches(pattern.substr(1), text.substr(1));
}

TEST(MatchesGlob, IsItsDefinition_OfRandomPatterns) {
  RandomStream random(1, 0);
  const auto draw = [&](const std::string& letters, uint64_t most) {
    std::string text;
    for (uint64_t n = random.Below(most + 1); n > 0; --n) {
      text += letters[random.Below(letters.size())];
    }
    return text;
  };
  for (int i = 0; i < 20000; ++i) {
    const std::string pattern = draw("ab*?", 6), text = draw("ab", 8);
    EXPECT_EQ(MatchesGlob(pattern, text), Matches(pattern, text)) << pattern << " " << text;
  }
}

}  // namespace
}  // namespace penstock
