// What holds for any text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tests/tokenizer/golden_files.h"
#include "tokenizer/character_tokenizer.h"
#include "tokenizer/characters.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/sentence_piece_tokenizer.h"

namespace penstock {
namespace {

std::string RandomBytes(uint64_t seed, size_t size) {
  RandomStream random(seed, /*purpose=*/9);
  std::string bytes;
  while (bytes.size() < size) {
    // Bytes of any kind, letters, and characters of two to four bytes, some of them cut off.
    switch (random.Below(4)) {
      case 0:
        bytes += static_cast<char>(random.Below(256));
        break;
      case 1:
        bytes += static_cast<char>('a' + random.Below(26));
        break;
      case 2:
        bytes += " water";
        break;
      default:
        bytes += std::string("\xF0\x9F\x91\xA8\xE6\xB0\xB4").substr(0, 1 + random.Below(7));
    }
  }
  return bytes;
}

TEST(Tokenizer, ByteLevel_AnyBytes_ComeBack) {
  for (const char* const name : {"llama3.json"}) {
    const auto tokenizer = LoadTokenizer(RealFiles(), GoldenPath(name));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const std::string text = RandomBytes(seed, seed);
      const auto ids = (*tokenizer)->Encode(text);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ((*tokenizer)->Decode(*ids, SpecialTokens::kShow).value(), text) << seed;
    }
  }
}

TEST(Tokenizer, Bytes_AnyBytes_AreTheirIds) {
  const auto tokenizer = MakeByteTokenizer();
  EXPECT_EQ(tokenizer->Encode("a\xFF").value(), (std::vector<int32_t>{97, 255}));
  EXPECT_EQ(tokenizer->Decode({97, 255}).value(), "a\xFF");
  EXPECT_EQ(tokenizer->Decode({97, 256}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(tokenizer->vocabulary_size(), 256);
}

TEST(Tokenizer, Characters_AreTokensInTheOrderOfCodePoints) {
  const std::string text = "to be \xE6\xB0\xB4\n\xC3\xA4\xFF\"\\";
  EXPECT_EQ(AlphabetOf(text), (std::vector<char32_t>{'\n', ' ', '"', '\\', 'b', 'e', 'o', 't', 0xE4,
                                                     0x6C34, 0xFFFD}));
  const auto tokenizer = ParseTokenizerJson(CharacterTokenizerJson(text));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 11);
  EXPECT_EQ((*tokenizer)->IdOf("\xC3\xA4"), 8);
  EXPECT_EQ((*tokenizer)->SpecialId(SpecialToken::kUnknown), std::nullopt);
  EXPECT_EQ((*tokenizer)->Encode("\n\"be\xE6\xB0\xB4\xFF").value(),
            (std::vector<int32_t>{0, 2, 4, 5, 9, 10}));
  EXPECT_EQ((*tokenizer)->Decode({7, 6, 1, 4, 5, 0}).value(), "to be\n");
  const absl::Status foreign = (*tokenizer)->Encode("bee z").status();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(foreign.message()), testing::HasSubstr("\"z\" is none of"));
  EXPECT_TRUE(AlphabetOf("").empty());
  EXPECT_FALSE(ParseTokenizerJson(CharacterTokenizerJson("")).ok());
}

TEST(Tokenizer, Characters_ComeBack) {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    const std::string text = CleanUtf8(RandomBytes(seed, seed), 1 << 20);
    const auto tokenizer = ParseTokenizerJson(CharacterTokenizerJson(text));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto ids = (*tokenizer)->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ((*tokenizer)->Decode(*ids).value(), text) << seed;
    // As many tokens as characters.
    EXPECT_EQ(static_cast<int64_t>(ids->size()),
              std::count_if(text.begin(), text.end(),
                            [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }));
  }
}

TEST(Tokenizer, WordLevel_WithAnUnknownToken_HasItForOtherWords) {
  nlohmann::json json = nlohmann::json::parse(CharacterTokenizerJson("abc"));
  json["model"]["unk_token"] = "c";
  const auto tokenizer = ParseTokenizerJson(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode("abz").value(), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ((*tokenizer)->SpecialId(SpecialToken::kUnknown), 2);
}

TEST(Tokenizer, AllFiles_AnyBytes_GiveIdsOfTheVocabulary) {
  for (const char* const name : {"gpt2.json", "qwen.json", "uncased.json", "cased.json",
                                 "unigram.model", "bpe.model", "llama2.model"}) {
    const auto tokenizer = LoadTokenizer(RealFiles(), GoldenPath(name));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const auto ids = (*tokenizer)->Encode(RandomBytes(seed, seed));
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_TRUE((*tokenizer)->Decode(*ids).ok()) << name << " " << seed;
    }
  }
}

