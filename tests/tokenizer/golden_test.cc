// The ids that the packages `tokenizers` and `sentencepiece` give; make_golden.py wrote them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "tests/tokenizer/golden_files.h"

namespace penstock {
namespace {

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, IdsAndTextsAreThoseOfThePackage) {
  const std::string name = GetParam();
  const auto tokenizer = LoadTokenizer(RealFiles(), GoldenPath(name));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const nlohmann::json cases = GoldenJson()["cases"][name.substr(0, name.find('.'))];
  ASSERT_FALSE(cases.empty());
  for (const nlohmann::json& golden : cases) {
    const auto text = golden["text"].get<std::string>();
    const auto ids = (*tokenizer)->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, golden["ids"].get<std::vector<int32_t>>()) << golden["text"];
    const auto framed = (*tokenizer)->Encode(text, Framing::kOfFile);
    ASSERT_TRUE(framed.ok()) << framed.status();
    EXPECT_EQ(*framed, golden["framed"].get<std::vector<int32_t>>()) << golden["text"];
    const auto decoded = (*tokenizer)->Decode(*ids);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, golden["decoded"].get<std::string>()) << golden["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Golden,
                         testing::Values("gpt2.json", "llama3.json", "qwen.json", "uncased.json",
                                         "cased.json", "unigram.model", "bpe.model",
                                         "llama2.model"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace penstock
