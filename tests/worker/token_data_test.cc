#include "worker/token_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kPath[] = "/text";
constexpr int64_t kContext = 4;

// 200 bytes, each its own position: the first 150 for training.
class TokenDataTest : public ::testing::Test {
 protected:
  TokenDataTest() {
    for (int i = 0; i < 200; ++i) text_ += static_cast<char>(i);
  }

  static TokenDataOptions Options() {
    return {.name = kPath,
            .validation_fraction = 0.25,
            .context = kContext,
            .validation_windows = 10,
            .seed = 3};
  }

  absl::StatusOr<std::unique_ptr<TokenData>> Create(const TokenDataOptions& options) const {
    return TokenData::Create(std::make_unique<ByteTokens>(text_), nullptr, options);
  }

  std::unique_ptr<TokenData> Open(const TokenDataOptions& options = Options()) const {
    auto data = Create(options);
    EXPECT_THAT(data, IsOk());
    return *std::move(data);
  }

  static void Read(const TokenData& data, Split split, int64_t first_sample, int port,
                   std::vector<int32_t>& tokens) {
    ASSERT_THAT(data.Read(split, first_sample, port,
                          absl::MakeSpan(reinterpret_cast<std::byte*>(tokens.data()),
                                         tokens.size() * sizeof(int32_t))),
                IsOk());
  }

  std::string text_;
};

TEST_F(TokenDataTest, ReadTraining_TargetsAreTheInputsShiftedByOne) {
  const auto data = Open();
  std::vector<int32_t> inputs(3 * kContext);
  std::vector<int32_t> targets(3 * kContext);
  Read(*data, Split::kTraining, 5, TokenData::kTokens, inputs);
  Read(*data, Split::kTraining, 5, TokenData::kTargets, targets);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t t = 0; t < kContext; ++t) {
      // A byte of this text is its own offset.
      EXPECT_EQ(inputs[row * kContext + t], data->TrainingOffset(5 + row) + t);
      EXPECT_EQ(targets[row * kContext + t], data->TrainingOffset(5 + row) + t + 1);
    }
  }
}

// 200 bytes, of which 150 are for training; the last byte of a window is a target alone.
TEST_F(TokenDataTest, EvaluatedParts_AreReadOnceWithoutGaps) {
  struct Expected {
    DataPart part;
    int64_t first;
    int64_t windows;
  };
  for (const Expected& expected :
       {Expected{DataPart::kAll, 0, 49}, Expected{DataPart::kTraining, 0, 37},
        Expected{DataPart::kValidation, 150, 12}}) {
    TokenDataOptions options = Options();
    options.evaluated = expected.part;
    const auto data = Open(options);
    ASSERT_EQ(data->validation_samples(), expected.windows);
    std::vector<int32_t> tokens(expected.windows * kContext);
    std::vector<int32_t> targets(expected.windows * kContext);
    Read(*data, Split::kValidation, 0, TokenData::kTokens, tokens);
    Read(*data, Split::kValidation, 0, TokenData::kTargets, targets);
    for (int64_t i = 0; i < expected.windows * kContext; ++i) {
      EXPECT_EQ(tokens[i], expected.first + i);
      EXPECT_EQ(targets[i], expected.first + i + 1);
    }
  }
}

TEST_F(TokenDataTest, EvaluatedPart_NeedsNoOther) {
  TokenDataOptions options = Options();
  options.validation_fraction = 1.0;
  options.evaluated = DataPart::kValidation;
  EXPECT_EQ(Open(options)->validation_samples(), 49);
  options.evaluated = DataPart::kTraining;
  EXPECT_THAT(Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("its training part has 0")));
}

TEST_F(TokenDataTest, TrainingOffset_ManySamples_StayInTheFirstPartAndReachItsEnds) {
  const auto data = Open();
  std::set<int64_t> offsets;
  for (int64_t sample = 0; sample < 5000; ++sample) offsets.insert(data->TrainingOffset(sample));
  EXPECT_EQ(*offsets.begin(), 0);
  EXPECT_EQ(*offsets.rbegin(), 150 - kContext - 1);  // its last target is byte 149
  EXPECT_EQ(offsets.size(), 150u - kContext);
}

