#include "inference/checkpoint_model.h"

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr GptConfig kConfig = {.layers = 2,
                               .width = 16,
                               .heads = 4,
                               .context = 8,
                               .vocabulary = 300,
                               .dropout = 0.125,
                               .tied_head = false};

TEST(GptConfigOf, ManifestWithAModel_IsTakenAtItsWord) {
  EXPECT_THAT(GptConfigOf({.model = kConfig}), IsOkAndHolds(kConfig));
}

TEST(GptConfigOf, ManifestOfTheVersionBefore_IsReadFromItsFingerprint) {
  for (const bool tied_head : {false, true}) {
    GptConfig config = kConfig;
    config.tied_head = tied_head;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildGpt(config));
    EXPECT_THAT(
        GptConfigOf({.fingerprint = MakeFingerprint({.model = model, .optimizer = AdamWConfig()})}),
        IsOkAndHolds(config));
  }
}

TEST(GptConfigOf, FingerprintOfNoModelOfThisVersion_IsRefused) {
  EXPECT_THAT(GptConfigOf({.fingerprint = {{"model.architecture", "mixer"}}}),
              StatusIs(absl::StatusCode::kUnimplemented, ::testing::HasSubstr("cannot build")));
}

}  // namespace
}  // namespace penstock
