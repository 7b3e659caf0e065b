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

TEST(ModelOf, ManifestWithAModel_IsTakenAtItsWord) {
  EXPECT_THAT(ModelOf({.model = kConfig}), IsOkAndHolds(StoredModel(kConfig)));
}

TEST(ModelOf, ManifestOfTheVersionBefore_IsReadFromItsFingerprint) {
  for (const bool tied_head : {false, true}) {
    GptConfig config = kConfig;
    config.tied_head = tied_head;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, BuildGpt(config));
    EXPECT_THAT(
        ModelOf({.fingerprint = MakeFingerprint({.model = model, .optimizer = AdamWConfig()})}),
        IsOkAndHolds(StoredModel(config)));
  }
}

TEST(ModelOf, FingerprintOfNoModelOfThisVersion_IsRefused) {
  for (const Fingerprint& fingerprint :
       {Fingerprint{{"model.architecture", "mixer"}},
        Fingerprint{{"model layers", "-9223372036854775808"}},
        Fingerprint{{"model layers", "99999999999999999999"}, {"model.width", "2147483648"}}}) {
    EXPECT_THAT(ModelOf({.fingerprint = fingerprint}),
                StatusIs(absl::StatusCode::kUnimplemented, ::testing::HasSubstr("cannot build")));
  }
}

}  // namespace
}  // namespace penstock