TEST_F(TokenDataTest, TrainingOffset_SameSeed_IsAFunctionOfTheSample) {
  const auto first = Open();
  const auto second = Open();
  TokenDataOptions other_seed = Options();
  other_seed.seed = 4;
  const auto other = Open(other_seed);
  int different = 0;
  for (int64_t sample = 999; sample >= 0; --sample) {
    EXPECT_EQ(first->TrainingOffset(sample), second->TrainingOffset(sample));
    different += first->TrainingOffset(sample) != other->TrainingOffset(sample);
  }
  EXPECT_GT(different, 900);
}

TEST_F(TokenDataTest, TrainingOffset_ManySamples_AreUniform) {
  const auto data = Open();
  constexpr int kSamples = 14'600;
  std::vector<int> count(146);
  for (int64_t sample = 0; sample < kSamples; ++sample) ++count[data->TrainingOffset(sample)];
  double chi_squared = 0.0;
  for (int c : count) chi_squared += (c - 100.0) * (c - 100.0) / 100.0;
  // 145 degrees of freedom: mean 145, deviation 17.
  EXPECT_LT(chi_squared, 145 + 5 * 17);
  EXPECT_GT(chi_squared, 145 - 5 * 17);
}

TEST_F(TokenDataTest, ValidationOffset_Windows_SpreadEvenlyOverTheLastPart) {
  const auto data = Open();
  EXPECT_EQ(data->ValidationOffset(0), 150);
  for (int64_t window = 1; window < 10; ++window) {
    const int64_t gap = data->ValidationOffset(window) - data->ValidationOffset(window - 1);
    EXPECT_GE(gap, 4);
    EXPECT_LE(gap, 5);
  }
  EXPECT_LE(data->ValidationOffset(9) + kContext + 1, 200);
}

TEST_F(TokenDataTest, ReadValidation_ReadsTheWindows) {
  const auto data = Open();
  std::vector<int32_t> targets(2 * kContext);
  Read(*data, Split::kValidation, 8, TokenData::kTargets, targets);
  EXPECT_EQ(targets[0], data->ValidationOffset(8) + 1);
  EXPECT_EQ(targets[kContext], data->ValidationOffset(9) + 1);
}

// 150 bytes for training and 50 for validation, each read as 5 streams of windows of 4.
TEST_F(TokenDataTest, InContiguousOrder_EveryStepReadsTheNextWindowOfEachStream) {
  TokenDataOptions options = Options();
  options.streams = 5;
  const auto data = Open(options);
  constexpr int64_t kTrainingStream = 149 / 5;
  constexpr int64_t kValidationStream = 49 / 5;
  std::vector<int32_t> inputs(5 * kContext);
  std::vector<int32_t> targets(5 * kContext);
  for (int64_t step = 0; step < 20; ++step) {
    Read(*data, Split::kTraining, 5 * step, TokenData::kTokens, inputs);
    Read(*data, Split::kTraining, 5 * step, TokenData::kTargets, targets);
    const int64_t window = step % (kTrainingStream / kContext);
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t t = 0; t < kContext; ++t) {
        const int64_t place = row * kTrainingStream + window * kContext + t;
        EXPECT_EQ(inputs[row * kContext + t], place);
        EXPECT_EQ(targets[row * kContext + t], place + 1);
      }
      EXPECT_EQ(data->StartsAfresh(Split::kTraining, 5 * step + row), window == 0);
    }
  }
  for (int64_t sample = 0; sample < 10; ++sample) {
    EXPECT_EQ(data->ValidationOffset(sample),
              150 + sample % 5 * kValidationStream + sample / 5 * kContext);
    EXPECT_EQ(data->StartsAfresh(Split::kValidation, sample), sample < 5);
  }
}

