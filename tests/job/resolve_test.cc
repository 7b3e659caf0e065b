#include "job/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "job/defaults.h"
#include "job/open_job.h"
#include "job/run/agreement.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"
#include "job/yaml/yaml.h"
#include "schedule/block_draws.h"
#include "schedule/placements.h"
#include "schedule/text.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(ResolveJob, GoodJob_HasTheNumbersOfTheFile) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(GoodJob()));
  EXPECT_EQ(job.model.size(), 15);
  EXPECT_EQ(job.method->name, "1f1b");
  EXPECT_EQ(job.steps, 400);
  EXPECT_EQ(job.batch, 32);
  EXPECT_EQ(job.microbatches, 8);
  EXPECT_EQ(job.microbatch_samples, 4);
  EXPECT_EQ(job.model.targets_per_sample(), 128);
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
  EXPECT_EQ(job.microbatches_of_update(0) * job.microbatch_samples, 32);
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

TEST(ResolveJob, StepDecay_MultipliesTheRateAfterMilestones) {
  v1::JobSpec spec = GoodJob();  // 32 samples a step
  v1::LearningRateSpec& rate = *spec.mutable_training()->mutable_learning_rate();
  rate.set_decay("step");
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("milestones: has none")));
  rate.add_milestones(60);
  rate.add_milestones(90);
  rate.set_factor(0.5);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_DOUBLE_EQ(job.learning_rate.At(60 * 32), 1e-3);
  EXPECT_DOUBLE_EQ(job.learning_rate.At(61 * 32), 5e-4);
  EXPECT_DOUBLE_EQ(job.learning_rate.At(91 * 32), 2.5e-4);
  rate.set_milestones(1, 60);
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 60 after 60")));
  rate.set_milestones(1, 90);
  rate.set_decay("cosine");
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("only for")));
}

TEST(ResolveJob, Wsd_CoolsDownInTheLastTenthUnlessTheFileSaysOtherwise) {
  v1::JobSpec spec = GoodJob();  // 32 samples a step
  spec.mutable_training()->set_steps(400);
  v1::LearningRateSpec& rate = *spec.mutable_training()->mutable_learning_rate();
  rate.set_decay("wsd");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.learning_rate.cooldown_samples, 40 * 32);
  EXPECT_DOUBLE_EQ(job.learning_rate.At(360 * 32), 1e-3);
  EXPECT_LT(job.learning_rate.At(361 * 32), 1e-3);
  rate.set_cooldown_steps(100);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(job, ResolveJob(spec));
  EXPECT_EQ(job.learning_rate.cooldown_samples, 100 * 32);
  rate.set_cooldown_steps(500);
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cooldown_steps: is 500")));
  rate.set_cooldown_steps(100);
  rate.set_decay("linear");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("cooldown_steps: is 100, which is only for")));
}

TEST(ResolveJob, WeightsThatAreValidated_NeedTheirAverage) {
  v1::JobSpec spec = GoodJob();
  EXPECT_EQ(spec.validation().weights(), "current");
  spec.mutable_validation()->set_weights("ema");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("validation.weights: is ema, but")));
  spec.mutable_training()->mutable_ema()->set_decay(0.999);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.average_decay, 0.999);
  EXPECT_TRUE(job.validates_average);
  spec.mutable_training()->mutable_ema()->set_decay(1.0);
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training.ema.decay: is 1")));
}

TEST(ResolveJob, BestCheckpoints_NeedValidations) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_checkpoint()->set_keep_best(3);
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_validation()->set_every_steps(0);
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("checkpoint.keep_best: is 3, but nothing")));
}

TEST(ResolveJob, FormatOfRecords_StandsOnce) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_step_records()->add_formats("csv");
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_step_records()->add_formats("csv");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("step_records.formats: has csv twice")));
}

TEST(ResolveJob, InverseSquareRoot_NeedsAWarmUp) {
  v1::JobSpec spec = GoodJob();
  v1::LearningRateSpec& rate = *spec.mutable_training()->mutable_learning_rate();
  rate.set_decay("inverse_square_root");
  rate.set_warmup_steps(0);
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("warmup_steps: is 0, but the decay")));
  rate.set_warmup_steps(10);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_DOUBLE_EQ(job.learning_rate.At(40 * 32), 0.5e-3);
}

TEST(ResolveJob, NesterovMomentum_NeedsMomentum) {
  v1::JobSpec spec = GoodJob();
  v1::SgdSpec& sgd = *spec.mutable_training()->mutable_optimizer()->mutable_sgd();
  sgd.set_learning_rate(0.1);
  sgd.set_nesterov(true);
  FillDefaults(spec);
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sgd.nesterov: looks ahead")));
  sgd.set_momentum(0.9);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(std::get<SgdConfig>(job.optimizer), (SgdConfig{.momentum = 0.9, .nesterov = true}));
}

TEST(ResolveJob, AsynchronousMethod_UpdatesAfterEachMicrobatch) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_training()->mutable_clip()->set_layer_norm(2.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.microbatches_of_update(0) * job.microbatch_samples, 4);
  EXPECT_EQ(job.microbatches_of_update(0), 1);
  EXPECT_EQ(job.clip.kind, Clip::Kind::kLayerNorm);
}

