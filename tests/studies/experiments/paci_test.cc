#include "studies/experiments/paci.h"

#include <gmock/gmock.h>

#include "job/resolve.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PaciStudy Published() { return {.text_path = "text"}; }

const PaciContender& Contender(const std::vector<PaciContender>& all, const std::string& name) {
  return *std::find_if(all.begin(), all.end(),
                       [&](const PaciContender& one) { return one.name == name; });
}

TEST(PaciStudy, Default_IsTheExperiment) {
  const PaciStudy study = Published();
  EXPECT_THAT(SettingsOf(study), ElementsAre(PaciSetting{"adamw", 3e-4, 8, 64'000},
                                             PaciSetting{"muon", 3e-3, 8, 8'000}));
  const v1::JobSpec spec = JobOf(study, SettingsOf(study)[0], "paci", 2);
  EXPECT_EQ(spec.training().microbatches(), 8);
  EXPECT_EQ(spec.training().batch(), 8);
  EXPECT_EQ(spec.training().seed(), 2u);
  EXPECT_EQ(spec.training().learning_rate().warmup_steps(), 640);
  EXPECT_EQ(spec.training().learning_rate().decay(), "cosine");
  EXPECT_EQ(spec.training().learning_rate().final_fraction(), 0.1);
  EXPECT_EQ(spec.training().optimizer().adamw().beta2(), 0.95);
  EXPECT_FALSE(spec.training().clip().has_global_norm() || spec.training().clip().has_layer_norm());
  EXPECT_EQ(spec.validation().every_steps(), 500);
  EXPECT_EQ(spec.validation().batches(), 80);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  // 8 blocks of width 32, 256 bytes in the embedding and in the head, 32 positions.
  EXPECT_EQ(job.model.parameter_count(), 8 * 12'704 + 2 * 256 * 32 + 32 * 32 + 64);
  EXPECT_EQ(StagesOf(study).back().end(), job.model.size());
}

TEST(PaciStudy, Lists_MakeEveryCombination) {
  PaciStudy study = Published();
  study.batches = {8, 32};
  study.learning_rates = {1e-3};
  study.steps = {1000, 2000};
  EXPECT_THAT(
      SettingsOf(study),
      ElementsAre(PaciSetting{"adamw", 1e-3, 8, 1000}, PaciSetting{"adamw", 1e-3, 8, 2000},
                  PaciSetting{"adamw", 1e-3, 32, 1000}, PaciSetting{"adamw", 1e-3, 32, 2000},
                  PaciSetting{"muon", 1e-3, 8, 1000}, PaciSetting{"muon", 1e-3, 8, 2000},
                  PaciSetting{"muon", 1e-3, 32, 1000}, PaciSetting{"muon", 1e-3, 32, 2000}));
  EXPECT_EQ(SettingsOf(study)[2].name(), "adamw-0.001-batch32-1000");
  EXPECT_EQ(SettingsOf(study)[2].group(), "adamw 0.001, batch 32");
  // At least 16 validations.
  EXPECT_EQ(ValidationInterval(study, {"adamw", 1e-3, 8, 1000}), 62);
  EXPECT_EQ(ValidationInterval(study, {"adamw", 1e-3, 8, 8000}), 500);
  EXPECT_EQ(ValidationInterval(study, {"adamw", 1e-3, 8, 3}), 1);
}

// On 8 stages, with 8 microbatches.
TEST(PaciStudy, Times_AreThoseOfEqualDevices) {
  const PaciStudy study = Published();
  const std::vector<PaciContender> all = ContendersOf(study);
  const auto time = [&](const std::string& name, int64_t steps) {
    return TimeOfSteps(study, Contender(all, name), steps);
  };
  // M + S - 1 in every step, of which 16 microbatches are half as long.
  EXPECT_THAT(time("flush_m8", 1), IsOkAndHolds(DoubleNear(15.0, 1e-9)));
  EXPECT_THAT(time("flush_m8", 500), IsOkAndHolds(DoubleNear(500 * 15.0, 1e-6)));
  EXPECT_THAT(time("flush_m16", 500), IsOkAndHolds(DoubleNear(500 * 23.0 / 2, 1e-6)));
  // S - 1 until the drain, and none of them again.
  EXPECT_THAT(time("paci", 1), IsOkAndHolds(DoubleNear(15.0, 1e-9)));
  EXPECT_THAT(time("paci", 500), IsOkAndHolds(DoubleNear(4007.0, 1e-6)));
  // A third of the bubble.
  EXPECT_THAT(time("zb_h1", 500), IsOkAndHolds(DoubleNear(500 * (8 + 7 / 3.0), 1e-6)));
  // With as few microbatches as stages a step ends before zb-h2 has more forwards to make than zb-h1.
  EXPECT_THAT(time("zb_h2", 500), IsOkAndHolds(DoubleNear(500 * (8 + 7 / 3.0), 1e-6)));
}

TEST(PaciStudy, BadSettings_AreRefused) {
  const auto expect_refused = [](void (*change)(PaciStudy&), const std::string& message) {
    PaciStudy study = Published();
    change(study);
    EXPECT_THAT(CheckPaci(study), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  EXPECT_THAT(CheckPaci(Published()), IsOk());
  expect_refused([](PaciStudy& study) { study.seeds = 0; }, "seeds: there is none");
  expect_refused([](PaciStudy& study) { study.batches = {}; }, "batches: there is none");
  expect_refused([](PaciStudy& study) { study.optimizers = {}; }, "optimizers: there is none");
  expect_refused([](PaciStudy& study) { study.optimizers = {"sgd"}; },
                 "optimizers: is sgd; expected one of adamw, muon");
  expect_refused([](PaciStudy& study) { study.batches = {12}; },
                 "training.microbatches: is 8, which does not divide training.batch (12)");
  expect_refused([](PaciStudy& study) { study.steps = {0}; }, "expected at least one step");
  expect_refused([](PaciStudy& study) { study.learning_rates = {-1.0}; }, "learning_rate");
}

}  // namespace
}  // namespace penstock