// 150 bytes for training are 37 windows of 4, the last of which ends with the byte 148.
TEST_F(TokenDataTest, InShuffledOrder_EveryEpochHasEachWindowOnce) {
  TokenDataOptions options = Options();
  options.order = OrderKind::kShuffled;
  const auto data = Open(options);
  std::vector<std::vector<int64_t>> epochs(3);
  for (int64_t sample = 0; sample < 3 * 37; ++sample) {
    epochs[sample / 37].push_back(data->TrainingOffset(sample));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (std::vector<int64_t>& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (int64_t window = 0; window < 37; ++window) EXPECT_EQ(epoch[window], window * kContext);
  }
}

TEST_F(TokenDataTest, InSequentialOrder_WindowsComeAsTheyLie) {
  TokenDataOptions options = Options();
  options.order = OrderKind::kSequential;
  const auto data = Open(options);
  for (int64_t sample = 0; sample < 100; ++sample) {
    EXPECT_EQ(data->TrainingOffset(sample), sample % 37 * kContext);
  }
}

// 37 windows are 12 blocks of 3; the last window is in none.
TEST_F(TokenDataTest, InBlockOrder_MicrobatchesAreStretchesAndEveryEpochHasEachOnce) {
  TokenDataOptions options = Options();
  options.order = OrderNamed("blocks");
  options.block = 3;
  const auto data = Open(options);
  std::vector<std::vector<int64_t>> epochs(3);
  for (int64_t sample = 0; sample < 3 * 36; ++sample) {
    const int64_t offset = data->TrainingOffset(sample);
    if (sample % 3 == 0) {
      EXPECT_EQ(offset % (3 * kContext), 0);
      epochs[sample / 36].push_back(offset);
    } else {
      EXPECT_EQ(offset, data->TrainingOffset(sample - 1) + kContext);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
  for (std::vector<int64_t>& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (int64_t block = 0; block < 12; ++block) EXPECT_EQ(epoch[block], block * 3 * kContext);
  }
}

TEST_F(TokenDataTest, InBlockOrder_TrainingNeedsABlock) {
  TokenDataOptions options = Options();
  options.block = 37;
  EXPECT_THAT(Create(options), IsOk());
  options.block = 38;
  EXPECT_THAT(
      Create(options),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("its training part has 150 of 200 tokens, but a microbatch in the "
                               "order blocks needs its samples * context + 1 = 38 * 4 + 1 = 153"),
                     HasSubstr("a smaller batch"))));
}

TEST_F(TokenDataTest, AnotherSequenceForValidation_LeavesAllTokensForTraining) {
  TokenDataOptions options = Options();
  options.order = OrderKind::kSequential;
  const auto data = TokenData::Create(
      std::make_unique<ByteTokens>(text_),
      std::make_unique<StoredTokens>(std::vector<int32_t>{900, 901, 902, 903, 904}), options);
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ((*data)->TrainingOffset(48), 192);  // of 199 bytes with a next one, 49 windows
  EXPECT_EQ((*data)->TrainingOffset(49), 0);
  std::vector<int32_t> targets(kContext);
  Read(**data, Split::kValidation, 9, TokenData::kTargets, targets);
  EXPECT_EQ(targets, (std::vector<int32_t>{901, 902, 903, 904}));
}

// What is read ahead is what the same sample of the next step will read.
TEST_F(TokenDataTest, TrainingSamples_AreAskedForAStepAhead) {
  class Recording : public TokenSequence {
   public:
    explicit Recording(std::vector<int64_t>& asked) : asked_(asked) {}
    int64_t tokens() const override { return 1000; }
    absl::Status Copy(int64_t, absl::Span<int32_t>) const override { return absl::OkStatus(); }
    void WillNeed(int64_t first, int64_t count) const override {
      EXPECT_EQ(count, kContext + 1);
      asked_.push_back(first);
    }

   private:
    std::vector<int64_t>& asked_;
  };
  std::vector<int64_t> asked;
  TokenDataOptions options = Options();
  options.order = OrderKind::kShuffled;
  options.batch = 6;
  const auto data = TokenData::Create(std::make_unique<Recording>(asked), nullptr, options);
  ASSERT_THAT(data, IsOk());
  std::vector<int32_t> tokens(2 * kContext);
  Read(**data, Split::kTraining, 3, TokenData::kTokens, tokens);
  Read(**data, Split::kValidation, 3, TokenData::kTokens, tokens);
  EXPECT_EQ(asked, (std::vector<int64_t>{(*data)->TrainingOffset(9), (*data)->TrainingOffset(10)}));
}

TEST_F(TokenDataTest, InRandomOrder_EverySampleStartsAfresh) {
  const auto data = Open();
  for (const Split split : {Split::kTraining, Split::kValidation}) {
    for (int64_t sample = 0; sample < 10; ++sample) {
      EXPECT_TRUE(data->StartsAfresh(split, sample));
    }
  }
}

TEST_F(TokenDataTest, InContiguousOrder_NeedsAWindowForEachSampleOfAStep) {
  TokenDataOptions options = Options();
  options.streams = 12;
  Open(options);  // 49 bytes, and one more for the last target
  options.streams = 13;
  EXPECT_THAT(Create(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("validation part has 50 of 200"),
                                              HasSubstr("batch * context + 1 = 13 * 4 + 1 = 53"),
                                              HasSubstr("a smaller batch"))));
}

