#include "job/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
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

TEST(CheckStages, SeveralStagesOnAWorker_MustDivide) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method("zb-v");
  spec.mutable_pipeline()->set_stages(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.stages_per_worker, 2);
  EXPECT_EQ(job.WorkersOf(4), 2);
  EXPECT_EQ(TopologyOf(job, 4), VPipeline(2));
  EXPECT_THAT(CheckStages(job, 5),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("pipeline.stages: is 5"), HasSubstr("4 or 6 would do"))));
  spec.mutable_pipeline()->set_stages_per_worker(1);
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         StartsWith("pipeline.stages_per_worker: is 1")));
  spec.mutable_pipeline()->set_stages_per_worker(4);
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("pipeline.stages_per_worker: zb-v: expected two stages")));
}

TEST(ResolveJob, WeightsThatAMethodCannotHave_AreRefused) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_weights("stashed");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(StartsWith("pipeline.weights: \"stashed\""),
                                               HasSubstr("did you mean stash?"))));
  spec.mutable_pipeline()->set_weights("stash");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("cannot have the weights \"stash\"")));
}

TEST(ResolveJob, RecordedOrder_IsForMethodsWhoseOrderIsFree) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_training()->mutable_clip()->clear_kind();
  EXPECT_EQ(ResolveJob(spec)->order, Order::kStatic);
  spec.mutable_pipeline()->set_order("recorded");
  for (const char* method :
       {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "pipedream", "pipedream-2bw", "paci"}) {
    spec.mutable_pipeline()->set_method(method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
    EXPECT_EQ(job.order, Order::kRecorded) << method;
  }
  for (const char* method : {"zb-h1", "zb-h2", "zb-v", "dualpipe-v"}) {
    spec.mutable_pipeline()->set_method(method);
    EXPECT_THAT(ResolveJob(spec),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("pipeline.order: cannot be recorded with "),
                               HasSubstr(method), HasSubstr("where each I and W stands"))));
  }
  spec.mutable_pipeline()->set_method("1f1b");
  spec.mutable_pipeline()->set_in_flight_factor(3);
  EXPECT_EQ(ResolveJob(spec)->in_flight_factor, 3);
  spec.mutable_pipeline()->set_in_flight_factor(17);
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("pipeline.in_flight_factor: is 17")));
  spec.mutable_pipeline()->set_in_flight_factor(1);
  spec.mutable_pipeline()->set_order("static");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("only for pipeline.order recorded")));
  spec.mutable_pipeline()->clear_in_flight_factor();
  spec.mutable_pipeline()->set_order("recordet");
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("pipeline.order"), HasSubstr("did you mean recorded?"))));
}

TEST(ResolveJob, RecordedOrder_OfAScheduleFile_IsRefused) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method(std::string(ListedMethod().name));
  spec.mutable_pipeline()->set_schedule_file("step.csv");
  spec.mutable_pipeline()->set_schedule(
      "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,0B0,0B1,0B2,0B3,0B4,0B5,0B6,0B7\n");
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_pipeline()->set_order("recorded");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("its order is what the file is for")));
}

TEST(ResolveJob, OldVersionsOnTheHostWithVerticalSync_AreRefused) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_training()->clear_clip();
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_training()->set_stash("host");
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_pipeline()->set_weights("vertical-sync");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         StartsWith("training.stash: cannot be host")));
}

TEST(ResolveJob, ScheduleFile_IsReadAndVerifiedFirst) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_microbatches(2);
  spec.mutable_pipeline()->set_stages(2);
  spec.mutable_pipeline()->set_schedule_file("step.csv");
  const auto resolve = [&](const std::string& text) {
    spec.mutable_pipeline()->set_method("schedule-file");
    spec.mutable_pipeline()->set_schedule(text);
    return ResolveJob(spec).status();
  };
  EXPECT_THAT(resolve("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"), IsOk());
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(StartsWith("pipeline.schedule_file: "), HasSubstr(what)));
  };
  EXPECT_THAT(resolve("0F0,0X1\n"), refused("line 1, column 5"));
  EXPECT_THAT(resolve(""), refused("no actions"));
  EXPECT_THAT(resolve("0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n"), refused("\n -->  1W1"));
  EXPECT_THAT(resolve("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("training.microbatches: is 2, but pipeline.schedule_file")));
  EXPECT_THAT(resolve("0F0,0F1,0B0,0B1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("pipeline.stages: is 2")));
  spec.mutable_pipeline()->set_method("gpipe");
  EXPECT_THAT(ResolveJob(spec), refused("cannot be together with pipeline.method gpipe"));
}

TEST(ResolveJob, WhatAScheduleFileSaysItself_IsRefusedBesideIt) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_microbatches(2);
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.set_stages(2);
  pipeline.set_method("schedule-file");
  pipeline.set_schedule_file("step.csv");
  pipeline.set_schedule("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  for (const char* weights : {"stash", "double-buffer", "vertical-sync"}) {
    pipeline.set_weights(weights);
    EXPECT_THAT(ResolveJob(spec),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("cannot have the weights \"", weights))));
  }
  pipeline.set_weights("single");
  EXPECT_THAT(ResolveJob(spec), IsOk());
  pipeline.set_stages_per_worker(1);
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         StartsWith("pipeline.stages_per_worker: cannot be")));
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
