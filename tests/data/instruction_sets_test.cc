#include "data/instruction_sets.h"

#include <gmock/gmock.h>

#include <cstring>

#include "data/record_files.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/tokenizer/golden_files.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// The text of an example by bytes, with [] around what counts.
std::string Shown(absl::string_view line, const ChatTemplate& roles = {}) {
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  const absl::StatusOr<InstructionTokens> tokens = EncodeInstruction(line, roles, *bytes);
  if (!tokens.ok()) return std::string(tokens.status().message());
  std::string text;
  bool counts = false;
  for (size_t i = 0; i < tokens->ids.size(); ++i) {
    if (tokens->counts[i] != counts) text += counts ? ']' : '[';
    counts = tokens->counts[i];
    text += static_cast<char>(tokens->ids[i]);
  }
  return counts ? text + "]" : text;
}

ChatTemplate Roles() {
  ChatTemplate roles;
  for (const char* const role : {"system=<{}>\\n", "user=Q: {}\\n", "assistant=A: {}.\\n"}) {
    EXPECT_THAT(AddRole(role, roles), IsOk());
  }
  return roles;
}

TEST(EncodeInstruction, PromptAndResponse_OfWhichTheResponseCounts) {
  const char kLine[] = R"({"prompt": "2 + 2 = ", "response": "4"})";
  EXPECT_EQ(Shown(kLine), "2 + 2 = [4]");
  EXPECT_EQ(Shown(kLine, Roles()), "Q: 2 + 2 = \nA: [4.\n]");
}

TEST(EncodeInstruction, Chat_OfWhichAllResponsesCount) {
  EXPECT_EQ(Shown(R"({"messages": [{"role": "system", "content": "be short"},
                                   {"role": "user", "content": "a?"},
                                   {"role": "assistant", "content": "b"},
                                   {"content": "c?", "role": "user"},
                                   {"role": "assistant", "content": "d"}]})",
                  Roles()),
            "<be short>\nQ: a?\nA: [b.\n]Q: c?\nA: [d.\n]");
}

// A tokenizer that has a token for the end of a text puts it behind the last response, where it counts.
TEST(EncodeInstruction, EndOfTheText_CountsBehindAResponse) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                                LoadTokenizer(RealFiles(), GoldenPath("llama3.json")));
  const std::optional<int32_t> end = tokenizer->SpecialId(SpecialToken::kEos);
  ASSERT_TRUE(end.has_value());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const InstructionTokens tokens,
      EncodeInstruction(R"({"prompt": "a", "response": "b"})", {}, *tokenizer));
  EXPECT_EQ(tokens.ids.back(), *end);
  EXPECT_TRUE(tokens.counts.back());
  EXPECT_FALSE(tokens.counts.front());
}

TEST(EncodeInstruction, WhatIsNotSupported_IsNamed) {
  EXPECT_THAT(Shown("[1]"), HasSubstr("is no JSON object; expected {\"prompt\""));
  EXPECT_THAT(Shown(R"({"prompt": "a", "response": 3})"),
              HasSubstr("response is no text (number)"));
  EXPECT_THAT(Shown(R"({"prompt": "a"})"), HasSubstr("has no field response"));
  EXPECT_THAT(Shown(R"({"prompt": "a", "response": "b", "input": "c"})"),
              HasSubstr("has the field input, which is not supported"));
  EXPECT_THAT(Shown(R"({"messages": [{"role": "user", "content": "a"},
                                     {"role": "assistant", "content": "b", "tool_calls": []}]})",
                    Roles()),
              AllOf(HasSubstr("messages[1]"), HasSubstr("the field tool_calls")));
  EXPECT_THAT(Shown(R"({"messages": [{"role": "tool", "content": "a"}]})", Roles()),
              AllOf(HasSubstr("the role tool"), HasSubstr("assistant, system, user"),
                    HasSubstr("--role 'tool=...{}...'")));
  EXPECT_THAT(Shown(R"({"messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("there is none"));
  EXPECT_THAT(Shown(R"({"prompt": "a", "response": ""})"), HasSubstr("has no text of the role"));
}

TEST(AddRole, WithoutAPlaceForTheText_IsRefused) {
  ChatTemplate roles;
  for (const char* const text : {"user", "=a{}", "user=a", "user={}{}"}) {
    EXPECT_THAT(AddRole(text, roles), StatusIs(kInvalid, HasSubstr("expected ROLE=TEXT"))) << text;
  }
}

