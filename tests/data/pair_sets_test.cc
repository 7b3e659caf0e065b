// Pairs from texts to directories and back, with SentencePiece's own programs.
#include "data/pair_sets.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
#include "data/record_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPairs = 600;

TextPair PairOf(int64_t i) {
  constexpr const char* kThings[] = {"file", "window", "device", "message", "directory"};
  constexpr const char* kDinge[] = {"Datei", "Fenster", "Gerät", "Nachricht", "Verzeichnis"};
  return {absl::StrCat("The ", kThings[i % 5], " number ", i, " cannot be opened"),
          absl::StrCat("Nummer ", i, " von ", kDinge[i % 5], " lässt sich nicht öffnen")};
}

class PairSetsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string table;
    for (int64_t i = 0; i < kPairs; ++i) {
      absl::StrAppend(&table, PairOf(i).source, "\t", PairOf(i).target, "\n");
    }
    absl::StrAppend(&table, PairOf(3).source, "\tnoch einmal\n", "same\tsame\n");
    ASSERT_THAT(RealFiles().WriteDurably(Path("pairs.tsv"), {table}), IsOk());
    options_ = {.files = {Path("pairs.tsv")},
                .to = Path("out"),
                .validation_fraction = 0.1,
                .test_fraction = 0.2,
                .training = {.pieces = 120}};
  }
  std::string Path(absl::string_view name) const {
    return (directory_.path() / std::string(name)).string();
  }
  std::unique_ptr<PairFiles> Part(const std::string& name) {
    auto pairs = PairFiles::Open(RealFiles(), Path(name), {.checked_bytes_max = 1 << 30});
    EXPECT_THAT(pairs, IsOk());
    return *std::move(pairs);
  }

  TestDirectory directory_;
  PairSetOptions options_;
};

TEST_F(PairSetsTest, Prepared_ReadsBackAsTheSameText) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedPairs prepared, PreparePairs(RealFiles(), options_));
  EXPECT_EQ(prepared.facts.vocabulary,
            (PieceNumbers{prepared.facts.vocabulary.pieces, 0, 1, 2, 3}));
  EXPECT_GT(prepared.facts.vocabulary.pieces, 50);
  std::map<std::string, std::string> target_of;
  for (const char* name : {"out/train", "out/validation", "out/test"}) {
    const auto pairs = Part(name);
    EXPECT_EQ(pairs->vocabulary(), prepared.facts.vocabulary);
    EXPECT_EQ(pairs->facts().counts, prepared.facts.counts);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const PieceList list, pairs->ReadPieceList(RealFiles()));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto sources,
                                  pairs->ReadTexts(RealFiles(), PairSide::kSource));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto targets,
                                  pairs->ReadTexts(RealFiles(), PairSide::kTarget));
    for (int64_t pair = 0; pair < pairs->pairs(); ++pair) {
      for (const PairSide side : {PairSide::kSource, PairSide::kTarget}) {
        std::vector<int32_t> pieces(pairs->PiecesOf(side, pair));
        ASSERT_THAT(pairs->Read(side, pair, absl::MakeSpan(pieces)), IsOk());
        EXPECT_EQ(list.TextOf(pieces), side == PairSide::kSource ? sources[pair] : targets[pair]);
      }
      EXPECT_TRUE(target_of.emplace(sources[pair], targets[pair]).second) << sources[pair];
    }
  }
  ASSERT_EQ(target_of.size(), kPairs);
  for (int64_t i = 0; i < kPairs; ++i) EXPECT_EQ(target_of[PairOf(i).source], PairOf(i).target);
}

TEST_F(PairSetsTest, Parts_FollowFromTheSourceAlone) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedPairs prepared, PreparePairs(RealFiles(), options_));
  EXPECT_NEAR(static_cast<double>(Part("out/test")->pairs()), 0.2 * kPairs, 30);
  EXPECT_NEAR(static_cast<double>(Part("out/validation")->pairs()), 0.1 * kPairs, 25);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tested,
                                Part("out/test")->ReadTexts(RealFiles(), PairSide::kSource));
  // Only half of the pairs, and another validation part: what was in the test part still is.
  std::string half;
  for (int64_t i = 0; i < kPairs; i += 2) {
    absl::StrAppend(&half, PairOf(i).source, "\t", PairOf(i).target, "\n");
  }
  ASSERT_THAT(RealFiles().WriteDurably(Path("half.tsv"), {half}), IsOk());
  options_.files = {Path("half.tsv")};
  options_.to = Path("half");
  options_.validation_fraction = 0.3;
  ASSERT_THAT(PreparePairs(RealFiles(), options_), IsOk());
  const std::set<std::string> before(tested.begin(), tested.end());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto after,
                                Part("half/test")->ReadTexts(RealFiles(), PairSide::kSource));
  EXPECT_GT(after.size(), 30u);
  for (const std::string& source : after) EXPECT_EQ(before.count(source), 1u) << source;
}

