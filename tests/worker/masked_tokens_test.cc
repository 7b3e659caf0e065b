#include "worker/masked_tokens.h"

#include <gmock/gmock.h>

#include "job/data/data_kind.h"
#include "model/families/bert.h"
#include "model/families/gpt.h"
#include "tests/support/status_matchers.h"
#include "worker/token_data.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kContext = 50;
constexpr int64_t kVocabulary = 1000;
constexpr int32_t kMask = 999, kKept = 7;
enum Ports : int { kTokens, kSegments, kLengths, kTargets };

ModelGraph Bert() {
  return *BuildBert({.layers = 1,
                     .width = 8,
                     .heads = 2,
                     .hidden = 8,
                     .context = kContext,
                     .positions = kContext,
                     .vocabulary = kVocabulary,
                     .head = kMlmHead});
}

class MaskedTokensTest : public ::testing::Test {
 protected:
  MaskedTokensTest() {
    std::vector<int32_t> ids(20'000);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = i % 10 == 0 ? kKept : static_cast<int32_t>(i * 31 % (kVocabulary - 1));
    }
    absl::StatusOr<std::unique_ptr<TokenData>> tokens =
        TokenData::Create(std::make_unique<StoredTokens>(ids), nullptr,
                          {.name = "/tokens",
                           .validation_fraction = 0.25,
                           .context = kContext,
                           .order = OrderKind::kShuffled,
                           .validation_windows = 8,
                           .seed = 5});
    EXPECT_THAT(tokens, IsOk());
    plain_ = tokens->get();
    data_ = std::make_unique<MaskedTokens>(
        *std::move(tokens), Bert(), MaskingOptions{.mask = kMask, .kept = {kKept}, .seed = 5});
  }

  static std::vector<int32_t> Read(const DataSource& data, Split split, int64_t first,
                                   int64_t samples, int port, int64_t sample_size = kContext) {
    std::vector<int32_t> values(samples * sample_size);
    EXPECT_THAT(data.Read(split, first, port,
                          absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                         values.size() * sizeof(int32_t))),
                IsOk());
    return values;
  }

  const TokenData* plain_ = nullptr;
  std::unique_ptr<MaskedTokens> data_;
};

TEST_F(MaskedTokensTest, Targets_AreTheMaskedTokensInTheirShares) {
  constexpr int64_t kSamples = 2000;
  const std::vector<int32_t> original =
      Read(*plain_, Split::kTraining, 0, kSamples, TokenData::kTokens);
  const std::vector<int32_t> tokens = Read(*data_, Split::kTraining, 0, kSamples, kTokens);
  const std::vector<int32_t> targets = Read(*data_, Split::kTraining, 0, kSamples, kTargets);
  int64_t chosen = 0, masked = 0, same = 0, may = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    may += original[i] == kKept ? 0 : 1;
    if (targets[i] == kUnmaskedTarget) {
      ASSERT_EQ(tokens[i], original[i]);
      continue;
    }
    ASSERT_EQ(targets[i], original[i]);
    ASSERT_NE(original[i], kKept);
    ++chosen;
    masked += tokens[i] == kMask ? 1 : 0;
    same += tokens[i] == original[i] ? 1 : 0;
  }
  // Of 90,000 tokens: four deviations are 0.005 of what is chosen, and 0.014 and 0.011 of the shares.
  EXPECT_NEAR(static_cast<double>(chosen) / may, 0.15, 0.005);
  EXPECT_NEAR(static_cast<double>(masked) / chosen, 0.8, 0.015);
  EXPECT_NEAR(static_cast<double>(same) / chosen, 0.1, 0.012);
}

TEST_F(MaskedTokensTest, Masks_AreOfTheSampleHoweverItIsRead) {
  const std::vector<int32_t> together = Read(*data_, Split::kTraining, 40, 6, kTargets);
  std::vector<int32_t> apart;
  for (int64_t sample = 40; sample < 46; ++sample) {
    const std::vector<int32_t> one = Read(*data_, Split::kTraining, sample, 1, kTargets);
    apart.insert(apart.end(), one.begin(), one.end());
  }
  EXPECT_EQ(apart, together);
}

TEST_F(MaskedTokensTest, EachEpoch_MasksOthers) {
  constexpr int64_t kWindows = (15'000 - 1) / kContext;
  for (int64_t sample = 0; sample < kWindows; ++sample) {
    if (plain_->TrainingOffset(sample) != 0) continue;
    for (int64_t later = kWindows; later < 2 * kWindows; ++later) {
      if (plain_->TrainingOffset(later) != 0) continue;
      EXPECT_NE(Read(*data_, Split::kTraining, sample, 1, kTargets),
                Read(*data_, Split::kTraining, later, 1, kTargets));
      return;
    }
  }
  FAIL() << "no epoch had the first window";
}

TEST_F(MaskedTokensTest, OtherPorts_SayThatASampleIsOneWholeSegment) {
  EXPECT_THAT(Read(*data_, Split::kTraining, 3, 2, kSegments), Each(0));
  EXPECT_THAT(Read(*data_, Split::kValidation, 3, 2, kLengths, 1), Each(kContext));
  EXPECT_EQ(data_->validation_samples(), 8);
}

TEST(CheckReadsMasked, ModelThatPredictsNextTokens_IsRefused) {
  EXPECT_THAT(CheckReadsMasked("data.tokens.masking", Bert()), IsOk());
  const ModelGraph gpt =
      *BuildGpt({.layers = 1, .width = 8, .heads = 2, .context = 6, .vocabulary = 11});
  EXPECT_THAT(CheckReadsMasked("data.tokens.masking", gpt),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("data.tokens.masking: "), HasSubstr("head: mlm"))));
}

}  // namespace
}  // namespace penstock