TEST(ResolveJob, SpecFromTheNetworkWithoutDefaults_IsRefusedNotCrashed) {
  EXPECT_THAT(ResolveJob(v1::JobSpec()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "name: is missing; expected 1 to 64 characters of a-z, 0-9 and -"));
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

TEST(ResolveJob, RoundPipe_GoesRoundTheWorkersThatTheJobSays) {
  v1::JobSpec spec = GoodJob();  // 8 microbatches, tied ends, a global norm
  spec.mutable_pipeline()->set_method("roundpipe");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.WorkersOf(4), 4) << "as many as stages";
  EXPECT_EQ(job.PipelinesOf(4), 1) << "one model in several places";
  EXPECT_EQ(job.UpdatesBetween(0, 5, 4), 5);

  spec.mutable_pipeline()->set_stages(6);
  spec.mutable_pipeline()->set_workers(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(job, ResolveJob(spec));
  EXPECT_EQ(job.WorkersOf(6), 4);
  EXPECT_EQ(job.StagesOn(4), 6);
  const ScheduleOptions options = ScheduleOptionsOf(job, TopologyOf(job, 6), SomeParts(job, 6));
  EXPECT_EQ(options.topology.stages(), 2 * 11) << "slots in the places of two rounds";
  EXPECT_EQ(options.topology.parts(), 6);
  EXPECT_EQ(options.topology.groups.size(), 6u + 1u) << "copied weights by part, and tied ends";
  spec.mutable_pipeline()->set_recompute("all");
  EXPECT_THAT(ResolveJob(spec), IsOk());
}

TEST(ResolveJob, RoundPipeThatCannotBe_IsRefusedUnderItsKey) {
  const auto refusal = [](auto edit) {
    v1::JobSpec spec = GoodJob();
    spec.mutable_pipeline()->set_method("roundpipe");
    spec.mutable_pipeline()->set_stages(3);
    edit(*spec.mutable_pipeline());
    return std::string(ResolveJob(spec).status().message());
  };
  using Pipeline = v1::PipelineSpec;
  EXPECT_THAT(refusal([](Pipeline&) {}), StartsWith("training.microbatches: roundpipe: needs"));
  EXPECT_THAT(refusal([](Pipeline& p) { p.set_workers(6); }),
              StartsWith("pipeline.stages: roundpipe: 3 stages make 5 slots"));
  EXPECT_THAT(refusal([](Pipeline& p) { p.set_workers(0); }), StartsWith("pipeline.workers: is 0"));
  EXPECT_THAT(refusal([](Pipeline& p) {
                p.set_workers(4);
                p.set_stages_per_worker(1);
              }),
              StartsWith("pipeline.workers: cannot be together with"));
  EXPECT_THAT(refusal([](Pipeline& p) { p.set_recompute("0"); }),
              StartsWith("pipeline.recompute: is no choice with roundpipe"));
}

std::vector<LayerRange> Parts(std::initializer_list<int> counts) {
  std::vector<LayerRange> parts;
  for (const int count : counts) {
    parts.push_back({parts.empty() ? 0 : parts.back().end(), count});
  }
  return parts;
}

v1::JobSpec LocalSgdJob() {
  v1::JobSpec spec = GoodJob();  // 8 microbatches
  spec.mutable_pipeline()->set_method("local-sgd");
  spec.mutable_training()->clear_clip();
  return spec;
}

TEST(ResolveJob, LocalSgd_TakesReplicasFromWhatTheJobSays) {
  v1::JobSpec spec = LocalSgdJob();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.PipelinesOf(4), 4) << "as many as workers";
  EXPECT_EQ(job.UpdatesBetween(0, 1, 4), 2);
  ScheduleOptions options = ScheduleOptionsOf(job, TopologyOf(job, 4), Parts({4, 4, 4, 3}));
  EXPECT_EQ(options.topology.pipelines, 4);
  EXPECT_EQ(options.topology.groups.size(), 4u + 4u) << "replicas by stage, and tied ends";
  spec.mutable_pipeline()->set_local_steps(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(job, ResolveJob(spec));
  EXPECT_EQ(job.PipelinesOf(4), 2) << "as many as make 8 microbatches of 4 local steps";
  spec.mutable_pipeline()->add_replicas(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(job, ResolveJob(spec));
  EXPECT_EQ(job.UpdatesBetween(0, 1, 3), 4);
  EXPECT_THAT(CheckStages(job, 3), IsOk());
}

// GoodJob has 8 microbatches in a step.
v1::JobSpec ReplicatedJob(const std::string& method, const std::vector<int32_t>& replicas) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method(method);
  spec.mutable_pipeline()->clear_stages();
  if (!(*FindMethod(absl::string_view(method)))->synchronous) {
    spec.mutable_training()->clear_clip();
    spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  }
  for (const int32_t count : replicas) spec.mutable_pipeline()->add_replicas(count);
  return spec;
}

TEST(ResolveJob, ReplicasOfStages_AListSaysHowManyStagesThereAre) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(ReplicatedJob("1f1b", {4, 1})));
  EXPECT_EQ(job.StagesOn(99), 2);
  EXPECT_EQ(job.WorkersOf(2), 5);
  const Topology topology = TopologyOf(job, 2);
  EXPECT_EQ(topology.stages(), 5);
  EXPECT_EQ(topology.depth(), 2);
  ASSERT_EQ(topology.groups.size(), 1u);
  EXPECT_EQ(topology.groups[0].operation, ReduceGroup::Operation::kSum);
  EXPECT_EQ(ScheduleOptionsOf(job, topology, Parts({10, 5})).topology.groups.size(), 2u)
      << "tied ends, too";
  EXPECT_EQ(job.UpdatesBetween(0, 3, 2, 0), 3) << "once in a step";
}

TEST(ResolveJob, ReplicasOfStages_OneNumberIsThatOfEachStage) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(ReplicatedJob("pipedream", {2})));
  EXPECT_EQ(job.StagesOn(6), 3);
  EXPECT_EQ(job.WorkersOf(3), 6);
  EXPECT_EQ(TopologyOf(job, 3).groups.size(), 3u);
  EXPECT_EQ(TopologyOf(job, 3).groups[2].operation, ReduceGroup::Operation::kMean);
  EXPECT_EQ(job.UpdatesBetween(0, 3, 3, 1), 12) << "one for two of 24 microbatches";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob uneven,
                                ResolveJob(ReplicatedJob("pipedream", {4, 1})));
  EXPECT_EQ(uneven.UpdatesBetween(0, 1, 2, 0), 2);
  EXPECT_EQ(uneven.UpdatesBetween(0, 1, 2, 1), 8);
}

// GoodJob has 15 layers.
v1::JobSpec JobWithStageLayers(std::initializer_list<int32_t> layers) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->clear_stages();
  for (const int32_t count : layers) spec.mutable_pipeline()->add_stage_layers(count);
  FillDefaults(spec);
  return spec;
}

TEST(ResolveJob, StageLayers_SayHowManyStagesThereAre) {
  const v1::JobSpec spec = JobWithStageLayers({4, 9, 2});
  EXPECT_EQ(spec.pipeline().stages(), 3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.stage_layers, (std::vector<int32_t>{4, 9, 2}));
  EXPECT_THAT(CheckStages(job, 3), IsOk());
  EXPECT_THAT(CheckStages(job, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline.stage_layers: has 3 numbers, but the pipeline has 2 stages; one "
                       "number for each stage, or pipeline.stages: 3, would do"));
}

constexpr char kBranches[] = R"(
name: branches
model:
  layers:
    - input: {x: {f32: [4]}, wanted: {f32: [2]}}
    - linear: {of: x, outputs: 3, name: stem}
    - linear: {of: stem, outputs: 2, name: left}
    - linear: {of: stem, outputs: 2, name: right}
    - add: {of: [left, right], name: sum}
    - mse: {of: [sum, wanted]}
data: {synthetic: {}}
training: {steps: 1, batch: 4, microbatches: 2, optimizer: {sgd: {learning_rate: 0.1}}}
)";

TEST(ResolveJob, LayerOrder_IsThatOfTheModelAndOfTheAgreement) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::JobSpec spec, ParseJobYaml(kBranches, "job.yaml"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob described, ResolveJob(spec));
  ASSERT_EQ(described.model.size(), 3);
  const auto with = [&](std::vector<std::string> order) {
    v1::JobSpec ordered = spec;
    ordered.mutable_pipeline()->mutable_layer_order()->Assign(order.begin(), order.end());
    return ResolveJob(ordered);
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob same, with({"stem", "left", "right"}));
  EXPECT_EQ(same.model, described.model);
  EXPECT_EQ(AgreementOf(same), AgreementOf(described));
  // The last layer has the sum and the loss, and so reads both branches.
  EXPECT_THAT(with({"stem", "right", "left"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline.layer_order: has right before left, whose output it reads; put it "
                       "behind"));
  EXPECT_THAT(with({"stem", "left", "sum"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline.layer_order: names \"sum\", which is no layer of the model"));
  v1::JobSpec longer = spec;
  v1::ModelGraph& graph = *longer.mutable_model()->mutable_graph();
  ASSERT_EQ(graph.layers(2).nodes_size(), 3);
  // The sum and the loss as a layer of their own.
  v1::ModelLayer& end = *graph.add_layers();
  end.set_name("end");
  *end.add_nodes() = graph.layers(2).nodes(1);
  *end.add_nodes() = graph.layers(2).nodes(2);
  graph.mutable_layers(2)->mutable_nodes()->DeleteSubrange(1, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob four, ResolveJob(longer));
  for (const char* name : {"stem", "right", "left", "end"}) {
    longer.mutable_pipeline()->add_layer_order(name);
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob turned, ResolveJob(longer));
  EXPECT_EQ(turned.model.layers[1].name, "right");
  EXPECT_EQ(turned.model.layers[1].number, 2);
  EXPECT_NE(AgreementOf(turned), AgreementOf(four));
}

// Neither the pixels nor the small mask have parameters, or read what has some before it.
constexpr char kWithoutGradient[] = R"(
name: pixels
model:
  layers:
    - input: {image: {u8: [8, 8, 1]}, mask: {f32: [8, 8, 1]}, label: {i32: []}}
    - block: {name: pixels, layers: [{image: {of: image}}]}
    - conv2d: {channels: 8, kernel: 3, padding: 1, name: edges}
    - block: {name: small, layers: [{max_pool: {of: mask, kernel: 2, stride: 2}}, flatten]}
    - block: {name: seen, layers: [{flatten: {of: edges}}, {concat: {of: [flatten, small]}}]}
    - linear: {outputs: 4, name: quarter}
    - cross_entropy: {targets: label}
data: {synthetic: {}}
training: {steps: 1, batch: 8, microbatches: 4, optimizer: {sgd: {learning_rate: 0.1}}}
)";

