#include "job/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/defaults.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ResolveJob, GoodJob_HasTheNumbersOfTheFile) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(GoodJob()));
  EXPECT_EQ(job.chain.size(), 15);
  EXPECT_EQ(job.method->name, "1f1b");
  EXPECT_EQ(job.steps, 400);
  EXPECT_EQ(job.batch, 32);
  EXPECT_EQ(job.microbatches, 8);
  EXPECT_EQ(job.microbatch, (BatchShape{.batch = 4, .time = 128}));
  EXPECT_EQ(std::get<AdamWConfig>(job.optimizer), AdamWConfig());
  EXPECT_EQ(job.learning_rate, (LearningRate{.peak = 1e-3,
                                             .warmup_samples = 640,
                                             .total_samples = 12800,
                                             .decay = LearningRate::Decay::kCosine,
                                             .final_fraction = 0.1}));
  EXPECT_EQ(job.clip, (Clip{.kind = Clip::Kind::kGlobalNorm, .norm_max = 1.0}));
  EXPECT_EQ(job.precision, Precision::kF32);
  EXPECT_EQ(job.rounding, Rounding::kNearest);
  EXPECT_EQ(job.stash, StashPlace::kDevice);
  EXPECT_EQ(job.repeatability, Repeatability::kBitwise);
  EXPECT_EQ(job.seed, 1u);
  EXPECT_EQ(job.validation_batches, 160);
  EXPECT_EQ(job.tokens_per_step(), 32 * 128);
  EXPECT_EQ(job.samples_of_update(), 32);
}

TEST(ResolveJob, RoundingStashAndRepeatability_AreWhatTheFileSays) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_precision("bf16");
  spec.mutable_training()->set_rounding("stochastic");
  spec.mutable_training()->set_stash("host");
  spec.mutable_training()->set_deterministic(false);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.rounding, Rounding::kStochastic);
  EXPECT_EQ(job.stash, StashPlace::kHost);
  EXPECT_EQ(job.repeatability, Repeatability::kFast);
}

TEST(ResolveJob, AsynchronousMethod_UpdatesAfterEachMicrobatch) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_training()->mutable_clip()->set_layer_norm(2.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.samples_of_update(), 4);
  EXPECT_EQ(job.microbatches_of_update(), 1);
  EXPECT_EQ(job.clip.kind, Clip::Kind::kLayerNorm);
}

TEST(ResolveJob, SpecFromTheNetworkWithoutDefaults_IsRefusedNotCrashed) {
  EXPECT_THAT(ResolveJob(v1::JobSpec()),
              StatusIs(absl::StatusCode::kInvalidArgument, "name: is missing"));
}

TEST(CheckStages, UpToOneLayerEach_IsAccepted) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(GoodJob()));
  for (int stages = 1; stages <= 15; ++stages) {
    EXPECT_THAT(CheckStages(job, stages), IsOk()) << stages;
  }
  EXPECT_THAT(CheckStages(job, 16),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("pipeline.stages: is 16"), HasSubstr("15 layers"))));
}

// A few hundred bytes of a request must not ask for gigabytes.
TEST(ResolveJob, StepTooLongToBeListed_IsRefusedNamingTheKey) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_model()->mutable_gpt()->set_layers(200);
  spec.mutable_training()->set_batch(1 << 20);
  spec.mutable_training()->set_microbatches(1 << 20);
  spec.mutable_pipeline()->set_stages(256);
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("training.microbatches: "), HasSubstr("256 stages"),
                             HasSubstr("1048576 microbatches"))));
  spec.mutable_training()->set_microbatches(1 << 10);
  EXPECT_THAT(ResolveJob(spec), IsOk());
}

TEST(CheckStages, TiedHeadAndAsynchronousMethod_NeedsOneStage) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_pipeline()->clear_stages();
  spec.mutable_training()->clear_clip();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_THAT(CheckStages(job, 1), IsOk());
  EXPECT_THAT(CheckStages(job, 2), StatusIs(absl::StatusCode::kInvalidArgument,
                                            StartsWith("model.gpt.tied_head: must be false")));
}

TEST(ScheduleOptionsOf, TiedHeadOnAnotherStage_MakesAGroup) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(GoodJob()));
  EXPECT_TRUE(ScheduleOptionsOf(job, StraightPipeline(1)).topology.groups.empty());
  const ScheduleOptions options = ScheduleOptionsOf(job, StraightPipeline(4));
  ASSERT_EQ(options.topology.groups.size(), 1u);
  EXPECT_EQ(options.topology.groups[0], (ReduceGroup{.stages = {StageId(0), StageId(3)},
                                                     .quantity = ReduceGroup::Quantity::kGradient,
                                                     .operation = ReduceGroup::Operation::kSum}));
  EXPECT_TRUE(options.global_norm);
  EXPECT_EQ(options.microbatches_per_step, 8);
}

}  // namespace
}  // namespace penstock
