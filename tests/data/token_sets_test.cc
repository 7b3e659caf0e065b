#include "data/token_sets.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "data/token_shards.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/tokenizer/golden_files.h"
#include "tokenizer/sentence_piece_tokenizer.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Words, numbers, marks, spaces and line ends in any order.
std::string RandomText(uint64_t seed, int parts) {
  RandomStream random(seed, /*purpose=*/17);
  const std::vector<std::string> choices = {
      "word",   "It's",    "  ",     "\n", "\r\n", "\n\n", "12345",  ".", "!?",   "\t",
      "\u00e9", "e\u0301", "\u6c34", " x", "<s>",  "don",  "\u00a0", "A", "\xff", "\n  y"};
  std::string text;
  for (int i = 0; i < parts; ++i) text += choices[random.Below(choices.size())];
  return text;
}

TEST(PieceEnd, APieceMoreOrLess_ChangesNoTokenOfWords) {
  for (const char* const name :
       {"llama3.json", "qwen.json", "uncased.json", "cased.json", "unigram.model", "bpe.model"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                                  LoadTokenizer(RealFiles(), GoldenPath(name)));
    EXPECT_TRUE(tokenizer->can_be_cut()) << name;
    int cuts = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const std::string text = RandomText(seed, 60);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> whole, tokenizer->Encode(text));
      std::vector<int32_t> pieces;
      absl::string_view rest = text;
      while (!rest.empty()) {
        const size_t end = PieceEnd(rest, 5);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> piece,
                                      tokenizer->Encode(rest.substr(0, end)));
        pieces.insert(pieces.end(), piece.begin(), piece.end());
        rest.remove_prefix(end);
        ++cuts;
      }
      ASSERT_EQ(pieces, whole) << name << " " << seed;
    }
    EXPECT_GT(cuts, 600);
  }
}

// They put a space before every text.
TEST(PieceEnd, WhereAPieceMoreWouldChangeTokens_TheTokenizerSaysSo) {
  for (const char* const name : {"gpt2.json", "llama2.model"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                                  LoadTokenizer(RealFiles(), GoldenPath(name)));
    EXPECT_FALSE(tokenizer->can_be_cut()) << name;
    EXPECT_NE(tokenizer->Encode("a\nb").value().size(),
              tokenizer->Encode("a").value().size() + tokenizer->Encode("\nb").value().size());
  }
}

// Line ends stay what they are, so that a space is put before a piece where the whole text has none.
TEST(PieceEnd, WhereLineEndsAreNotSpaces_TheTokenizerSaysSo) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(SentencePieceFile file,
                                ReadSentencePieceFile(GoldenContent("unigram.model")));
  file.character_table.clear();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer,
                                SentencePieceTokenizer::Make(std::move(file)));
  EXPECT_FALSE(tokenizer->can_be_cut());
  EXPECT_NE(tokenizer->Encode("a\nb").value().size(),
            tokenizer->Encode("a").value().size() + tokenizer->Encode("\nb").value().size());
}

class TokenSetTest : public ::testing::Test {
 protected:
  TokenSetTest() {
    EXPECT_THAT(files_.CreateDirectories("/texts"), IsOk());
    EXPECT_THAT(files_.WriteDurably("/texts/llama3.json", {GoldenContent("llama3.json")}), IsOk());
  }

  void Write(const std::string& path, const std::string& content) {
    ASSERT_THAT(files_.WriteDurably(path, {content}), IsOk());
  }
  TokenSetOptions Options(std::vector<std::string> from) const {
    return {.from = std::move(from), .to = "/tokens", .tokenizer = "/texts/llama3.json"};
  }
  std::vector<int32_t> TokensIn(const std::string& directory) {
    auto shards = TokenShards::Open(files_, directory, {});
    EXPECT_THAT(shards, IsOk());
    if (!shards.ok()) return {};
    std::vector<int32_t> ids((*shards)->tokens());
    EXPECT_THAT((*shards)->Copy(0, absl::MakeSpan(ids)), IsOk());
    return ids;
  }
  // The tokens of documents, each with its end.
  static std::vector<int32_t> Encoded(const std::vector<std::string>& documents) {
    const auto tokenizer = LoadTokenizer(RealFiles(), GoldenPath("llama3.json"));
    EXPECT_THAT(tokenizer, IsOk());
    std::vector<int32_t> ids;
    for (const std::string& document : documents) {
      const std::vector<int32_t> some = (*tokenizer)->Encode(document).value();
      ids.insert(ids.end(), some.begin(), some.end());
      if (const auto end = (*tokenizer)->SpecialId(SpecialToken::kEos)) ids.push_back(*end);
    }
    return ids;
  }

  MemoryFiles files_;
};

