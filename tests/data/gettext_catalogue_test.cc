#include "data/gettext_catalogue.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Entry = std::pair<std::string, std::string>;

// A catalogue as msgfmt writes it: header, both tables, strings.
class Catalogue {
 public:
  explicit Catalogue(bool big_endian = false) : big_endian_(big_endian) {}

  std::string Of(const std::vector<Entry>& entries, uint32_t revision = 0) {
    const auto count = static_cast<uint32_t>(entries.size());
    std::string file = Words({0x950412DE, revision, count, 20, 20 + 8 * count});
    std::string strings;
    const uint32_t strings_at = 20 + 16 * count;
    for (const bool translations : {false, true}) {
      for (const auto& [original, translation] : entries) {
        const std::string& text = translations ? translation : original;
        file += Words({static_cast<uint32_t>(text.size()),
                       static_cast<uint32_t>(strings_at + strings.size())});
        strings += text + '\0';
      }
    }
    return file + strings;
  }

  std::string Words(const std::vector<uint32_t>& words) const {
    std::string bytes;
    for (const uint32_t word : words) {
      for (int i = 0; i < 4; ++i) {
        bytes.push_back(static_cast<char>(word >> 8 * (big_endian_ ? 3 - i : i)));
      }
    }
    return bytes;
  }

 private:
  const bool big_endian_;
};

Entry Header(const std::string& charset) {
  return {"", "Language: de\nContent-Type: text/plain; charset=" + charset + "\n"};
}

const std::vector<Entry> kEntries = {
    Header("UTF-8"),
    {"Open", "Öffnen"},
    {std::string("menu\4Close"), "Schließen"},
    {std::string("%d file\0%d files", 16), std::string("%d Datei\0%d Dateien", 19)}};

TEST(GettextCatalogue, Messages_LoseContextsAndSplitPlurals) {
  for (const bool big_endian : {false, true}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto messages,
                                  ReadGettextCatalogue(Catalogue(big_endian).Of(kEntries)));
    EXPECT_THAT(messages,
                ElementsAre(GettextMessage{"Open", "Öffnen"}, GettextMessage{"Close", "Schließen"},
                            GettextMessage{"%d file", "%d Datei"},
                            GettextMessage{"%d files", "%d Dateien"}));
  }
}

TEST(GettextCatalogue, PluralOfOtherForms_IsLeftOut) {
  const std::string one_form = Catalogue().Of({{std::string("a\0b", 3), "c"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto one, ReadGettextCatalogue(one_form));
  EXPECT_THAT(one, ElementsAre(GettextMessage{"a", "c"}));
  const std::string three_forms =
      Catalogue().Of({{std::string("a\0b", 3), std::string("c\0d\0e", 5)}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto three, ReadGettextCatalogue(three_forms));
  EXPECT_THAT(three, ElementsAre(GettextMessage{"a", "c"}));
}

TEST(GettextCatalogue, OtherCharacterSet_BecomesUtf8) {
  const std::string file = Catalogue().Of({Header("ISO-8859-1"),
                                           {"Open",
                                            "\xD6"
                                            "ffnen"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto messages, ReadGettextCatalogue(file));
  EXPECT_THAT(messages, ElementsAre(GettextMessage{"Open", "Öffnen"}));
}

TEST(GettextCatalogue, WhatCannotBeRead_IsNamed) {
  const std::pair<std::string, const char*> cases[] = {
      {Catalogue().Of({Header("UTF-8"),
                       {"Open",
                        "\xD6"
                        "ffnen"}}),
       "not in its character set"},
      {Catalogue().Of({Header("KLINGON-8")}), "\"KLINGON-8\""},
      {Catalogue().Of(kEntries, 2 << 16), "of revision 2"},
      {"", "it has 0 bytes"},
      {std::string(100, 'x'), "magic number"}};
  for (const auto& [file, reason] : cases) {
    EXPECT_THAT(ReadGettextCatalogue(file).status().message(), HasSubstr(reason));
  }
}

// A file that is cut anywhere, even by its last byte, and one whose numbers lead outside, is refused and never read
// beyond its end (the address sanitizer would see that).
TEST(GettextCatalogue, CutAnywhere_IsRefused) {
  const std::string whole = Catalogue().Of(kEntries);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(ReadGettextCatalogue(whole.substr(0, size)).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut short")))
        << size;
  }
}

TEST(GettextCatalogue, NumbersThatLeadOutside_AreRefused) {
  const std::string whole = Catalogue().Of(kEntries);
  const Catalogue words;
  for (const size_t at : {8, 12, 16, 20, 24, 28, 52}) {
    for (const uint32_t value : {0x7FFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFF0u}) {
      std::string broken = whole;
      broken.replace(at, 4, words.Words({value}));
      EXPECT_THAT(ReadGettextCatalogue(broken).status(),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut short")))
          << at << " " << value;
    }
  }
}

// All strings are at one place, and would be a thousand times as large as the file.
TEST(GettextCatalogue, StringsThatAreTooLargeTogether_AreRefused) {
  const Catalogue words;
  constexpr uint32_t kStrings = 1000;
  constexpr uint32_t kTextBytes = 1 << 20;
  constexpr uint32_t kTextAt = 20 + 16 * kStrings;
  std::string file = words.Words({0x950412DE, 0, kStrings, 20, 20 + 8 * kStrings});
  for (uint32_t i = 0; i < 2 * kStrings; ++i) file += words.Words({kTextBytes, kTextAt});
  file += std::string(kTextBytes, 'x') + '\0';
  EXPECT_THAT(ReadGettextCatalogue(file),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bytes together")));
}

}  // namespace
}  // namespace penstock
