#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/tokenizer/golden_files.h"
#include "tokenizer/byte_pair_training.h"

namespace penstock {
namespace {

TEST(BytePairTraining, Vocabulary_IsThatOfThePackage) {
  // The same text, size and special tokens; a space before the text, which the package was told to add.
  const auto learned = " " + GoldenJson()["learned"].get<std::string>();
  const auto json =
      TrainBytePairs(learned, {.vocabulary_size = 300, .special_tokens = {"<s>", "</s>", "[UNK]"}});
  ASSERT_TRUE(json.ok()) << json.status();
  const auto ours = nlohmann::json::parse(*json);
  const auto theirs = nlohmann::json::parse(GoldenContent("gpt2.json"));
  EXPECT_EQ(ours["model"]["merges"], theirs["model"]["merges"]);
  EXPECT_EQ(ours["model"]["vocab"], theirs["model"]["vocab"]);
  EXPECT_EQ(ours["added_tokens"], theirs["added_tokens"]);
}

TEST(BytePairTraining, File_IsReadAndGivesTheTextBack) {
  const std::string text = "water water \xFF waters, 水水水";
  const auto json = TrainBytePairs(text, {.vocabulary_size = 270, .expression = kQwenExpression});
  ASSERT_TRUE(json.ok()) << json.status();
  const auto tokenizer = ParseTokenizerJson(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(text).value()).value(), text);
  EXPECT_LE((*tokenizer)->vocabulary_size(), 270);
  EXPECT_EQ(*TrainBytePairs(text, {.vocabulary_size = 270, .expression = kQwenExpression}), *json);
}

TEST(BytePairTraining, PairsThatStandAsOften_SmallerIdsFirst) {
  const auto json = TrainBytePairs("cd ab", {.vocabulary_size = 258});
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(nlohmann::json::parse(*json)["model"]["merges"][0], nlohmann::json({"a", "b"}));
}

TEST(BytePairTraining, Options_AreChecked) {
  EXPECT_EQ(TrainBytePairs("a", {.vocabulary_size = 256}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TrainBytePairs("a", {.occurrences_min = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TrainBytePairs("a", {.special_tokens = {"x", "x"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TrainBytePairs("", {}).value().empty(), false);
}

}  // namespace
}  // namespace penstock