TEST_F(TokenSetTest, AnyThreadsAndShards_GiveTheTokensOfTheDocuments) {
  // Several pieces, the last of which is short.
  const std::string large = RandomText(1, 1'000'000);
  Write("/texts/large.txt", large);
  Write("/texts/small.txt", "one more");
  const std::vector<int32_t> expected = Encoded({large, "one more"});
  for (const int threads : {1, 3}) {
    for (const int64_t shard_bytes : {int64_t{1} << 20, int64_t{256} << 20}) {
      TokenSetOptions options = Options({"/texts/large.txt", "/texts/small.txt"});
      options.threads = threads;
      options.shard_bytes_max = shard_bytes;
      int64_t seen = 0;
      options.progress = [&](int64_t done, int64_t all, const std::string&) {
        EXPECT_GE(done, seen);
        EXPECT_EQ(all, static_cast<int64_t>(large.size()) + 8);
        seen = done;
        return absl::OkStatus();
      };
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedTokens prepared, PrepareTokens(files_, options));
      EXPECT_EQ(seen, static_cast<int64_t>(large.size()) + 8);
      EXPECT_EQ(prepared.documents, 2);
      EXPECT_EQ(prepared.text_bytes, seen);
      EXPECT_EQ(prepared.tokens, static_cast<int64_t>(expected.size()));
      EXPECT_EQ(prepared.shards.size() > 1, shard_bytes == int64_t{1} << 20);
      EXPECT_EQ(TokensIn("/tokens"), expected);
      EXPECT_EQ(files_.Content("/tokens/tokenizer.json"), GoldenContent("llama3.json"));
      ASSERT_THAT(files_.RemoveAll("/tokens"), IsOk());
    }
  }
}

TEST_F(TokenSetTest, LinesOfJson_AreDocuments) {
  Write("/texts/a.jsonl", "{\"text\": \"one\"}\n\n{\"id\": 3, \"text\": \"two\\nlines\"}");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedTokens prepared,
                                PrepareTokens(files_, Options({"/texts/a.jsonl"})));
  EXPECT_EQ(prepared.documents, 2);
  EXPECT_EQ(TokensIn("/tokens"), Encoded({"one", "two\nlines"}));

  ASSERT_THAT(files_.RemoveAll("/tokens"), IsOk());
  Write("/texts/a.jsonl", "{\"text\": \"one\"}\n{\"txt\": \"two\"}\n");
  EXPECT_THAT(PrepareTokens(files_, Options({"/texts/a.jsonl"})).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/texts/a.jsonl: line 2 is no JSON object"),
                             HasSubstr("field text"), HasSubstr("--field"))));
}

TEST_F(TokenSetTest, WithoutATokenizer_AVocabularyIsLearned) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the water and the weather\n";
  Write("/texts/a.txt", text);
  TokenSetOptions options = Options({"/texts/a.txt"});
  options.tokenizer.clear();
  options.vocabulary = 280;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedTokens prepared, PrepareTokens(files_, options));
  EXPECT_LE(prepared.vocabulary, 280);
  EXPECT_GT(prepared.vocabulary, 260);
  EXPECT_LT(prepared.tokens * 3, static_cast<int64_t>(text.size()));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizer(files_, "/tokens"));
  std::vector<int32_t> ids = TokensIn("/tokens");
  EXPECT_EQ(tokenizer->Decode(ids).value(), text);
}

TEST_F(TokenSetTest, WhatCannotBe_IsRefused) {
  Write("/texts/a.txt", "");
  EXPECT_THAT(PrepareTokens(files_, Options({"/texts/none.txt"})).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/texts/none.txt")));
  EXPECT_THAT(PrepareTokens(files_, Options({"/texts/a.txt"})).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the texts are empty")));
  Write("/tokens/000000.bin", "xx");
  EXPECT_THAT(PrepareTokens(files_, Options({"/texts/a.txt"})).status(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/tokens has token files")));
}

TEST_F(TokenSetTest, TokenizerThatIsRefused_IsNamedWhereTheUserHasIt) {
  nlohmann::json json = nlohmann::json::parse(GoldenContent("llama3.json"));
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  Write("/texts/llama2/tokenizer.json", json.dump());
  ASSERT_THAT(files_.CreateDirectories("/texts/llama2"), IsOk());
  Write("/texts/a.txt", "the water");
  TokenSetOptions options = Options({"/texts/a.txt"});
  options.tokenizer = "/texts/llama2";
  EXPECT_THAT(PrepareTokens(files_, options).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("/texts/llama2/tokenizer.json: normalizer: ")));
  EXPECT_FALSE(files_.Exists("/tokens/tokenizer.json"));

  Write("/texts/llama2/tokenizer.model", GoldenContent("llama2.model"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedTokens prepared, PrepareTokens(files_, options));
  EXPECT_EQ(prepared.tokenizer, "/tokens/tokenizer.model");
  EXPECT_EQ(files_.Content("/tokens/tokenizer.model"), GoldenContent("llama2.model"));
}

TEST_F(TokenSetTest, Interrupted_Ends) {
  Write("/texts/a.txt", "text");
  TokenSetOptions options = Options({"/texts/a.txt"});
  options.progress = [](int64_t, int64_t, const std::string&) {
    return absl::CancelledError("interrupted");
  };
  EXPECT_THAT(PrepareTokens(files_, options).status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
}

}  // namespace
}  // namespace penstock