TEST(CheckStages, CutOverWhichNoGradientFlows_IsNone) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::JobSpec spec, ParseJobYaml(kWithoutGradient, "job.yaml"));
  for (const char* method : {"1f1b", "gpipe", "pipedream"}) {
    spec.mutable_pipeline()->set_method(method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
    ASSERT_EQ(job.model.size(), 5);
    EXPECT_THAT(PlacesToCut(job), ElementsAre(true, false, true, true, true));
    for (int stages = 1; stages <= 4; ++stages) {
      EXPECT_THAT(CheckStages(job, stages), IsOk()) << method << ", " << stages;
    }
    EXPECT_THAT(CheckStages(job, 5),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("pipeline.stages: is 5, but layers pixels to edges have "
                                          "to be on one stage"),
                               HasSubstr("4 stages would do"))));
  }
  // Some cut stands for all that there may be.
  spec.mutable_pipeline()->set_method("1f1b");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_THAT(SomeParts(job, 4),
              ElementsAre(LayerRange{0, 2}, LayerRange{2, 1}, LayerRange{3, 1}, LayerRange{4, 1}));
  for (const int32_t count : {1, 4}) spec.mutable_pipeline()->add_stage_layers(count);
  spec.mutable_pipeline()->set_stages(2);
  EXPECT_THAT(
      ResolveJob(spec),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("pipeline.stage_layers: cuts the model before layer 1, edges, but "
                                "no layer in front of it has parameters"),
                     HasSubstr("give the first stage at least 2 layers, pixels to edges"))));
  spec.mutable_pipeline()->set_stage_layers(0, 2);
  spec.mutable_pipeline()->set_stage_layers(1, 3);
  EXPECT_THAT(ResolveJob(spec), IsOk());
  // Another order has other layers in front.
  for (const char* layer : {"small", "pixels", "edges", "seen", "quarter"}) {
    spec.mutable_pipeline()->add_layer_order(layer);
  }
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("before layer 2, edges"),
                             HasSubstr("give the first stage at least 3 layers, small to edges"))));
}

TEST(ResolveJob, WorkerNames_AreOneForEachWorkerAndEachOnce) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_stages(2);
  for (const char* const name : {"slow", "fast"}) spec.mutable_pipeline()->add_worker_names(name);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.worker_names, (std::vector<std::string>{"slow", "fast"}));
  const auto refusal = [](const v1::JobSpec& wrong) {
    return std::string(ResolveJob(wrong).status().message());
  };
  v1::JobSpec fewer = spec;
  fewer.mutable_pipeline()->mutable_worker_names()->RemoveLast();
  EXPECT_EQ(
      refusal(fewer),
      "pipeline.worker_names: has 1 names, but the pipeline has 2 workers; one name for each, "
      "or none, would do");
  spec.mutable_pipeline()->set_worker_names(1, "slow");
  EXPECT_EQ(refusal(spec),
            "pipeline.worker_names: names slow twice; a worker has one place in the pipeline");
  spec.mutable_pipeline()->set_worker_names(1, "");
  EXPECT_EQ(refusal(spec), "pipeline.worker_names: has an empty name");
}

TEST(ResolveJob, StageLayersThatAreNotThoseOfTheModel_AreRefusedWithWhatWouldDo) {
  const auto refusal = [](const v1::JobSpec& spec) {
    return std::string(ResolveJob(spec).status().message());
  };
  EXPECT_EQ(refusal(JobWithStageLayers({4, 9, 3})),
            "pipeline.stage_layers: is 4,9,3, together 16 layers, but the model has 15 (embedding, "
            "attention and MLP of each block, final norm, head); 2 as the last number would do");
  EXPECT_THAT(refusal(JobWithStageLayers({15, 1})),
              HasSubstr("numbers that add up to 15 would do"));
  EXPECT_EQ(refusal(JobWithStageLayers({15, 0})),
            "pipeline.stage_layers: is 0; expected a whole number from 1 to 1000000");
  v1::JobSpec replicas = JobWithStageLayers({4, 9, 2});
  replicas.mutable_pipeline()->add_replicas(2);
  replicas.mutable_pipeline()->add_replicas(1);
  EXPECT_EQ(refusal(replicas),
            "pipeline.replicas: has 2 numbers, but the pipeline has 3 stages; one number for each "
            "stage, or one for all, would do");
}

// The stages are those of the model, the workers those that hold them in all pipelines.
TEST(ResolveJob, ReplicasWithSeveralStagesOnAWorker_AreWholePipelines) {
  for (const char* method : {"interleaved-1f1b", "looped-bfs", "zb-v", "dualpipe-v"}) {
    for (const std::vector<int32_t>& replicas :
         {std::vector<int32_t>{2}, std::vector<int32_t>(4, 2)}) {
      SCOPED_TRACE(method);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job,
                                    ResolveJob(ReplicatedJob(method, replicas)));
      EXPECT_EQ(job.WorkersOf(4), 4);
      EXPECT_EQ(job.StagesOn(4), 4);
      const Topology topology = TopologyOf(job, 4);
      EXPECT_EQ(topology.workers, 4);
      EXPECT_EQ(topology.stages(), 8);
      EXPECT_EQ(topology.parts(), 4);
    }
  }
}

TEST(ResolveJob, ScheduleFileWithReplicas_SaysWhichStagesHaveThem) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->clear_stages();
  spec.mutable_pipeline()->set_method(std::string(ListedMethod().name));
  spec.mutable_pipeline()->set_schedule_file("step.txt");
  spec.mutable_training()->set_batch(4);
  spec.mutable_training()->set_microbatches(2);
  spec.mutable_pipeline()->set_schedule(
      "# penstock schedule 1 range=0+2 stages=0,1,2 replicas=2,1 group=gradient:sum:0,1\n"
      "0F0,0B0\n1F1,1B1\n2F0,2B0,2F1,2B1\n");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.StagesOn(3), 2);
  EXPECT_EQ(job.WorkersOf(2), 3);
  EXPECT_EQ(job.ReplicasOfStages(2), (std::vector<int32_t>{2, 1}));
  spec.mutable_pipeline()->add_replicas(2);
  EXPECT_THAT(ResolveJob(spec).status().message(),
              HasSubstr("is not for schedule-file, which says itself which stages have replicas"));
}