// Nothing takes time that grows with the square of a text without words.
TEST(Tokenizer, LongTextsOfOneKind_EndSoon) {
  for (const char* const name :
       {"gpt2.json", "qwen.json", "uncased.json", "unigram.model", "bpe.model"}) {
    const auto tokenizer = LoadTokenizer(RealFiles(), GoldenPath(name));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string part : {"a", " ", "\u0301\u0323", "\xFF", "\u6C34", "\n ", "<s"}) {
      std::string text;
      while (text.size() < 200'000) text += part;
      EXPECT_TRUE((*tokenizer)->Encode(text).ok()) << name << " " << part;
    }
  }
}

TEST(Tokenizer, ManyThreads_GiveTheSameIds) {
  const auto tokenizer = LoadTokenizer(RealFiles(), GoldenPath("llama3.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = RandomBytes(1, 20'000);
  const std::vector<int32_t> expected = (*tokenizer)->Encode(text).value();
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        equal[t] += (*tokenizer)->Encode(text).value() == expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, testing::Each(5));
}

// The ids of `text` by one pass over all of it, with sums of floats from its beginning.
std::vector<int32_t> UnigramIds(const std::string& text, const std::vector<std::string>& pieces,
                                const std::vector<float>& scores) {
  struct Way {
    float score = 0;
    int32_t id = -1;
  };
  std::vector<Way> ways(text.size() + 1);
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (begin > 0 && ways[begin].id < 0) continue;
    // Shorter pieces first, as a trie gives them.
    for (size_t bytes = 1; bytes <= text.size() - begin; ++bytes) {
      for (size_t id = 0; id < pieces.size(); ++id) {
        if (text.compare(begin, bytes, pieces[id]) != 0) continue;
        const auto score = static_cast<float>(static_cast<double>(scores[id]) + ways[begin].score);
        Way& way = ways[begin + bytes];
        if (way.id < 0 || score > way.score) way = {score, static_cast<int32_t>(id)};
      }
      if (bytes > 8) break;
    }
  }
  std::vector<int32_t> ids;
  for (size_t end = text.size(); end > 0; end -= pieces[ways[end].id].size()) {
    ids.insert(ids.begin(), ways[end].id);
  }
  return ids;
}

// The ids of `text`, which was normalized, by all of it at once: the best pair of neighbours is merged, and again, until there is none.
std::vector<int32_t> MergedIds(const std::string& text, const std::vector<std::string>& pieces,
                               const std::vector<float>& scores) {
  std::vector<std::string> symbols;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text[at]);
    symbols.push_back(text.substr(at, bytes));
    at += bytes;
  }
  const auto id_of = [&](const std::string& piece) {
    const auto found = std::find(pieces.begin() + 1, pieces.end(), piece);
    return found == pieces.end() ? 0 : static_cast<int32_t>(found - pieces.begin());
  };
  while (true) {
    std::optional<size_t> best;
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const int32_t id = id_of(symbols[i] + symbols[i + 1]);
      if (id == 0 || (best.has_value() && scores[id] <= best_score)) continue;
      best = i;
      best_score = scores[id];
    }
    if (!best.has_value()) break;
    symbols[*best] += symbols[*best + 1];
    symbols.erase(symbols.begin() + static_cast<int64_t>(*best) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& symbol : symbols) {
    const int32_t id = id_of(symbol);
    if (id != 0 || ids.empty() || ids.back() != 0) ids.push_back(id);
  }
  return ids;
}

// Letters, spaces in rows and at the ends, the sign that stands for a space, characters of no piece, bytes of no character.
std::string RandomText(uint64_t seed, size_t parts) {
  const std::vector<std::string> kParts = {"a", "b",  "ab",     "aab",    "c",    " ",      " ",
                                           " ", "  ", "\u2581", "\u6C34", "\xFF", "\u0301", "z"};
  RandomStream random(seed, /*purpose=*/9);
  std::string text;
  for (size_t i = 0; i < parts; ++i) text += kParts[random.Below(kParts.size())];
  return text;
}

// With each way to treat spaces, words are cut, remembered and put together as if the text had been looked at as a whole.
TEST(Tokenizer, SentencePieceWords_AreThoseOfTheWholeText) {
  // "c" is part of a piece, and none itself; "aa" and "ab" are equally good.
  const std::vector<std::string> pieces = {
      "<unk>", "\u2581", "a",       "b",       "aa",           "ab",        "abc",
      "bc",    "aab",    "\u2581a", "\u2581b", "\u2581\u2581", "\u2581aab", "\u2581\u2581\u2581"};
  const std::vector<float> scores = {0, -9, -8, -8, -2, -2, -1, -3, -2.5, -4, -4, -1.5, -3.5, -1.2};
  for (int spaces = 0; spaces < 4; ++spaces) {
    SentencePieceFile file;
    file.add_dummy_prefix = (spaces & 1) != 0;
    file.remove_extra_whitespaces = (spaces & 2) != 0;
    for (size_t id = 0; id < pieces.size(); ++id) {
      file.pieces.push_back(
          {pieces[id], scores[id],
           id == 0 ? SentencePieceFile::Kind::kUnknown : SentencePieceFile::Kind::kNormal});
    }
    file.model = SentencePieceFile::Model::kBpe;
    const auto merged = SentencePieceTokenizer::Make(file).value();
    for (uint64_t seed = 0; seed < 300; ++seed) {
      // The same words again: most are remembered then.
      const std::string text = RandomText(seed, seed % 60);
      for (int repeat = 0; repeat < 2; ++repeat) {
        ASSERT_EQ(merged->Encode(text, Framing::kNone).value(),
                  MergedIds(merged->Normalized(text), pieces, scores))
            << spaces << " " << seed;
      }
    }
    // A piece that goes over the beginning of a word: the text is looked at as a whole.
    for (const auto model : {SentencePieceFile::Model::kUnigram, SentencePieceFile::Model::kBpe}) {
      file.model = model;
      SentencePieceFile whole = file;
      whole.pieces.push_back({"q\u2581q", -9, SentencePieceFile::Kind::kNormal});
      const auto by_words = SentencePieceTokenizer::Make(file).value();
      const auto at_once = SentencePieceTokenizer::Make(whole).value();
      for (uint64_t seed = 0; seed < 300; ++seed) {
        const std::string text = RandomText(seed, seed % 60);
        ASSERT_EQ(by_words->Encode(text, Framing::kNone).value(),
                  at_once->Encode(text, Framing::kNone).value())
            << spaces << " " << seed << " " << static_cast<int>(model);
      }
    }
  }
}

