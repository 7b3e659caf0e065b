// Files that are refused, each with the part's name and its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/tokenizer/golden_files.h"
#include "tokenizer/character_tokenizer.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// gpt2.json with another value at `pointer`.
absl::Status Refusal(const std::string& pointer, const nlohmann::json& value,
                     const std::string& file = "gpt2.json") {
  nlohmann::json json = nlohmann::json::parse(GoldenContent(file));
  json[nlohmann::json::json_pointer(pointer)] = value;
  return ParseTokenizerJson(json.dump()).status();
}

TEST(Refusals, UnknownParts_AreNamed) {
  struct {
    const char* pointer;
    nlohmann::json value;
    const char* message;
  } const cases[] = {
      {"/model/type", "Unigram", "model: the type \"Unigram\""},
      {"/model/dropout", 0.1, "model.dropout: another value than 0.0"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/novelty", 1, "model.novelty: the key"},
      {"/normalizer", {{"type", "NFKC"}}, "normalizer: the type \"NFKC\""},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer: the type \"Metaspace\""},
      {"/pre_tokenizer", nullptr, "pre_tokenizer: BPE without"},
      {"/decoder", {{"type", "Fuse"}}, "decoder: the type \"Fuse\""},
      {"/post_processor", {{"type", "RobertaProcessing"}}, "post_processor: the type \"Roberta"},
      {"/truncation", {{"max_length", 8}}, "truncation"},
      {"/padding", {{"strategy", "x"}}, "padding"},
      {"/added_tokens/1/lstrip", true, "added_tokens[1].lstrip"},
      {"/version", "2.0", "version"},
  };
  for (const auto& refused : cases) {
    const absl::Status status = Refusal(refused.pointer, refused.value);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.message));
  }
}

TEST(Refusals, WordLevelWithUnknownParts_IsRefused) {
  const nlohmann::json characters = nlohmann::json::parse(CharacterTokenizerJson("abc"));
  struct {
    const char* pointer;
    nlohmann::json value;
    const char* message;
  } const cases[] = {
      {"/decoder", nullptr, "decoder: WordLevel without the decoder Fuse"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder: the type \"WordPiece\""},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer: the type \"Whitespace\""},
      {"/model/novelty", 1, "model.novelty: the key"},
  };
  for (const auto& refused : cases) {
    nlohmann::json json = characters;
    json[nlohmann::json::json_pointer(refused.pointer)] = refused.value;
    const absl::Status status = ParseTokenizerJson(json.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.message));
  }
  nlohmann::json json = characters;
  json["model"].erase("unk_token");
  EXPECT_EQ(ParseTokenizerJson(json.dump()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Refusals, Contradictions_AreNamed) {
  struct {
    const char* pointer;
    nlohmann::json value;
    const char* message;
  } const cases[] = {
      {"/model/vocab/!", 4, "has it; every token has an id of its own"},
      {"/model/vocab/!", -1, "expected a whole number from 0"},
      {"/model/vocab/!", 1 << 24, "expected a whole number from 0"},
      {"/model/merges/0", "a b c", "model.merges[0]: expected two tokens"},
      {"/model/merges/2", {"zz", "y"}, "model.merges[2]: has \"zz\", which is not in model.vocab"},
      {"/added_tokens/0/id", 1, "added_tokens[0]"},
      {"/added_tokens/0/content", "", "added_tokens[0]: is the empty token"},
      {"/post_processor/processors/1/special_tokens/<s>/ids/0", 4000, "which no token has"},
      {"/model", "BPE", "model: expected an object"},
  };
  for (const auto& refused : cases) {
    const absl::Status status = Refusal(refused.pointer, refused.value);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.message));
  }
}

TEST(Refusals, Expressions_AreNamed) {
  const struct {
    const char* expression;
    const char* message;
  } cases[] = {
      {R"(\w+)", "\"\\w\""},
      {R"([\S])", "\"\\S\" in a class"},
      {R"(\p{Han}+)", "property \"Han\""},
      {R"([a&&b])", "\"&&\""},
      {R"(a{1,2}+)", "\"{1,2}+\""},
      {R"((?m:a))", "\"(?m:\""},
      {R"(a.b)", "\".\""},
      {R"((a)\1)", "\"\\1\""},
      {R"(a*)", "matches the empty text"},
      {R"((a)", "is no expression"},
      {R"([a)", "without \"]\""},
      {"a\\", "ends with"},
      {R"(^a)", "\"^\""},
      {"[[a]]", "\"[\" in a class"},
  };
  for (const auto& refused : cases) {
    const absl::Status status =
        Refusal("/pre_tokenizer/pretokenizers/0/pattern/Regex", refused.expression, "qwen.json");
    EXPECT_FALSE(status.ok()) << refused.expression;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("pre_tokenizer.pretokenizers[0].pattern.Regex"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.message));
  }
}