TEST(ResolveJob, SearchedOrderOfReplicas_MayNameThemToo) {
  v1::JobSpec spec = ReplicatedJob("1f1b", {});
  spec.mutable_pipeline()->set_method("searched");
  spec.mutable_training()->set_batch(4);
  spec.mutable_training()->set_microbatches(2);
  const auto with = [&spec](const std::vector<int32_t>& replicas) {
    spec.mutable_pipeline()->mutable_replicas()->Assign(replicas.begin(), replicas.end());
    return spec;
  };
  spec.mutable_pipeline()->set_schedule(
      "# penstock schedule 1 range=0+2 stages=0,1,2 replicas=2,1 group=gradient:sum:0,1\n"
      "0F0,0B0\n1F1,1B1\n2F0,2B0,2F1,2B1\n");
  for (const std::vector<int32_t>& replicas : {std::vector<int32_t>{}, {2, 1}}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(with(replicas)));
    EXPECT_EQ(job.stage_replicas, (std::vector<int32_t>{2, 1}));
    EXPECT_EQ(TopologyOf(job, 2).groups.size(), 1u);
  }
  EXPECT_EQ(ResolveJob(with({2})).status().message(),
            "pipeline.replicas: is 2,2, but the order of a step that the job has is for 2,1 "
            "replicas; use these numbers, or leave out the order (pipeline.schedule_file or "
            "pipeline.schedule), so that another one is searched");
  spec.mutable_pipeline()->set_schedule(
      "# penstock schedule 1 range=0+2 stages=0,1\n0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob plain, ResolveJob(with({1})));
  EXPECT_THAT(plain.stage_replicas, IsEmpty());
  EXPECT_THAT(ResolveJob(with({1, 2})).status().message(), HasSubstr("is for 1,1 replicas"));
}

TEST(ResolveJob, SearchedOrderOfSeveralStagesOnAWorker_MaySayHowManyThereAre) {
  v1::JobSpec spec = ReplicatedJob("1f1b", {});
  spec.mutable_pipeline()->set_method("searched");
  spec.mutable_training()->set_batch(4);
  spec.mutable_training()->set_microbatches(2);
  spec.mutable_pipeline()->set_schedule(
      "# penstock schedule 1 range=0+2 stages=0,0\n0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1\n");
  for (const int32_t said : {0, 2}) {
    if (said > 0) spec.mutable_pipeline()->set_stages_per_worker(said);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
    EXPECT_EQ(job.stages_per_worker, 2);
    EXPECT_EQ(job.WorkersOf(2), 1);
  }
  spec.mutable_pipeline()->set_stages_per_worker(1);
  EXPECT_EQ(
      ResolveJob(spec).status().message(),
      "pipeline.stages_per_worker: is 1, but the order of a step that the job has is for 2 on "
      "each worker; use this number, or leave out the order (pipeline.schedule_file or "
      "pipeline.schedule), so that another one is searched");
}

// Until its order is found, in the words of the method that it will have.
TEST(ResolveSubmitted, OpenOrder_TakesReplicasAndSeveralStagesOnAWorker) {
  const auto resolved = [](const std::function<void(v1::PipelineSpec&)>& change) {
    v1::JobSpec spec = ReplicatedJob("1f1b", {});
    spec.mutable_pipeline()->set_method("searched");
    change(*spec.mutable_pipeline());
    return ResolveSubmitted(spec);
  };
  using Pipeline = v1::PipelineSpec;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, resolved([](Pipeline& pipeline) {
                                  pipeline.add_replicas(2);
                                  pipeline.add_replicas(1);
                                }));
  EXPECT_EQ(job.WorkersOf(2), 3);
  EXPECT_THAT(resolved([](Pipeline& pipeline) { pipeline.add_replicas(2); }), IsOk());
  EXPECT_EQ(resolved([](Pipeline& pipeline) { pipeline.add_replicas(3); }).status().message(),
            "training.microbatches: is 8, but with pipeline.replicas 3 a step needs a multiple of "
            "3, the least common multiple, so that all replicas do as much; 6 or 9 would do");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob looped, resolved([](Pipeline& pipeline) {
                                  pipeline.set_stages_per_worker(2);
                                  pipeline.add_replicas(2);
                                }));
  EXPECT_EQ(looped.WorkersOf(4), 4);
  EXPECT_THAT(resolved([](Pipeline& pipeline) { pipeline.set_stages_per_worker(1); }), IsOk());
  EXPECT_EQ(resolved([](Pipeline& pipeline) { pipeline.set_order("recorded"); }).status().message(),
            "pipeline.order: cannot be recorded with searched: its order is what the search is "
            "for; use static");
  v1::JobSpec large = ReplicatedJob("1f1b", {});
  large.mutable_pipeline()->set_method("searched");
  large.mutable_pipeline()->set_stages(2);
  large.mutable_training()->set_microbatches(5556);
  large.mutable_training()->set_batch(5556);
  EXPECT_EQ(
      ResolveSubmitted(large).status().message(),
      "training.microbatches: is 5556, but an order on 2 stages is searched for at most 5555; "
      "use fewer, or name a method that has an order of its own");
}

TEST(ResolveJob, ReplicasOfStagesThatCannotBe_AreRefusedWithTheNumbersThatWouldDo) {
  const auto refusal = [](const v1::JobSpec& spec) {
    return std::string(ResolveJob(spec).status().message());
  };
  EXPECT_EQ(
      refusal(ReplicatedJob("1f1b", {3, 1})),
      "training.microbatches: is 8, but with pipeline.replicas 3,1 a step needs a multiple of "
      "3, the least common multiple, so that all replicas do as much; 6 or 9 would do");
  EXPECT_EQ(refusal(ReplicatedJob("rpd", {2, 1})),
            "pipeline.replicas: is not for rpd, which updates one sampled stage after every single "
            "microbatch, so replicas would have nothing to add up; use pipedream");
  EXPECT_THAT(refusal(ReplicatedJob("zb-v", {2, 1})),
              StartsWith("pipeline.replicas: expected as many replicas of each stage, got 2,1: the "
                         "order of zb-v says when a worker turns from one of its stages"));
  EXPECT_THAT(refusal(ReplicatedJob("1f1b", {2, 65})), HasSubstr("pipeline.replicas: is 65"));
  v1::JobSpec other_stages = ReplicatedJob("1f1b", {2, 1});
  other_stages.mutable_pipeline()->set_stages(3);
  EXPECT_EQ(refusal(other_stages),
            "pipeline.replicas: has 2 numbers, but the pipeline has 3 stages; one number for each "
            "stage, or one for all, would do");
  v1::JobSpec tied = ReplicatedJob("pipedream", {2, 1});
  tied.mutable_model()->mutable_gpt()->set_tied_head(true);
  EXPECT_THAT(refusal(tied), HasSubstr("model.gpt.tied_head: must be false for pipedream"));
}

TEST(ResolveJob, LocalSgdThatCannotBe_IsRefusedWithTheNumbersThatWouldDo) {
  const auto refusal = [](auto edit) {
    v1::JobSpec spec = LocalSgdJob();
    edit(spec, *spec.mutable_pipeline());
    return std::string(ResolveJob(spec).status().message());
  };
  using Spec = v1::JobSpec;
  using Pipeline = v1::PipelineSpec;
  EXPECT_THAT(refusal([](Spec&, Pipeline& p) { p.add_replicas(0); }),
              HasSubstr("pipeline.replicas: is 0; expected a whole number from 1"));
  EXPECT_THAT(refusal([](Spec&, Pipeline& p) { p.set_local_steps(-1); }),
              HasSubstr("pipeline.local_steps: is -1; expected a whole number from 1"));
  EXPECT_EQ(refusal([](Spec&, Pipeline& p) { p.add_replicas(3); }),
            "pipeline.replicas: is 3, which does not divide training.microbatches (8); 2 or 4 "
            "would do");
  EXPECT_EQ(refusal([](Spec&, Pipeline& p) { p.set_local_steps(9); }),
            "pipeline.local_steps: is 9, which does not divide training.microbatches (8); 8 would "
            "do");
  EXPECT_EQ(refusal([](Spec&, Pipeline& p) {
              p.add_replicas(4);
              p.set_local_steps(5);
            }),
            "pipeline.local_steps: is 5, which takes 20 microbatches in a step with 4 replicas, "
            "but training.microbatches is 8; 2 would do");
  EXPECT_THAT(refusal([](Spec&, Pipeline& p) { p.set_stages(3); }),
              HasSubstr("a multiple of 3 microbatches in a step, as many as there are replicas; "
                        "got 8; 6 or 9 would do"));
  EXPECT_THAT(refusal([](Spec&, Pipeline& p) {
                p.set_method("1f1b");
                p.set_local_steps(2);
              }),
              StartsWith("pipeline.local_steps: is not for 1f1b"));
  EXPECT_EQ(refusal([](Spec&, Pipeline& p) {
              p.add_replicas(2);
              p.add_replicas(1);
            }),
            "pipeline.replicas: has 2 numbers, but local-sgd has replicas of the whole model; one "
            "number would do");
  EXPECT_THAT(refusal([](Spec&, Pipeline& p) { p.set_stages_per_worker(2); }),
              StartsWith("pipeline.stages_per_worker: local-sgd: expected one stage of each"));
  EXPECT_THAT(refusal([](Spec&, Pipeline& p) { p.set_weights("stash"); }),
              HasSubstr("the newest weights of its replica anyway"));
}