// What is copied and what utf8proc is given make up what it makes of the whole.
TEST(Normalizer, NfcOfEveryCharacter_IsThatOfTheWholeText) {
  const Normalizer normalizer({Nfc{}});
  std::string buffer;
  for (char32_t code = 1; code < 0x30000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string character;
    AppendCharacter(code, character);
    const std::string text = absl::StrCat("e", character, "\u0323\u0301 \u1100", character,
                                          "\u11A8\u0301", character, character);
    utf8proc_uint8_t* const whole =
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_EQ(normalizer.Apply(text, buffer), reinterpret_cast<const char*>(whole))
        << static_cast<uint32_t>(code);
    std::free(whole);
  }
  EXPECT_EQ(normalizer.Apply("e\xFF\u0301e\u0301", buffer), "e\xFF\u0301\u00E9");
}

// Several ways through a word are as good but for the rounding of sums, which depends on what is before it.
TEST(Tokenizer, Unigram_WordsOfEqualWays_AreCutAsInTheWholeText) {
  const std::vector<std::string> pieces = {"<unk>", "\u2581", "a",       "aa",
                                           "b",     "ab",     "\u2581a", "\u2581ab"};
  const std::vector<float> scores = {0, -1.0f, -1.1f, -2.2f, -0.7f, -1.8f, -2.1f, -2.8f};
  SentencePieceFile file;
  file.model = SentencePieceFile::Model::kUnigram;
  for (size_t id = 0; id < pieces.size(); ++id) {
    file.pieces.push_back(
        {pieces[id], scores[id],
         id == 0 ? SentencePieceFile::Kind::kUnknown : SentencePieceFile::Kind::kNormal});
  }
  const std::unique_ptr<SentencePieceTokenizer> made = SentencePieceTokenizer::Make(file).value();
  const Tokenizer& tokenizer = *made;
  int cut_differently = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomStream random(seed, /*purpose=*/9);
    std::string text;
    for (int word = 0; word < 300; ++word) {
      text += word == 0 ? "" : " ";
      const uint64_t letters = 1 + random.Below(7);
      for (uint64_t letter = 0; letter < letters; ++letter) text += random.Below(3) > 0 ? 'a' : 'b';
    }
    const std::vector<int32_t> expected = UnigramIds(made->Normalized(text), pieces, scores);
    EXPECT_EQ(tokenizer.Encode(text).value(), expected) << seed;
    std::vector<int32_t> by_words;
    for (const absl::string_view word : absl::StrSplit(text, ' ')) {
      const std::vector<int32_t> ids = UnigramIds(absl::StrCat("\u2581", word), pieces, scores);
      by_words.insert(by_words.end(), ids.begin(), ids.end());
    }
    cut_differently += by_words != expected;
  }
  EXPECT_GT(cut_differently, 0) << "no word shows what the test is about";
}

TEST(Tokenizer, SpecialTokens_AreFoundByPurpose) {
  const auto json = LoadTokenizer(RealFiles(), GoldenPath("gpt2.json")).value();
  EXPECT_EQ(json->SpecialId(SpecialToken::kBos), 0);
  EXPECT_EQ(json->SpecialId(SpecialToken::kEos), 1);
  EXPECT_EQ(json->SpecialId(SpecialToken::kPadding), std::nullopt);
  EXPECT_EQ(json->vocabulary_size(), 300);
  const auto model = LoadTokenizer(RealFiles(), GoldenPath("unigram.model")).value();
  EXPECT_EQ(model->SpecialId(SpecialToken::kUnknown), 0);
  EXPECT_EQ(model->SpecialId(SpecialToken::kBos), 1);
  EXPECT_EQ(model->SpecialId(SpecialToken::kEos), 2);
}

}  // namespace
}  // namespace penstock