TEST(Refusals, TruncatedFiles_AreRefused) {
  const std::string json = GoldenContent("cased.json");
  for (size_t size = 0; size + 2 < json.size(); size += 97) {
    EXPECT_FALSE(ParseTokenizerJson(json.substr(0, size)).ok()) << size;
  }
  // A protobuf that ends between two fields is one, too; it has pieces, then, and no unknown one before long.
  const std::string model = GoldenContent("llama2.model");
  for (size_t size = 0; size < model.size(); size += 7) {
    const auto tokenizer = ParseSentencePieceModel(model.substr(0, size));
    EXPECT_TRUE(!tokenizer.ok() || (*tokenizer)->Encode("water").ok()) << size;
  }
  const absl::Status status = ParseSentencePieceModel(model.substr(0, model.size() - 3)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("truncated"));
}

TEST(Refusals, Paths_SayWhatIsExpected) {
  const absl::Status none = LoadTokenizer(RealFiles(), GoldenPath("")).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("has no tokenizer.json"));
  const absl::Status missing = LoadTokenizer(RealFiles(), "/nowhere/tokenizer.json").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nowhere/tokenizer.json"));
}

// Directories of Llama 2 and Mistral have both files.
class DirectoryWithBoth : public testing::Test {
 protected:
  DirectoryWithBoth() {
    nlohmann::json json = nlohmann::json::parse(GoldenContent("gpt2.json"));
    json["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
    Write("tokenizer.json", json.dump());
  }
  void Write(const std::string& name, const std::string& content) {
    ASSERT_THAT(files_.WriteDurably("/llama/" + name, {content}), IsOk());
    ASSERT_THAT(files_.CreateDirectories("/llama"), IsOk());
  }

  MemoryFiles files_;
};

TEST_F(DirectoryWithBoth, JsonThatIsNotSupported_GivesWayToTheModel) {
  EXPECT_THAT(LoadTokenizer(files_, "/llama").status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("/llama/tokenizer.json: normalizer: the type \"Prepend\""),
                             Not(HasSubstr("name /llama")))));
  Write("tokenizer.model", GoldenContent("llama2.model"));
  EXPECT_THAT(FindTokenizerFile(files_, "/llama"), IsOkAndHolds("/llama/tokenizer.model"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizer(files_, "/llama"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto model,
                                LoadTokenizer(RealFiles(), GoldenPath("llama2.model")));
  EXPECT_EQ(tokenizer->Encode("the water").value(), model->Encode("the water").value());
  // A file that is named is read, and no other.
  EXPECT_THAT(LoadTokenizer(files_, "/llama/tokenizer.json").status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("/llama/tokenizer.json: normalizer: the type \"Prepend\""),
                             HasSubstr("; name /llama/tokenizer.model, which is beside it"))));
}

TEST_F(DirectoryWithBoth, JsonThatIsSupportedOrDamaged_Counts) {
  Write("tokenizer.model", GoldenContent("llama2.model"));
  Write("tokenizer.json", GoldenContent("gpt2.json"));
  EXPECT_THAT(FindTokenizerFile(files_, "/llama"), IsOkAndHolds("/llama/tokenizer.json"));
  Write("tokenizer.json", "{");
  EXPECT_THAT(LoadTokenizer(files_, "/llama").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/llama/tokenizer.json")));
}

// The ids of XLM-R's tokenizer.json are not those of the .model beside it.
TEST_F(DirectoryWithBoth, ModelWithAnotherName_DoesNotTakeTheJsonsPlace) {
  Write("sentencepiece.bpe.model", GoldenContent("bpe.model"));
  EXPECT_THAT(FindTokenizerFile(files_, "/llama"), IsOkAndHolds("/llama/tokenizer.json"));
}

TEST(Refusals, IdsBeyondTheVocabulary_AreNamed) {
  for (const char* const name : {"gpt2.json", "cased.json", "bpe.model"}) {
    const auto tokenizer = LoadTokenizer(RealFiles(), GoldenPath(name)).value();
    for (const int32_t id : {-1, static_cast<int32_t>(tokenizer->vocabulary_size())}) {
      const absl::Status status = tokenizer->Decode({5, id}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
      EXPECT_THAT(std::string(status.message()), HasSubstr("at place 1"));
    }
  }
}

}  // namespace
}  // namespace penstock