TEST_F(TokenDataTest, Open_BytesAbove127_ArePositiveTokens) {
  text_ = std::string(100, '\xff');
  const auto data = Open();
  std::vector<int32_t> tokens(kContext);
  Read(*data, Split::kTraining, 0, TokenData::kTokens, tokens);
  EXPECT_EQ(tokens[0], 255);
}

TEST_F(TokenDataTest, Open_ShortestPossible_Works) {
  text_ = std::string(20, 'a');  // 15 for training, 5 for validation: one window
  const auto data = Open();
  EXPECT_EQ(data->ValidationOffset(9), 15);
}

TEST_F(TokenDataTest, Open_Empty_SaysHowMuchIsNeeded) {
  text_.clear();
  EXPECT_THAT(Create(Options()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("empty"), HasSubstr("5 tokens"), HasSubstr(kPath))));
}

TEST_F(TokenDataTest, Open_TooShort_NamesThePartAndWhatItNeeds) {
  text_ = std::string(19, 'a');
  EXPECT_THAT(Create(Options()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("validation part has 4"), HasSubstr("context + 1 = 5"))));
  text_ = std::string(4, 'a');
  EXPECT_THAT(Create(Options()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training part")));
}

TEST_F(TokenDataTest, Open_WithoutValidation_NeedsNoValidationPart) {
  text_ = std::string(8, 'a');
  TokenDataOptions options = Options();
  options.needs_validation = false;
  EXPECT_THAT(Create(options), IsOk());
}

// Documents have seven tokens, with the 2 at their ends.
TEST_F(TokenDataTest, Positions_BeginAfterTheEndOfADocument) {
  for (char& byte : text_) byte = static_cast<char>(static_cast<unsigned char>(byte) % 7);
  TokenDataOptions options = Options();
  options.end_of_text = 2;
  options.context = 20;
  const auto data = Open(options);
  for (const Split split : {Split::kTraining, Split::kValidation}) {
    std::vector<int32_t> tokens(3 * options.context), positions(3 * options.context);
    Read(*data, split, 1, TokenData::kTokens, tokens);
    Read(*data, split, 1, TokenData::kPositions, positions);
    for (size_t i = 0; i < positions.size(); ++i) {
      const bool begins = i % 20 == 0 || tokens[i - 1] == 2;
      EXPECT_EQ(positions[i], begins ? 0 : positions[i - 1] + 1) << i;
    }
    EXPECT_GT(std::count(positions.begin(), positions.end(), 0), 6);
  }
}

}  // namespace
}  // namespace penstock