TEST(ResolveJob, ScheduleFileOfSeveralPipelines_IsRefused) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method(std::string(ListedMethod().name));
  spec.mutable_pipeline()->set_schedule_file("step.csv");
  spec.mutable_pipeline()->set_schedule(
      "# penstock schedule 1 stages=0,0 pipelines=2\n0F0,0B0,1F1,1B1\n");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(StartsWith("pipeline.schedule_file: has 2"),
                                               HasSubstr("use pipeline.method local-sgd"))));
}

TEST(ResolveJob, WeightsThatAMethodCannotHave_AreRefused) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_weights("stashed");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(StartsWith("pipeline.weights: \"stashed\""),
                                               HasSubstr("did you mean stash?"))));
  spec.mutable_pipeline()->set_weights("stash");
  EXPECT_THAT(ResolveJob(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("pipeline.weights: 1f1b cannot have the weights \"stash\""),
                             HasSubstr("leave the key out, or use one of pipedream, "))));
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
  spec.mutable_pipeline()->set_stages(1);
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

TEST(ResolveJob, Recompute_ChoosesStagesByTheirPlace) {
  v1::JobSpec spec = GoodJob();
  const auto stages = [&](const std::string& recompute) {
    spec.mutable_pipeline()->set_recompute(recompute);
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    EXPECT_THAT(job, IsOk());
    std::vector<int32_t> chosen;
    for (const StageId stage :
         ScheduleOptionsOf(*job, TopologyOf(*job, 4)).topology.Recomputing()) {
      chosen.push_back(stage.value);
    }
    return chosen;
  };
  EXPECT_EQ(stages(""), std::vector<int32_t>());
  EXPECT_EQ(stages("none"), std::vector<int32_t>());
  EXPECT_EQ(stages("all"), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(stages("3,1"), (std::vector<int32_t>{1, 3}));
  // In every replica.
  spec.mutable_pipeline()->set_method("local-sgd");
  spec.mutable_pipeline()->add_replicas(2);
  spec.mutable_training()->clear_clip();
  EXPECT_EQ(stages("0,2"), (std::vector<int32_t>{0, 2, 4, 6}));
}

TEST(ResolveJob, RecomputeOfAStageThatThereIsNot_IsRefusedWithThoseThereAre) {
  v1::JobSpec spec = GoodJob();
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(StartsWith("pipeline.recompute: "), HasSubstr(what)));
  };
  spec.mutable_pipeline()->set_recompute("1,4");
  EXPECT_THAT(ResolveJob(spec), refused("names stage 4, but the pipeline has 4 stages; 0 to 3"));
  spec.mutable_pipeline()->set_recompute("most");
  EXPECT_THAT(ResolveJob(spec), refused("is \"most\"; expected none, all, or places"));
  // As many stages as there will be: those that are named must be possible.
  spec.mutable_pipeline()->clear_stages();
  spec.mutable_pipeline()->set_recompute("14");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_THAT(CheckStages(job, 15), IsOk());
  EXPECT_THAT(CheckStages(job, 14), refused("names stage 14, but the pipeline has 14 stages"));
  spec.mutable_pipeline()->set_recompute("15");
  EXPECT_THAT(ResolveJob(spec), refused("names stage 15, but the model has only 15 layers"));
}

TEST(ResolveJob, Offload_IsOfStagesThatKeepAStash) {
  v1::JobSpec spec = GoodJob();
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(StartsWith("pipeline.offload: "), HasSubstr(what)));
  };
  const auto offload = [&](const std::string& text) {
    pipeline.set_offload(text);
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    EXPECT_THAT(job, IsOk());
    return ScheduleOptionsOf(*job, TopologyOf(*job, 4)).offload;
  };
  EXPECT_EQ(offload(""), OffloadChoice());
  EXPECT_EQ(offload("none"), OffloadChoice());
  EXPECT_EQ(offload("all:2"), OffloadChoice{.all = 2});
  EXPECT_EQ(offload("3,1:5"), (OffloadChoice{.stages = {{1, 5}, {3, 3}}}));
  pipeline.set_offload("1,4");
  EXPECT_THAT(ResolveJob(spec), refused("names stage 4, but the pipeline has 4 stages; 0 to 3"));
  pipeline.set_offload("1:1");
  EXPECT_THAT(ResolveJob(spec), refused("is \"1:1\"; expected none, all, or places"));
  pipeline.set_offload("15");
  EXPECT_THAT(ResolveJob(spec), refused("names stage 15, but the model has only 15 layers"));
  pipeline.set_offload("0,1");
  pipeline.set_recompute("1,2");
  EXPECT_THAT(ResolveJob(spec), refused("names stage 1, which recomputes"));
  pipeline.set_recompute("2");
  EXPECT_THAT(ResolveJob(spec), IsOk());
  pipeline.clear_recompute();
  pipeline.set_order("recorded");
  EXPECT_THAT(ResolveJob(spec), refused("cannot be together with pipeline.order recorded"));
  pipeline.set_order("static");
  pipeline.set_method("roundpipe");
  EXPECT_THAT(ResolveJob(spec), refused("is not for roundpipe"));
}

TEST(ResolveJob, StreamWeights_IsForRoundpipeWithAStageForEachWorker) {
  v1::JobSpec spec = GoodJob();
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  pipeline.set_stream_weights("on");
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.stream_weights: is not for 1f1b"));
  pipeline.set_method("roundpipe");
  pipeline.set_workers(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob streamed, ResolveJob(spec));
  EXPECT_TRUE(TopologyOf(streamed, 4).streams_weights);
  EXPECT_TRUE(TopologyOf(streamed, 4).groups.empty());
  pipeline.set_stream_weights("file");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob in_file, ResolveJob(spec));
  EXPECT_TRUE(TopologyOf(in_file, 4).weights_in_file);
  spec.mutable_training()->mutable_ema()->set_decay(0.9);
  EXPECT_THAT(ResolveJob(spec), refused("cannot be file together with training.ema"));
  spec.mutable_training()->clear_ema();
  pipeline.set_stream_weights("off");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob copied, ResolveJob(spec));
  EXPECT_FALSE(TopologyOf(copied, 4).streams_weights);
  pipeline.set_stream_weights("on");
  pipeline.set_stages(3);
  EXPECT_THAT(ResolveJob(spec),
              refused("pipeline.stages: roundpipe: is 3, but streamed weights live with"));
  pipeline.set_stages(4);
  spec.mutable_training()->set_cuda_graphs("on");
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.stream_weights: cannot be together with"));
}