TEST_F(PairSetsTest, Repeated_GivesTheSameBytes) {
  ASSERT_THAT(PreparePairs(RealFiles(), options_), IsOk());
  options_.to = Path("again");
  ASSERT_THAT(PreparePairs(RealFiles(), options_), IsOk());
  for (const char* part : {"train", "validation", "test"}) {
    EXPECT_EQ(Part(absl::StrCat("out/", part))->records().sha256(),
              Part(absl::StrCat("again/", part))->records().sha256());
  }
}

TEST_F(PairSetsTest, GivenPieces_AreUsed) {
  ASSERT_THAT(PreparePairs(RealFiles(), options_), IsOk());
  options_.to = Path("more");
  options_.piece_model = Path("out/train/pieces.model");
  ASSERT_THAT(PreparePairs(RealFiles(), options_), IsOk());
  EXPECT_EQ(Part("out/test")->records().index().shards,
            Part("more/test")->records().index().shards);
  options_.to = Path("none");
  options_.piece_model = Path("pairs.tsv");
  EXPECT_THAT(PreparePairs(RealFiles(), options_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("pairs.tsv: spm_export_vocab failed"))));
}

TEST_F(PairSetsTest, WhatCannotBeDone_IsSaid) {
  const auto error = [&] { return PreparePairs(RealFiles(), options_).status(); };
  ASSERT_THAT(error(), IsOk());
  EXPECT_THAT(error(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("out/test/index.json")));
  options_.to = Path("other");
  options_.test_fraction = 0.95;
  EXPECT_THAT(error(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leave none")));
  options_.test_fraction = 0.2;
  options_.bytes_max = 10;
  EXPECT_THAT(error(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("of 602 pairs that were read, 0 are left")));
  options_.files.clear();
  EXPECT_THAT(error(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing to read")));
  EXPECT_FALSE(std::filesystem::exists(Path("other")));
}

TEST_F(PairSetsTest, Stop_EndsTheProgramThatRuns) {
  options_.stop = [] { return true; };
  EXPECT_THAT(PreparePairs(RealFiles(), options_).status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("spm_train was interrupted")));
}

TEST_F(PairSetsTest, Open_WhatAreNoPairs_IsRefused) {
  auto writer = RecordWriter::Create(RealFiles(), Path("records"), {{"label", "I32", {}}}, 1000);
  ASSERT_THAT(writer, IsOk());
  const int32_t label = 1;
  ASSERT_THAT((*writer)->Add({absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&label), 4)}),
              IsOk());
  ASSERT_THAT((*writer)->Finish(), IsOk());
  EXPECT_THAT(PairFiles::Open(RealFiles(), Path("records"), {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no sequence source")));
}

TEST(PairFacts, WhatIsWrong_IsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "format"},
      {R"({"format": "penstock-pairs"})", "vocabulary: expected"},
      {R"({"format": "penstock-pairs", "vocabulary": {}})", "vocabulary.pieces: is absent"},
      {R"({"format": "penstock-pairs", "vocabulary": {"pieces": 0, "padding": 7, "unknown": 0,
           "bos": 0, "eos": 0}})",
       "vocabulary.pieces: is 0; expected a whole number from 1 to 16777216"},
      {R"({"format": "penstock-pairs", "vocabulary": {"pieces": 9, "padding": 9}})",
       "vocabulary.padding: is 9; expected a whole number from 0 to 8"},
      {R"({"format": "penstock-pairs", "vocabulary": {"pieces": 9, "padding": -1}})",
       "vocabulary.padding: is -1"}};
  for (const auto& [text, reason] : cases) {
    EXPECT_THAT(ParsePairFacts(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)))
        << text;
  }
}

TEST(PieceList, Text_IsThatOfItsPieces) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const PieceList list,
      PieceList::Parse(
          "<pad>\t0\n<unk>\t0\n<s>\t0\n</s>\t0\n\u2581Ö\t-1\nff\t-2\n\u2581nen\t-3\n"));
  EXPECT_EQ(list.numbers(), (PieceNumbers{7, 0, 1, 2, 3}));
  EXPECT_EQ(list.TextOf({2, 4, 5, 6, 3, 0, 0, 99, -1}), "Öff nen");
  EXPECT_EQ(list.TextOf({4, 1, 5}), "Ö \u2047 ff");
  EXPECT_THAT(PieceList::Parse("<unk>\t0\n<s>\t0\n</s>\t0\n").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no piece <pad>")));
}

}  // namespace
}  // namespace penstock
