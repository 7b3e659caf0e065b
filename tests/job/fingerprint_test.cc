#include "job/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>

#include "job/data/data_kind.h"
#include "job/defaults.h"
#include "job/model_graph.h"
#include "model/fuse_branches.h"
#include "tests/job/jobs.h"
#include "tests/model/separate_gpt.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

Fingerprint After(const std::function<void(v1::JobSpec&)>& change) {
  v1::JobSpec spec = GoodJob();
  change(spec);
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  EXPECT_THAT(job, IsOk());
  return job.ok() ? FingerprintOf(spec, *job) : Fingerprint();
}

TEST(FingerprintOf, WhatGivesStoredNumbersTheirMeaning_IsAPartOfIt) {
  const Fingerprint good = After([](v1::JobSpec&) {});
  const std::function<void(v1::JobSpec&)> changes[] = {
      [](v1::JobSpec& spec) { spec.mutable_model()->mutable_gpt()->set_layers(7); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_batch(64); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_seed(2); },
      [](v1::JobSpec& spec) {
        spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
      },
      [](v1::JobSpec& spec) {
        spec.mutable_data()->mutable_text()->set_sha256(std::string(64, 'a'));
      },
      [](v1::JobSpec& spec) { spec.mutable_data()->mutable_text()->set_validation_fraction(0.25); },
      // Few bytes of a long text are enough for other samples.
      [](v1::JobSpec& spec) {
        spec.mutable_data()->mutable_text()->set_validation_fraction(0.1000000001);
      }};
  for (size_t i = 0; i < std::size(changes); ++i) {
    EXPECT_NE(After(changes[i]), good) << "change " << i;
  }
}

// How a model is computed may change, and its checkpoints still fit.
TEST(FingerprintOf, ModelWithFusedBranches_IsThatOfTheListedOps) {
  const ModelGraph described =
      SeparateGpt({.layers = 2, .width = 16, .heads = 2, .context = 8, .vocabulary = 256});
  v1::JobSpec spec = GoodJob();
  *spec.mutable_model()->mutable_graph() = ToProto(described);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.model, FuseBranches(described));
  EXPECT_EQ(FingerprintOf(spec, job),
            MakeFingerprint({.model = described,
                             .optimizer = job.optimizer,
                             .batch = job.batch,
                             .seed = job.seed,
                             .data = DataKindOf(spec.data()).fingerprint(spec.data())}));
  EXPECT_EQ(StoredModelOf(spec.model()), StoredModel(described));
}

TEST(FingerprintOf, WhatSaysWhichRecordsAStepSees_IsAPartOfIt) {
  const auto after = [](const std::function<void(v1::RecordsSpec&)>& change) {
    return After([&](v1::JobSpec& spec) {
      v1::RecordsSpec& records = *spec.mutable_data()->mutable_records();
      records.set_path("mnist/train");
      FillDefaults(spec);
      change(records);
    });
  };
  const Fingerprint good = after([](v1::RecordsSpec&) {});
  EXPECT_NE(After([](v1::JobSpec& spec) { spec.mutable_data()->mutable_synthetic(); }), good);
  const std::function<void(v1::RecordsSpec&)> changes[] = {
      [](v1::RecordsSpec& records) { records.set_sha256(std::string(64, 'a')); },
      [](v1::RecordsSpec& records) { records.set_validation_fraction(0.25); },
      [](v1::RecordsSpec& records) { records.set_order("sequential"); },
      [](v1::RecordsSpec& records) { records.mutable_augment()->set_flip(true); },
      [](v1::RecordsSpec& records) { records.mutable_augment()->set_crop(4); }};
  for (size_t i = 0; i < std::size(changes); ++i) EXPECT_NE(after(changes[i]), good) << i;
  // The place of the files is not, and neither is what validation looks at.
  EXPECT_EQ(after([](v1::RecordsSpec& records) { records.set_path("elsewhere"); }), good);
}

// Asked of the kind alone: the model of these jobs reads no pairs.
TEST(FingerprintOf, WhatSaysWhichPairsAStepSees_IsAPartOfIt) {
  const auto after = [](const std::function<void(v1::PairsSpec&)>& change) {
    v1::JobSpec spec = GoodJob();
    v1::PairsSpec& pairs = *spec.mutable_data()->mutable_pairs();
    pairs.set_path("english-german/train");
    FillDefaults(spec);
    EXPECT_EQ(pairs.buckets(), 16);
    change(pairs);
    return DataKindOf(spec.data()).fingerprint(spec.data());
  };
  const Fingerprint good = after([](v1::PairsSpec&) {});
  EXPECT_NE(after([](v1::PairsSpec& pairs) { pairs.set_sha256(std::string(64, 'a')); }), good);
  EXPECT_NE(after([](v1::PairsSpec& pairs) { pairs.set_buckets(8); }), good);
  EXPECT_EQ(after([](v1::PairsSpec& pairs) { pairs.set_path("elsewhere"); }), good);
  // What is only validated on changes no weight.
  EXPECT_EQ(after([](v1::PairsSpec& pairs) { pairs.set_validation("elsewhere"); }), good);
}

TEST(FingerprintOf, WhatAResumedJobMayChange_IsNot) {
  const Fingerprint good = After([](v1::JobSpec&) {});
  EXPECT_EQ(After([](v1::JobSpec& spec) {
              spec.mutable_pipeline()->set_method("gpipe");
              spec.mutable_pipeline()->set_stages(2);
              spec.mutable_training()->set_steps(1000);
              spec.mutable_training()->set_microbatches(16);
            }),
            good);
}

}  // namespace
}  // namespace penstock
