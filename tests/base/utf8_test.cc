#include "base/utf8.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace penstock {
namespace {

constexpr size_t kNone = absl::string_view::npos;

TEST(Utf8, FindInvalid_KnowsTheEdgesOfEveryRange) {
  for (const char* good : {"", "plain", "\x7F", "\u0080", "\u07FF", "\u0800", "\uD7FF", "\uE000",
                           "\uFFFF", "\U00010000", "\U0010FFFF"}) {
    EXPECT_EQ(FindInvalidUtf8(good), kNone) << good;
  }
  for (const char* bad :
       {"ab\x80", "ab\xC1\xBF", "ab\xC3", "ab\xE0\x9F\xBF", "ab\xED\xA0\x80", "ab\xE2\x82",
        "ab\xF0\x8F\xBF\xBF", "ab\xF4\x90\x80\x80", "ab\xF5", "ab\xFF", "ab\xC3("}) {
    EXPECT_EQ(FindInvalidUtf8(bad), 2u) << testing::PrintToString(bad);
  }
}

TEST(Utf8, Clean_LeavesGoodTextAlone) {
  EXPECT_EQ(CleanUtf8("caf\u00E9 \U0001F600", 100), "caf\u00E9 \U0001F600");
  EXPECT_EQ(CleanUtf8("12345", 5), "12345");
  EXPECT_EQ(CleanUtf8(absl::string_view("a\0b", 3), 5), std::string("a\0b", 3));
}

TEST(Utf8, Clean_ReplacesEachBadByte) {
  EXPECT_EQ(CleanUtf8("a\xFF\xFEz", 100), "a\uFFFD\uFFFDz");
  EXPECT_EQ(CleanUtf8("a\xC3", 100), "a\uFFFD");
}

TEST(Utf8, Clean_CutsBetweenCharacters) {
  EXPECT_EQ(CleanUtf8("123456", 5), "12...");
  EXPECT_EQ(CleanUtf8("\u00E9\u00E9\u00E9", 5), "\u00E9...");
  EXPECT_EQ(CleanUtf8("\u00E9\u00E9\u00E9", 4), "...");
  EXPECT_EQ(CleanUtf8("\xFF\xFF", 5), "...");
}

TEST(Utf8, Clean_AnyBytes_AreTextWithinTheLimit) {
  RandomStream random(1, 2);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random.Below(40), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
    const size_t bytes_max = 3 + random.Below(60);
    const std::string clean = CleanUtf8(bytes, bytes_max);
    EXPECT_EQ(FindInvalidUtf8(clean), kNone);
    EXPECT_LE(clean.size(), bytes_max);
    EXPECT_EQ(CleanUtf8(clean, bytes_max), clean);
  }
}

}  // namespace
}  // namespace penstock
