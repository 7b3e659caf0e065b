#include "checkpoint/fingerprint.h"

#include <gtest/gtest.h>

#include "model/families/gpt.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Fingerprint Of(const GptConfig& config, const OptimizerConfig& optimizer = AdamWConfig(),
               uint64_t seed = 1) {
  const ModelGraph model = *BuildGpt(config);
  return MakeFingerprint({.model = model, .optimizer = optimizer, .batch = 8, .seed = seed});
}

GptConfig Small() { return {.layers = 2, .width = 16, .heads = 2, .context = 8}; }

TEST(Fingerprint, Compare_Same_IsOk) {
  EXPECT_THAT(CompareFingerprints(Of(Small()), Of(Small())), IsOk());
}

TEST(Fingerprint, Compare_OtherWidth_NamesTheFieldAndBothValues) {
  GptConfig wide = Small();
  wide.width = 32;
  EXPECT_THAT(CompareFingerprints(Of(wide), Of(Small())),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.width is 32 in the checkpoint and 16 in the job")));
}

TEST(Fingerprint, Compare_AnyModelField_IsFound) {
  for (int field = 0; field < 7; ++field) {
    GptConfig other = Small();
    if (field == 0) other.layers = 3;
    if (field == 1) other.heads = 4;
    if (field == 2) other.context = 9;
    if (field == 3) other.vocabulary = 300;
    if (field == 4) other.dropout = 0.1;
    if (field == 5) other.tied_head = false;
    if (field == 6) other.untie = true;
    EXPECT_THAT(CompareFingerprints(Of(other), Of(Small())),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another job")))
        << field;
  }
}

TEST(Fingerprint, Compare_OtherOptimizer_IsFound) {
  EXPECT_THAT(CompareFingerprints(Of(Small(), SgdConfig{.momentum = 0.9}), Of(Small())),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("training.optimizer"), HasSubstr("sgd with momentum"))));
}

TEST(Fingerprint, Compare_OtherRatesOfTheSameOptimizer_IsOk) {
  EXPECT_THAT(CompareFingerprints(Of(Small(), AdamWConfig{.beta1 = 0.5}), Of(Small())), IsOk());
}

TEST(Fingerprint, Compare_OtherSeed_IsFound) {
  EXPECT_THAT(CompareFingerprints(Of(Small(), AdamWConfig(), 2), Of(Small())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training.seed is 2")));
}

TEST(Fingerprint, Compare_OtherData_NamesTheFieldAndBothValues) {
  const ModelGraph model = *BuildGpt(Small());
  const OptimizerConfig optimizer = AdamWConfig();
  const auto of = [&](const char* sha256) {
    return MakeFingerprint(
        {.model = model, .optimizer = optimizer, .data = {{"data.text.sha256", sha256}}});
  };
  EXPECT_THAT(CompareFingerprints(of("abc"), of("abc")), IsOk());
  EXPECT_THAT(CompareFingerprints(of("abc"), of("abd")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("data.text.sha256 is abc in the checkpoint and abd in the job")));
}

TEST(Fingerprint, Compare_FieldMissingInTheCheckpoint_SaysAbsent) {
  Fingerprint old = Of(Small());
  old.erase(old.begin());
  EXPECT_THAT(CompareFingerprints(old, Of(Small())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("absent")));
}

}  // namespace
}  // namespace penstock