TEST(ResolveJob, StagesPerForward_AreForRoundpipeWithASlotForEachWorker) {
  v1::JobSpec spec = GoodJob();
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  pipeline.set_stages_per_forward(3);
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.stages_per_forward: is not for 1f1b"));
  pipeline.set_method("roundpipe");
  pipeline.set_workers(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(TopologyOf(job, 4).slots(), 5);
  EXPECT_EQ(TopologyOf(job, 4).depth(), 7);
  pipeline.set_stages(3);
  EXPECT_THAT(ResolveJob(spec), IsOk());
  pipeline.set_stages(2);
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.stages: roundpipe: 2 stages make 3 slots"));
}

TEST(ResolveJob, Compress_IsRefusedWhereMessagesOfAStageHaveNoOneOrder) {
  v1::JobSpec spec = GoodJob();
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  const auto compression = [&] { return ResolveJob(spec).value().compression; };
  using Kind = MessageCompression::Kind;
  EXPECT_FALSE(compression().any());
  const std::string agreed = AgreementOf(ResolveJob(spec).value());
  pipeline.set_compress("int8");
  EXPECT_EQ(compression(), MessageCompression{Kind::kInt8});
  EXPECT_EQ(AgreementOf(ResolveJob(spec).value()), agreed + "compress int8\n");
  pipeline.set_compress_keep(0.25);
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.compress_keep"));
  pipeline.set_compress("topk");
  EXPECT_EQ(compression(), (MessageCompression{Kind::kTopK, 0.25}));
  EXPECT_EQ(AgreementOf(ResolveJob(spec).value()), agreed + "compress topk 0.25\n");
  pipeline.clear_compress_keep();
  EXPECT_EQ(compression(), (MessageCompression{Kind::kTopK, 0.1}));
  for (const double keep : {0.0, -0.1, 0.51, std::nan("")}) {
    pipeline.set_compress_keep(keep);
    EXPECT_THAT(ResolveJob(spec), refused("pipeline.compress_keep")) << keep;
  }
  pipeline.clear_compress_keep();
  pipeline.set_compress("zip");
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.compress"));
  pipeline.set_compress("int8");
  for (const char* method : {"roundpipe", "local-sgd"}) {
    pipeline.set_method(method);
    EXPECT_THAT(ResolveJob(spec), refused(absl::StrCat("pipeline.compress: is not for ", method)));
  }
  pipeline.set_method("1f1b");
  pipeline.add_replicas(2);
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.compress: cannot be together with replicas"));
}

TEST(ResolveJob, CompressBesideAScheduleFile_NeedsMicrobatchesInOrder) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_microbatches(2);
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.set_stages(2);
  pipeline.set_method("schedule-file");
  pipeline.set_schedule_file("step.csv");
  pipeline.set_compress("int8");
  pipeline.set_schedule("0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0,1B1\n");
  EXPECT_THAT(ResolveJob(spec), IsOk());
  pipeline.set_schedule("0F1,0F0,,,0B0,0B1\n,1F1,1F0,1B0,1B1\n");
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("pipeline.compress: is not for this order")));
  pipeline.set_compress("off");
  EXPECT_THAT(ResolveJob(spec), IsOk());
}

TEST(ResolveJob, RecomputeBesideAScheduleFile_MayAddStagesButNotLeaveThemOut) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_microbatches(2);
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.set_stages(2);
  pipeline.set_method("schedule-file");
  pipeline.set_schedule_file("step.csv");
  pipeline.set_schedule("0F0,0F1,0B0,0B1\n1F0,1F1,1R0,1B0,1R1,1B1\n");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob listed, ResolveJob(spec));
  EXPECT_EQ(listed.recompute, (RecomputeChoice{.places = {1}}));
  pipeline.set_recompute("all");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob all, ResolveJob(spec));
  EXPECT_EQ(all.recompute, RecomputeChoice{.all = true});
  for (const char* less : {"none", "0"}) {
    pipeline.set_recompute(less);
    EXPECT_THAT(ResolveJob(spec),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith("pipeline.recompute: leaves out stage 1, which recomputes")));
  }
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

TEST(ResolveJob, ScheduleFileThereAndBack_SaysWhetherWeightsAreStreamed) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_microbatches(4);
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.set_method("schedule-file");
  pipeline.set_schedule_file("step.txt");
  pipeline.set_stages(3);
  const Topology round_trip = RoundTripPipelines(3, 2, 4);
  const auto with = [&](const Topology& topology) {
    const ScheduleOptions options{.topology = topology, .microbatches_per_step = 4};
    pipeline.set_schedule(
        PrintSchedule(BuildSchedule(**FindMethod("roundpipe"), options, {0, 4}).value()));
    return ResolveJob(spec);
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob copied, with(round_trip));
  EXPECT_TRUE(copied.goes_there_and_back());
  EXPECT_FALSE(copied.streams_weights);
  EXPECT_EQ(TopologyOf(copied, 3).groups, round_trip.groups);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob in_file,
                                with(StreamWeights(round_trip, /*in_file=*/true).value()));
  EXPECT_TRUE(in_file.streams_weights && in_file.weights_in_file);
  const auto refused = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(text));
  };
  spec.mutable_training()->mutable_ema()->set_decay(0.9);
  EXPECT_THAT(ResolveJob(spec),
              refused("pipeline.schedule_file: has stream=file, which cannot be together with"));
  spec.mutable_training()->clear_ema();
  pipeline.set_workers(2);
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.workers: cannot be together with"));
  pipeline.clear_workers();
  pipeline.set_stages_per_forward(2);
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.stages_per_forward: cannot be together with"));
  pipeline.clear_stages_per_forward();
  spec.mutable_training()->set_microbatches(8);
  const ScheduleOptions options{.topology = round_trip, .microbatches_per_step = 4};
  pipeline.set_schedule(
      PrintSchedule(BuildSchedule(**FindMethod("roundpipe"), options, {0, 8}).value()));
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.schedule_file: lists 8 microbatches in rounds of "
                                        "a step of 4; a file with one step"));
  spec.mutable_training()->set_microbatches(4);
  EXPECT_THAT(with(round_trip), IsOk());
  pipeline.set_stream_weights("on");
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.stream_weights: cannot be together with "
                                        "pipeline.schedule_file"));
  pipeline.set_stream_weights("off");
  pipeline.set_recompute("0");
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.recompute: is no choice"));
  pipeline.clear_recompute();
  pipeline.set_compress("int8");
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.compress: is not for"));
  pipeline.set_compress("off");
  pipeline.set_method("searched");
  EXPECT_THAT(ResolveJob(spec), refused("pipeline.schedule_file: has pipelines that go there and"));
}

TEST(ScheduleOptionsOf, TiedHeadOnAnotherStage_MakesAGroup) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(GoodJob()));
  EXPECT_TRUE(ScheduleOptionsOf(job, StraightPipeline(1), Parts({15})).topology.groups.empty());
  const ScheduleOptions options = ScheduleOptionsOf(job, StraightPipeline(4), Parts({4, 4, 4, 3}));
  ASSERT_EQ(options.topology.groups.size(), 1u);
  EXPECT_EQ(options.topology.groups[0], (ReduceGroup{.stages = {StageId(0), StageId(3)},
                                                     .quantity = ReduceGroup::Quantity::kGradient,
                                                     .operation = ReduceGroup::Operation::kSum}));
  EXPECT_TRUE(options.global_norm);
  EXPECT_EQ(options.microbatches_per_step, 8);
}

v1::JobSpec ContinuousJob(const std::string& method) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method(method);
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_training()->mutable_clip()->set_layer_norm(1.0);
  return spec;
}

void ExpectRefused(const v1::JobSpec& spec, const std::string& key, const std::string& reason) {
  EXPECT_THAT(ResolveJob(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(StartsWith(key), HasSubstr(reason))));
}