class PrepareInstructionsTest : public ::testing::Test {
 protected:
  PrepareInstructionsTest() {
    EXPECT_THAT(files_.CreateDirectories("/t"), IsOk());
    EXPECT_THAT(files_.WriteDurably("/t/tokenizer.json", {GoldenContent("llama3.json")}), IsOk());
  }

  absl::StatusOr<PreparedInstructions> Prepare(const std::string& lines, int64_t context,
                                               bool is_packed = true) {
    EXPECT_THAT(files_.WriteDurably("/in.jsonl", {lines}), IsOk());
    return PrepareInstructions(files_, {.from = {"/in.jsonl"},
                                        .to = "/out",
                                        .tokenizer = "/t",
                                        .context = context,
                                        .is_packed = is_packed});
  }

  std::vector<int32_t> ReadRow(const RecordFiles& records, const char* tensor, int64_t row,
                               int64_t context) {
    std::vector<int32_t> values(context);
    EXPECT_THAT(records.Read(records.FindTensor(tensor), row,
                             absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                            values.size() * sizeof(int32_t))),
                IsOk());
    return values;
  }

  MemoryFiles files_;
};

constexpr char kShortLine[] = "{\"prompt\": \"a\", \"response\": \"b\"}\n";
constexpr char kLongLine[] = "{\"prompt\": \"a b c d e f g h\", \"response\": \"i j k l m n\"}\n";

TEST_F(PrepareInstructionsTest, Examples_ArePackedAndKeptApart) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const PreparedInstructions prepared,
      Prepare(absl::StrCat(kShortLine, "\n", kShortLine, kLongLine, kShortLine), /*context=*/5));
  EXPECT_EQ(prepared.examples, 3);
  EXPECT_EQ(prepared.too_long, 1);
  EXPECT_EQ(prepared.rows, 2);  // of two time steps each
  EXPECT_EQ(prepared.tokens, 9);
  EXPECT_EQ(prepared.targets, 6);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto records, RecordFiles::Open(files_, "/out", {}));
  const std::vector<int32_t> tokens = ReadRow(*records, "tokens", 0, 5);
  const std::vector<int32_t> targets = ReadRow(*records, "targets", 0, 5);
  EXPECT_EQ(tokens[0], tokens[2]);
  EXPECT_EQ(tokens[1], tokens[3]);
  EXPECT_EQ(targets[0], tokens[1]) << "the response, which the prompt's last token predicts";
  EXPECT_EQ(targets[1], targets[3]);
  EXPECT_EQ(targets[4], kIgnoredTarget) << "padding";
  EXPECT_THAT(ReadRow(*records, "positions", 0, 5), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(ReadRow(*records, "positions", 1, 5), ElementsAre(0, 1, 0, 1, 2));
  EXPECT_EQ(prepared.tokenizer, "/out/tokenizer.json");
  EXPECT_THAT(LoadTokenizer(files_, "/out"), IsOk());
}

TEST_F(PrepareInstructionsTest, PromptsDoNotCount) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PreparedInstructions prepared,
                                Prepare(kLongLine, /*context=*/40, /*is_packed=*/false));
  EXPECT_EQ(prepared.rows, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto records, RecordFiles::Open(files_, "/out", {}));
  const std::vector<int32_t> targets = ReadRow(*records, "targets", 0, 40);
  const auto counted = std::count_if(targets.begin(), targets.end(),
                                     [](int32_t target) { return target != kIgnoredTarget; });
  EXPECT_EQ(counted, prepared.targets);
  EXPECT_GE(counted, 7) << "six letters and the end";
  EXPECT_EQ(targets[0], kIgnoredTarget);
}

TEST_F(PrepareInstructionsTest, Unpacked_EachExampleHasARow) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const PreparedInstructions prepared,
      Prepare(absl::StrCat(kShortLine, kShortLine), /*context=*/8, /*is_packed=*/false));
  EXPECT_EQ(prepared.rows, 2);
}

TEST_F(PrepareInstructionsTest, BadLine_IsNamedWithItsNumber) {
  EXPECT_THAT(Prepare(absl::StrCat(kShortLine, "{\"prompt\": 1}\n"), 8),
              StatusIs(kInvalid, AllOf(HasSubstr("/in.jsonl: line 2"), HasSubstr("prompt"))));
}

TEST_F(PrepareInstructionsTest, NothingThatFits_IsRefused) {
  EXPECT_THAT(Prepare(kLongLine, 4), StatusIs(kInvalid, HasSubstr("(1 are longer)")));
}

}  // namespace
}  // namespace penstock
