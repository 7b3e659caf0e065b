#include "data/text_pairs.h"

#include <gtest/gtest.h>

#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TextPairsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& content) {
    ASSERT_THAT(files_.WriteDurably(path, {content}), IsOk());
  }

  MemoryFiles files_;
};

TEST_F(TextPairsTest, Table_IsReadByLine) {
  Write("/a.tsv", "one\teins\ntwo\tzwei\tmore\n");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto pairs, ReadPairFile(files_, "/a.tsv"));
  EXPECT_THAT(pairs, ElementsAre(TextPair{"one", "eins"}, TextPair{"two", "zwei"}));
}

TEST_F(TextPairsTest, Texts_AreReadSideBySide) {
  Write("/en", "one\ntwo\n");
  Write("/de", "eins\nzwei");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto pairs, ReadParallelTexts(files_, "/en", "/de"));
  EXPECT_THAT(pairs, ElementsAre(TextPair{"one", "eins"}, TextPair{"two", "zwei"}));
}

TEST_F(TextPairsTest, WhatCannotBeRead_IsNamedWithItsPlace) {
  Write("/a.tsv", "one\teins\ntwo zwei\n");
  EXPECT_THAT(ReadPairFile(files_, "/a.tsv").status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/a.tsv:2: has no tab")));
  Write("/b.tsv", "one\t\xD6ins\n");
  EXPECT_THAT(ReadPairFile(files_, "/b.tsv").status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/b.tsv is not UTF-8")));
  EXPECT_THAT(ReadPairFile(files_, "/a.txt").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/a.txt is none of")));
  Write("/c.mo", "no catalogue, but longer than its header");
  EXPECT_THAT(ReadPairFile(files_, "/c.mo").status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/c.mo: is no gettext catalogue")));
  Write("/en", "one\ntwo\n");
  Write("/de", "eins\n");
  EXPECT_THAT(ReadParallelTexts(files_, "/en", "/de").status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/en has 2 lines, but /de has 1")));
}

TEST(CleanPairs, WhiteSpaceAndAccessMarks_AreTakenOut) {
  const CleanPairs clean = Clean({{" Save\n\tas ", "Sichern  als"},
                                  {"_Open", "Ö_ffnen"},
                                  {"&Close", "Sch&ließen"},
                                  {"file_name of", "Name _von"},
                                  {"a_b_c of", "d_e von"},
                                  {"R & D at", "F & E bei"}},
                                 400);
  EXPECT_THAT(clean.pairs,
              ElementsAre(TextPair{"Save as", "Sichern als"}, TextPair{"Open", "Öffnen"},
                          TextPair{"Close", "Schließen"}, TextPair{"filename of", "Name von"},
                          TextPair{"a_b_c of", "d_e von"}, TextPair{"R & D at", "F & E bei"}));
}

TEST(CleanPairs, EachFault_IsCounted) {
  const std::pair<TextPair, PairFault> cases[] = {
      {{"one", " "}, PairFault::kEmpty},
      {{"\n", "eins"}, PairFault::kEmpty},
      {{"Name ", "Name"}, PairFault::kSame},
      {{"a <b>bold</b> word", "ein fettes Wort"}, PairFault::kMarkup},
      {{"this &amp; that", "dies und das"}, PairFault::kMarkup},
      {{"one", "&#39;"}, PairFault::kMarkup},
      {{"%1: 2", "%2: 3"}, PairFault::kNoLetters},
      {{std::string(41, 'a'), "b"}, PairFault::kLong},
      {{"abcd", std::string(25, 'b')}, PairFault::kUneven}};
  for (const auto& [pair, fault] : cases) {
    const CleanPairs clean = Clean({pair}, 40);
    EXPECT_THAT(clean.pairs, IsEmpty()) << pair.source;
    EXPECT_EQ(clean.left_out[static_cast<size_t>(fault)], 1) << pair.source;
  }
}

TEST(CleanPairs, WhatOnlyLooksLikeAFault_Stays) {
  const std::vector<TextPair> pairs = {{"less < more", "weniger < mehr"},
                                       {"if a<b then", "falls a<b dann"},
                                       {"one & two; three", "eins & zwei; drei"},
                                       {"a", std::string(21, 'b')},
                                       {"Größe of", "Größe von"}};
  EXPECT_EQ(Clean(pairs, 400).pairs, pairs);
}

TEST(CleanPairs, RepeatedSource_KeepsItsFirstTarget) {
  const CleanPairs clean =
      Clean({{"Open", "Öffnen"}, {"_Open", "_Aufmachen"}, {"Open", "Offen"}}, 400);
  EXPECT_THAT(clean.pairs, ElementsAre(TextPair{"Open", "Öffnen"}));
  EXPECT_EQ(clean.left_out[static_cast<size_t>(PairFault::kRepeated)], 2);
  EXPECT_EQ(clean.read, 3);
}

}  // namespace
}  // namespace penstock
