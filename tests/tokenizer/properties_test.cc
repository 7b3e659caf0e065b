// What holds for any text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/tokenizer/golden_files.h"

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
