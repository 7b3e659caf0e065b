// Texts that are continued side by side: what each gets, and what ends it.
#include "inference/continuations.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// A model that says the same after every prompt, each of which it knows by its first byte.
class Parrot {
 public:
  explicit Parrot(std::vector<std::string> words) : words_(std::move(words)) {}

  absl::StatusOr<std::vector<int32_t>> Next(absl::Span<const std::vector<int32_t>> texts,
                                            absl::Span<Sampler> samplers) {
    EXPECT_EQ(samplers.size(), texts.size());
    std::vector<int32_t> next;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string& word = words_[i];
      next.push_back(static_cast<unsigned char>(word[(texts[i].size() - 1) % word.size()]));
    }
    ++calls;
    return next;
  }

  int calls = 0;

 private:
  std::vector<std::string> words_;
};

TEST(Continuations, EachTextEndsByItself) {
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  auto texts = Continuations::Create(*bytes, {"a", "b"}, {.tokens_max = 6, .stops = {"!"}});
  ASSERT_THAT(texts, IsOk());
  Parrot parrot({"hi! ", "hello"});
  std::string shown;
  ASSERT_THAT(texts->Run([&](auto tokens, auto samplers) { return parrot.Next(tokens, samplers); },
                         [&](size_t text, absl::string_view part) {
                           if (text == 0) shown += std::string(part);
                         }),
              IsOk());
  ASSERT_EQ(texts->texts().size(), 2u);
  EXPECT_EQ(texts->texts()[0].prompt, "a");
  EXPECT_EQ(texts->texts()[0].text, "hi");
  EXPECT_EQ(texts->texts()[0].tokens, 3) << "with the one that ended it";
  EXPECT_STREQ(texts->texts()[0].ended_by, "stop");
  EXPECT_EQ(texts->texts()[1].text, "helloh");
  EXPECT_STREQ(texts->texts()[1].ended_by, "tokens");
  EXPECT_EQ(shown, "hi");
  EXPECT_EQ(parrot.calls, 6) << "one for all texts";
}

TEST(Continuations, WhatMightHaveBeenAStop_IsShownInTheEnd) {
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  auto texts = Continuations::Create(*bytes, {"a"}, {.tokens_max = 3, .stops = {"abcd"}});
  ASSERT_THAT(texts, IsOk());
  Parrot parrot({"abcd"});
  ASSERT_THAT(texts->Run([&](auto tokens, auto samplers) { return parrot.Next(tokens, samplers); },
                         [](size_t, absl::string_view) {}),
              IsOk());
  EXPECT_EQ(texts->texts()[0].text, "abc");
}

TEST(Continuations, EmptyPrompt_IsRefused) {
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  EXPECT_THAT(Continuations::Create(*bytes, {"a", ""}, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("give at least one")));
}

TEST(Continuations, ErrorOfTheModel_EndsIt) {
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  auto texts = Continuations::Create(*bytes, {"a"}, {.tokens_max = 3});
  ASSERT_THAT(texts, IsOk());
  EXPECT_THAT(texts->Run(
                  [](auto, auto) -> absl::StatusOr<std::vector<int32_t>> {
                    return absl::DataLossError("a damaged file");
                  },
                  [](size_t, absl::string_view) {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a damaged file")));
}

}  // namespace
}  // namespace penstock