TEST(Presets, OfTheNesterovPipelineAndPipeMare_HaveThePapersRules) {
  v1::JobSpec spec = ContinuousJob("nesterov");
  spec.mutable_training()->clear_optimizer();
  FillDefaults(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob nesterov, ResolveJob(spec));
  EXPECT_EQ(std::get<NAdamWConfig>(nesterov.optimizer), NAdamWConfig());
  EXPECT_EQ(nesterov.learning_rate.peak, 3e-4);
  EXPECT_EQ(nesterov.weights_read().name, "stash");
  EXPECT_FALSE(nesterov.staleness.any());

  spec = ContinuousJob("nesterov-no-stash");
  spec.mutable_training()->clear_staleness();
  FillDefaults(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob no_stash, ResolveJob(spec));
  EXPECT_EQ(no_stash.staleness.rescheduled_steps, 100);  // 5 times the warm-up
  EXPECT_EQ(no_stash.staleness.stage_momentum, 0.9);
  EXPECT_EQ(no_stash.weights_read().name, "single");
  // The file's optimizer stays.
  EXPECT_TRUE(std::holds_alternative<AdamWConfig>(no_stash.optimizer));

  spec = ContinuousJob("pipemare");
  spec.mutable_training()->clear_staleness();
  spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(0);
  FillDefaults(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob pipemare, ResolveJob(spec));
  EXPECT_EQ(pipemare.staleness.rescheduled_steps, 100);  // a quarter of 400
  EXPECT_EQ(pipemare.weights_read().name, "corrected");
  EXPECT_DOUBLE_EQ(pipemare.staleness.momentum_average_decay, std::exp(-2.0));
}

TEST(Presets, EveryAxis_CanBeOverridden) {
  v1::JobSpec spec = ContinuousJob("pipemare");
  spec.mutable_pipeline()->set_weights("predicted");
  spec.mutable_pipeline()->set_synchronous_steps(7);
  spec.mutable_training()->mutable_staleness()->set_rescheduled_steps(0);
  spec.mutable_training()->mutable_optimizer()->mutable_muon()->set_learning_rate(0.01);
  FillDefaults(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.weights_read().name, "predicted");
  EXPECT_FALSE(job.staleness.any());
  EXPECT_EQ(std::get<MuonConfig>(job.optimizer), MuonConfig());
  EXPECT_EQ(job.learning_rate.peak, 0.01);
  EXPECT_TRUE(job.DrainsAfter(6));
  EXPECT_FALSE(job.DrainsAfter(7));
  EXPECT_EQ(job.MethodAfter(0).name, "1f1b");
  EXPECT_EQ(job.MethodAfter(7).name, "pipemare");
}

TEST(UpdateEvery, DividesTheStepOfPaciAlone) {
  const auto resolve = [](const std::string& method, int32_t update_every, int32_t replicas = 1) {
    v1::JobSpec spec = ContinuousJob(method);  // 8 microbatches in a step
    spec.mutable_pipeline()->set_update_every(update_every);
    if (replicas > 1) spec.mutable_pipeline()->add_replicas(replicas);
    return ResolveJob(spec);
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, resolve("paci", 2));
  EXPECT_EQ(job.microbatches_of_update(1), 2);
  EXPECT_EQ(job.UpdatesBetween(3, 5, /*stages=*/2), 2 * 4);
  EXPECT_THAT(resolve("paci", 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline.update_every: is 3, which does not divide training.microbatches "
                       "(8); 2 or 4 would do"));
  EXPECT_THAT(resolve("paci", 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("pipeline.update_every: is 0; expected")));
  EXPECT_THAT(resolve("paci", 2, /*replicas=*/4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("pipeline.update_every: is 2, but with pipeline.replicas 4")));
  EXPECT_THAT(resolve("1f1b", 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline.update_every: is not for 1f1b, which updates a stage once in a "
                       "step; leave it out, or use paci"));
  EXPECT_THAT(resolve("pipedream", 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("which updates a stage after every microbatch")));
}

TEST(UpdatesBetween, WithASynchronousStart_CountsBothKinds) {
  v1::JobSpec spec = ContinuousJob("pipedream");  // 8 microbatches in a step
  spec.mutable_pipeline()->set_synchronous_steps(10);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.UpdatesBetween(0, 10, 2), 10);
  EXPECT_EQ(job.UpdatesBetween(0, 12, 2), 10 + 16);
  EXPECT_EQ(job.UpdatesBetween(4, 11, 2), 6 + 8);
  EXPECT_EQ(job.UpdatesBetween(10, 10, 2), 0);
  EXPECT_EQ(job.UpdatesBetween(20, 23, 2), 24);
}

