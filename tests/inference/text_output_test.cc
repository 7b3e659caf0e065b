#include "inference/text_output.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// What is shown after each byte of `text`, then the rest.
std::vector<std::string> Shown(const std::string& text,
                               const std::vector<std::string>& stops = {}) {
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  TextOutput output(*bytes, {'>'}, stops);
  std::vector<std::string> shown;
  for (const char byte : text) {
    const auto added = output.Add(static_cast<unsigned char>(byte));
    EXPECT_THAT(added, IsOk());
    shown.push_back(added.value_or("?"));
  }
  shown.push_back(output.TakeRest());
  return shown;
}

std::string All(const std::vector<std::string>& shown) {
  std::string all;
  for (const std::string& text : shown) all += text;
  return all;
}

TEST(TextOutput, WholeCharacters_AreShownAtOnce) {
  EXPECT_EQ(Shown("ab"), (std::vector<std::string>{"a", "b", ""}));
  EXPECT_EQ(Shown("\u00e4\u20acx"),
            (std::vector<std::string>{"", "\u00e4", "", "", "\u20ac", "x", ""}));
}

TEST(TextOutput, WhatIsNoUtf8_IsShownAsItIs) {
  for (const std::string text : {"\xff\xfe", "a\xe2", "\x80\x80\x80\x80\x80", "\xf0\x9f"}) {
    EXPECT_EQ(All(Shown(text)), text);
  }
}

TEST(TextOutput, Stop_EndsTheTextBeforeIt) {
  EXPECT_EQ(Shown("one\n\ntwo", {"\n\n"}),
            (std::vector<std::string>{"o", "n", "e", "", "", "", "", "", ""}));
  EXPECT_EQ(Shown("a\nb", {"\n\n"}), (std::vector<std::string>{"a", "", "\nb", ""}));
  EXPECT_EQ(All(Shown("aab", {"ab"})), "a");
  EXPECT_EQ(All(Shown("abcab", {"cab", "bca"})), "a");
  // What might have been the beginning of a stop is shown in the end.
  EXPECT_EQ(All(Shown("xab", {"abc"})), "xab");
}

}  // namespace
}  // namespace penstock