TEST(Rpd, DeltaAndSeed_GoIntoTheSchedule) {
  v1::JobSpec spec = ContinuousJob("rpd");
  spec.mutable_training()->set_seed(42);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ResolvedJob job, ResolveJob(spec));
  const auto policy = [](const ResolvedJob& of) {
    return ToString(WeightPolicyOf(*of.method, ScheduleOptionsOf(of, TopologyOf(of, 4))));
  };
  EXPECT_EQ(policy(job), "drawn:14:42");
  spec.mutable_pipeline()->mutable_rpd()->set_delta(3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(job, ResolveJob(spec));
  EXPECT_EQ(policy(job), "drawn:3:42");
  // So that methods can be compared by one job.
  spec.mutable_pipeline()->set_method("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(job, ResolveJob(spec));
  EXPECT_EQ(policy(job), "stash");
}

TEST(Rpd, WhatCannotHold_IsRefusedWithWhatWouldDo) {
  v1::JobSpec spec = ContinuousJob("rpd");
  spec.mutable_pipeline()->mutable_rpd()->set_delta(2);
  spec.mutable_pipeline()->set_stages(3);
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_pipeline()->set_stages(4);
  ExpectRefused(spec, "pipeline.rpd.delta", "3 or more would do, and PipeDream's own is 14");
  spec.mutable_pipeline()->mutable_rpd()->set_delta(-1);
  ExpectRefused(spec, "pipeline.rpd.delta", "is -1");

  spec = ContinuousJob("rpd");
  spec.mutable_pipeline()->set_weights("stash");
  ExpectRefused(spec, "pipeline.weights",
                "rpd cannot have the weights \"stash\": it samples what is read");
  spec = ContinuousJob("rpd");
  spec.mutable_training()->mutable_staleness()->set_rescheduled_steps(5);
  ExpectRefused(spec, "training.staleness.rescheduled_steps", "rpd samples another for each");
  spec = ContinuousJob("rpd");
  spec.mutable_training()->mutable_staleness()->set_stage_momentum(0.9);
  ExpectRefused(spec, "training.staleness.stage_momentum", "rpd samples another for each");
  spec = ContinuousJob("rpd");
  spec.mutable_training()->mutable_staleness()->set_error_feedback(true);
  ExpectRefused(spec, "training.staleness.error_feedback", "rpd samples another for each");
  spec = ContinuousJob("rpd");
  spec.mutable_training()->set_stash("host");
  ExpectRefused(spec, "training.stash", "cannot be host with rpd");
  spec = ContinuousJob("rpd");
  spec.mutable_pipeline()->set_order("recorded");
  ExpectRefused(spec, "pipeline.order", "rpd: every order gives the same weights");
  spec = ContinuousJob("rpd");
  spec.mutable_pipeline()->set_stages(2);
  spec.mutable_model()->mutable_gpt()->set_tied_head(true);
  ExpectRefused(spec, "model.gpt.tied_head", "updates every stage by itself");
  spec = ContinuousJob("rpd");
  spec.mutable_training()->mutable_clip()->set_global_norm(1.0);
  ExpectRefused(spec, "training.clip.global_norm", "rpd updates every stage by itself");
}

TEST(MovesUntil, OverAllStages_IsOneAMicrobatch) {
  v1::JobSpec spec = ContinuousJob("rpd");  // 8 microbatches in a step
  spec.mutable_pipeline()->set_synchronous_steps(3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  for (const int64_t stages : {1, 2, 5}) {
    for (const int64_t step : {0, 2, 3, 4, 30}) {
      int64_t moves = 0;
      for (int64_t s = 0; s < stages; ++s) moves += job.MovesUntil(step, s, stages);
      const int64_t synchronous = std::min<int64_t>(step, 3);
      EXPECT_EQ(moves, synchronous * stages + (step - synchronous) * 8);
    }
  }
  const BlockDraws draws(spec.training().seed(), 14, 4);
  int64_t of_stage_2 = 3;
  for (int64_t m = 24; m < 80; ++m) of_stage_2 += draws.StageOf(m) == 2;
  EXPECT_EQ(job.MovesUntil(10, 2, 4), of_stage_2);
}

TEST(StalenessRules, WithAMethodThatDrains_AreRefused) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->mutable_staleness()->set_error_feedback(true);
  ExpectRefused(spec, "training.staleness: ", "1f1b, which drains at every step");
  spec = GoodJob();
  spec.mutable_pipeline()->set_synchronous_steps(5);
  ExpectRefused(spec, "pipeline.synchronous_steps: ", "use pipedream, pipedream-2bw or paci");
}

TEST(StalenessRules, WhereTheyCannotWork_AreRefusedWithWhatWouldDo) {
  v1::JobSpec spec = ContinuousJob("paci");
  spec.mutable_training()->mutable_staleness()->set_delay_compensation(0.1);
  ExpectRefused(spec, "training.staleness.delay_compensation: ", "pipedream-2bw keep them");
  spec.mutable_pipeline()->set_weights("stash");  // two versions in one update
  ExpectRefused(spec, "training.staleness.delay_compensation: ", "gone or differ");
  spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_staleness()->set_delay_compensation(0.1);
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_training()->set_stash("host");
  ExpectRefused(spec, "training.staleness.delay_compensation: ", "keep the stash on the device");

  spec = ContinuousJob("vertical-sync");
  spec.mutable_training()->mutable_staleness()->set_adaptive_compensation(true);
  ExpectRefused(spec, "training.staleness.adaptive_compensation: ",
                "how training.staleness.delay_compensation is applied, which is 0");
  spec.mutable_training()->mutable_staleness()->set_delay_compensation(2.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob adaptive, ResolveJob(spec));
  EXPECT_EQ(adaptive.staleness.mean_square_decay, 0.95);
  spec.mutable_pipeline()->set_method("paci");
  ExpectRefused(spec, "training.staleness.delay_compensation: ", "pipedream-2bw keep them");

  spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_staleness()->set_stage_momentum(0.9);
  spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  ExpectRefused(spec, "training.staleness.stage_momentum: ", "an optimizer with momentum");

  spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_staleness()->set_error_feedback(true);
  ExpectRefused(spec, "training.staleness.error_feedback: ", "up to 3 updates late");
  spec.mutable_pipeline()->set_stages(2);
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_pipeline()->set_method("pipedream-2bw");
  spec.mutable_pipeline()->set_stages(8);
  EXPECT_THAT(ResolveJob(spec), IsOk());
}

TEST(StalenessRules, NumbersOutOfRange_AreNamed) {
  v1::JobSpec spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_staleness()->set_stage_momentum(1.0);
  ExpectRefused(spec, "training.staleness.stage_momentum: ", "0.99");
  spec = ContinuousJob("pipedream");
  for (const double decay : {1.0, 0.9999999999999999}) {  // a root of the second is 1
    spec.mutable_training()->mutable_staleness()->set_momentum_average_decay(decay);
    ExpectRefused(spec, "training.staleness.momentum_average_decay: ", "at most 0.9999");
  }
  spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_staleness()->set_delay_compensation(-1.0);
  ExpectRefused(spec, "training.staleness.delay_compensation: ", "at least 0");
  spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_staleness()->set_mean_square_decay(1.0);
  ExpectRefused(spec, "training.staleness.mean_square_decay: ", "at most 0.9999");
  spec = ContinuousJob("pipedream");
  spec.mutable_pipeline()->set_synchronous_steps(401);
  ExpectRefused(spec, "pipeline.synchronous_steps: ", "401");
  spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_optimizer()->mutable_muon()->set_learning_rate(0.1);
  spec.mutable_training()->mutable_optimizer()->mutable_muon()->set_momentum(1.5);
  ExpectRefused(spec, "training.optimizer.muon.momentum: ", "1.5");
}

TEST(Rpd, MoreDrawsThanAreCounted_AreRefusedWithTheStepsThatWouldDo) {
  v1::JobSpec spec = ContinuousJob("rpd");
  spec.mutable_pipeline()->set_stages(8);
  spec.mutable_training()->set_steps(1'000'000);
  ExpectRefused(spec, "training.steps: ", "781250 steps would do");
}

TEST(Cuts, OneForEachStep_AreTakenUpToAMillion) {
  v1::JobSpec spec = ContinuousJob("1f1b");
  spec.mutable_checkpoint()->set_directory("/checkpoints");
  spec.mutable_checkpoint()->set_every_steps(1);
  spec.mutable_training()->set_steps(1'000'000);
  EXPECT_THAT(ResolveJob(spec), IsOk());
  spec.mutable_training()->set_steps(3'000'000);
  ExpectRefused(spec, "checkpoint.every_steps: is 1, which makes 3000000 cuts", "set 3 or more");
  spec.mutable_checkpoint()->set_every_steps(3);
  EXPECT_THAT(ResolveJob(spec), IsOk());
}

// What a kernel would compute with as 0 or infinity.
TEST(StalenessRules, NumbersBeyondSinglePrecision_AreRefused) {
  v1::JobSpec spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_staleness()->set_delay_compensation(1e39);
  ExpectRefused(spec, "training.staleness.delay_compensation: ", "is 1e+39");
  spec = ContinuousJob("pipedream");
  spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_epsilon(1e-50);
  ExpectRefused(spec, "training.optimizer.adamw.epsilon: ", "is 1e-50; expected a number above 0");
}

TEST(LatenessOf, EveryMethod_IsTheClosedFormWhateverTheJobsRanges) {
  for (const int64_t stages : {1, 2, 4, 7}) {
    for (const char* method : {"pipedream", "paci", "pipedream-2bw", "pipemare", "1f1b"}) {
      v1::JobSpec spec = ContinuousJob(method);
      spec.mutable_training()->set_steps(1);  // too short to be full
      spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(0);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const std::vector<StageLateness> lateness,
          LatenessOf(job, ScheduleOptionsOf(job, TopologyOf(job, stages))));
      for (int64_t s = 0; s < stages; ++s) {
        const int64_t depth = stages - 1 - s;
        const std::string name = method;
        const int64_t by_step = (depth + 7) / 8;
        const double tau = static_cast<double>(2 * depth + 1) / 8.0;
        const StageLateness expected =
            name == "pipedream"       ? StageLateness{depth, 0, static_cast<double>(depth)}
            : name == "1f1b"          ? StageLateness{0, 0, 0.0}
            : name == "pipedream-2bw" ? StageLateness{1, 0, 1.0}
                                      : StageLateness{by_step, by_step, tau};
        EXPECT_EQ(lateness[s], expected) << name << ", stage " << s << " of " << stages;
      }
    }
  }
}

}  // namespace
}  // namespace penstock
