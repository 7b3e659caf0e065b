#include "planner/job/assign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/defaults.h"
#include "job/yaml/yaml.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<WorkerOffer> Offers(int count) {
  std::vector<WorkerOffer> offers;
  offers.reserve(count);
  for (int i = 0; i < count; ++i) {
    offers.push_back({"w" + std::to_string(i), "host:" + std::to_string(i), 7u + i});
  }
  return offers;
}

absl::StatusOr<v1::Plan> PlanOf(const v1::JobSpec& spec, int workers, int64_t first_step = 0,
                                const std::vector<int64_t>& extra_cuts = {}) {
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  if (!job.ok()) {
    return job.status();
  }
  return MakePlan(spec, *job, Offers(workers), first_step, extra_cuts);
}

TEST(MakePlan, AnyNumberOfWorkers_GivesEachItsLayersInOrder) {
  for (int workers = 1; workers <= 7; ++workers) {  // two blocks make seven layers
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(SmallJob(10, 0), workers));
    ASSERT_EQ(plan.stages_size(), workers);
    int next_layer = 0;
    for (int s = 0; s < workers; ++s) {
      EXPECT_EQ(plan.stages(s).stage(), s);
      EXPECT_EQ(plan.stages(s).worker_index(), s);
      EXPECT_EQ(plan.stages(s).worker(), "w" + std::to_string(s));
      EXPECT_EQ(plan.stages(s).incarnation(), 7u + s);
      EXPECT_EQ(plan.stages(s).first_layer(), next_layer);
      EXPECT_GE(plan.stages(s).layers(), 1);
      next_layer += plan.stages(s).layers();
    }
    EXPECT_EQ(next_layer, 7);
    EXPECT_GE(plan.channel_capacity(), 1);
    EXPECT_EQ(plan.schedule_digest().size(), 64u);
  }
}

// Two blocks make seven layers.
std::vector<int> LayersOf(const v1::Plan& plan) {
  std::vector<int> layers;
  for (const v1::StageAssignment& stage : plan.stages()) layers.push_back(stage.layers());
  return layers;
}

v1::JobSpec JobWithStageLayers(std::initializer_list<int32_t> layers) {
  v1::JobSpec spec = SmallJob(10, 0);
  for (const int32_t count : layers) spec.mutable_pipeline()->add_stage_layers(count);
  spec.mutable_pipeline()->set_stages(static_cast<int32_t>(layers.size()));
  return spec;
}

TEST(MakePlan, StageLayers_AreThoseOfTheJob) {
  for (const auto layers : {std::initializer_list<int32_t>{1, 5, 1}, {3, 1, 3}, {5, 1, 1}}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(JobWithStageLayers(layers), 3));
    EXPECT_THAT(LayersOf(plan), ElementsAreArray(layers));
    EXPECT_EQ(plan.stages(2).first_layer(), 7 - plan.stages(2).layers());
  }
}

// Frozen layers have no W, and those before the first trained one no I, so that the first stage takes more of them.
TEST(MakePlan, FrozenLayers_ShiftTheSplit) {
  v1::JobSpec spec = SmallJob(10, 2);
  spec.mutable_model()->mutable_gpt()->set_layers(8);
  spec.mutable_model()->mutable_gpt()->set_width(64);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan whole, PlanOf(spec, 2));
  for (const char* pattern : {"w*", "h.0.*", "h.1.*", "h.2.*", "h.3.*"}) {
    v1::ParameterGroupSpec& group = *spec.mutable_training()->add_groups();
    group.set_parameters(pattern);
    group.set_frozen(true);
  }
  FillDefaults(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan frozen, PlanOf(spec, 2));
  EXPECT_GE(LayersOf(frozen).front(), LayersOf(whole).front() + 2);
  // The more, the further: adapters in the last block alone.
  spec.mutable_training()->clear_groups();
  spec.mutable_model()->mutable_lora()->add_targets("h.7.*");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan adapted, PlanOf(spec, 2));
  EXPECT_GT(LayersOf(adapted).front(), LayersOf(whole).front());
}

// Layers one and three share a weight, which a method that updates each stage by itself leaves on one stage.
TEST(MakePlan, LayersThatShareWeights_StayOnOneStageWhereEachUpdatesByItself) {
  const auto layers_of = [](const std::string& method) {
    const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(R"(
name: ties
model:
  layers:
    - input: {x: {f32: [8]}, y: {f32: [8]}}
    - linear: {outputs: 8, name: zero}
    - linear: {outputs: 8, name: one}
    - linear: {outputs: 8, name: two}
    - linear: {outputs: 8, name: three, weights_of: one}
    - mse: {targets: y}
data: {synthetic: {}}
training: {steps: 2, batch: 4, microbatches: 2, optimizer: {sgd: {learning_rate: 0.1}}}
pipeline: {method: )" + method + "}\n",
                                                          "job.yaml");
    return LayersOf(PlanOf(spec.value(), 2).value());
  };
  EXPECT_THAT(layers_of("1f1b"), ElementsAre(2, 2));
  EXPECT_THAT(layers_of("pipedream"), ElementsAre(1, 3));
}

// The attention has no parameters, and most of the work.
TEST(MakePlan, LayersWithoutGradient_StayWithTheNextOne) {
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(R"(
name: mixed
model:
  layers:
    - input: {x: {f32: [32, 24]}, label: {i32: []}}
    - block: {name: mixed, layers: [{attention: {heads: 2}}]}
    - linear: {outputs: 1, name: one}
    - flatten
    - linear: {outputs: 4, name: two}
    - cross_entropy: {targets: label}
data: {synthetic: {}}
training: {steps: 2, batch: 4, microbatches: 2, optimizer: {sgd: {learning_rate: 0.1}}}
pipeline: {method: 1f1b}
)",
                                                        "job.yaml");
  ASSERT_THAT(spec, IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(*spec, 2));
  EXPECT_THAT(LayersOf(plan), ElementsAre(2, 1));
  EXPECT_THAT(PlanOf(*spec, 3), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("layers mixed to one have to be on one stage")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(*spec));
  EXPECT_EQ(WorkersFor(*spec, job, 50), 2);
}

TEST(MakePlan, StageLayers_AreEqualInAllReplicasOfAStageAndOfTheModel) {
  v1::JobSpec places = JobWithStageLayers({5, 2});
  places.mutable_pipeline()->add_replicas(2);
  places.mutable_pipeline()->add_replicas(1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan of_places, PlanOf(places, 3));
  EXPECT_THAT(LayersOf(of_places), ElementsAre(5, 5, 2));

  v1::JobSpec copies = JobWithStageLayers({5, 2});
  copies.mutable_pipeline()->set_method("local-sgd");
  copies.mutable_training()->clear_clip();
  copies.mutable_pipeline()->add_replicas(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan of_copies, PlanOf(copies, 2));
  EXPECT_THAT(LayersOf(of_copies), ElementsAre(5, 2, 5, 2));
}

TEST(MakePlan, StageLayers_ThereAndBack_AreThoseOfTheForwardsAndTheirBackwards) {
  v1::JobSpec spec = JobWithStageLayers({2, 4, 1});
  spec.mutable_pipeline()->set_method("roundpipe");
  spec.mutable_pipeline()->set_workers(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(spec, 2));
  for (int s = 0; s < plan.stages_size(); ++s) {
    const std::vector<int> once = {2, 4, 1, 4, 2};
    EXPECT_EQ(plan.stages(s).layers(), once[s % 5]) << s;
  }
}

TEST(MakePlan, StageLayersOfOtherStages_AreRefused) {
  EXPECT_THAT(PlanOf(JobWithStageLayers({1, 5, 1}), 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pipeline.stage_layers")));
}

TEST(MakePlan, Replicas_HaveTheSameLayersOnTheSameWorkers) {
  v1::JobSpec spec = SmallJob(10, 0);
  spec.mutable_pipeline()->set_method("local-sgd");
  spec.mutable_training()->clear_clip();
  spec.mutable_pipeline()->add_replicas(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(spec, 3));
  EXPECT_EQ(plan.pipelines(), 2);
  ASSERT_EQ(plan.stages_size(), 6);
  for (int s = 0; s < 6; ++s) {
    EXPECT_EQ(plan.stages(s).stage(), s);
    EXPECT_EQ(plan.stages(s).worker_index(), s % 3);
    EXPECT_EQ(plan.stages(s).first_layer(), plan.stages(s % 3).first_layer());
    EXPECT_EQ(plan.stages(s).layers(), plan.stages(s % 3).layers());
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan straight, PlanOf(SmallJob(10, 0), 3));
  EXPECT_EQ(straight.pipelines(), 0) << "one";
}

TEST(MakePlan, ReplicasOfStages_AreEachOnAWorker_AndTheLayersBalanceTheirNumbers) {
  v1::JobSpec spec = SmallJob(10, 0);
  spec.mutable_training()->set_microbatches(6);
  spec.mutable_training()->set_batch(6);
  spec.mutable_pipeline()->add_replicas(3);
  spec.mutable_pipeline()->add_replicas(1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(spec, 4));
  EXPECT_EQ(plan.pipelines(), 0);
  ASSERT_EQ(plan.stages_size(), 4);
  for (int s = 0; s < 4; ++s) {
    EXPECT_EQ(plan.stages(s).stage(), s);
    EXPECT_EQ(plan.stages(s).worker_index(), s);
    EXPECT_EQ(plan.stages(s).first_layer(), s < 3 ? 0 : plan.stages(0).layers());
    EXPECT_EQ(plan.stages(s).layers(), plan.stages(s < 3 ? 0 : 3).layers());
  }
  EXPECT_GT(plan.stages(0).layers(), plan.stages(3).layers()) << "three workers share the first";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(WorkersFor(spec, job, 3), 0);
  EXPECT_EQ(WorkersFor(spec, job, 9), 4);
  spec.mutable_pipeline()->clear_replicas();
  spec.mutable_pipeline()->add_replicas(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob twos, ResolveJob(spec));
  EXPECT_EQ(WorkersFor(spec, twos, 5), 4) << "two stages of two";
  EXPECT_EQ(WorkersFor(spec, twos, 1), 0);
}

TEST(MakePlan, RoundPipe_HasTheLayersOfEachStageOnTheWayThereAndBack) {
  v1::JobSpec spec = SmallJob(10, 0);
  spec.mutable_pipeline()->set_method("roundpipe");
  spec.mutable_pipeline()->set_stages(3);
  spec.mutable_pipeline()->set_workers(4);
  spec.mutable_training()->set_microbatches(8);
  spec.mutable_training()->set_batch(8);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(spec, 4));
  EXPECT_EQ(plan.pipelines(), 2) << "5 slots on 4 workers, two rounds";
  EXPECT_GE(plan.channel_capacity(), 4) << "the inputs of a round";
  ASSERT_EQ(plan.stages_size(), 10);
  for (int s = 0; s < 10; ++s) {
    const int part = std::min(s % 5, 4 - s % 5);
    EXPECT_EQ(plan.stages(s).worker_index(), s % 4);
    EXPECT_EQ(plan.stages(s).first_layer(), plan.stages(part).first_layer());
    EXPECT_EQ(plan.stages(s).layers(), plan.stages(part).layers());
  }
  EXPECT_EQ(plan.stages(2).first_layer() + plan.stages(2).layers(), 7);
}

TEST(MakePlan, RecordedOrder_HasRoomOnEveryEdgeForAllInFlight) {
  v1::JobSpec spec = SmallJob(10, 0);
  spec.mutable_training()->set_microbatches(8);
  spec.mutable_pipeline()->set_order("recorded");
  for (const auto& [method, capacity] : {std::pair("1f1b", 5), std::pair("gpipe", 8)}) {
    spec.mutable_pipeline()->set_method(method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(spec, 5));
    EXPECT_EQ(plan.channel_capacity(), capacity) << method;
  }
  spec.mutable_pipeline()->set_in_flight_factor(4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(spec, 5));
  EXPECT_EQ(plan.channel_capacity(), 32);
}

TEST(MakePlan, RecordedOrder_TooLongToBeKept_IsRefusedWithItsSize) {
  v1::JobSpec spec = SmallJob(100'000, 0);
  EXPECT_THAT(PlanOf(spec, 4), IsOk());
  spec.mutable_pipeline()->set_order("recorded");
  // 2 bits for each of 400,000 microbatches on each of 4 stages.
  EXPECT_THAT(PlanOf(spec, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("pipeline.order"), HasSubstr("take 400128 bytes"),
                             HasSubstr("at most 131072"))));
  spec.mutable_training()->set_steps(30'000);
  EXPECT_THAT(PlanOf(spec, 4), IsOk());
}

TEST(MakePlan, MoreWorkersThanLayers_IsRefused) {
  EXPECT_THAT(PlanOf(SmallJob(10, 0), 8),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("only 7 layers")));
}

TEST(MakePlan, TiedPipedream_IsRefusedOnTwoWorkers) {
  v1::JobSpec spec = SmallJob(10, 0);
  spec.mutable_pipeline()->set_method("pipedream");
  EXPECT_THAT(PlanOf(spec, 1), IsOk());
  EXPECT_THAT(PlanOf(spec, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.gpt.tied_head")));
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  EXPECT_THAT(PlanOf(spec, 2), IsOk());
}

// Whatever changes what is run changes the digest: method, stages, cuts, where it starts.
TEST(MakePlan, Digest_NamesWhatIsRun) {
  v1::JobSpec base = SmallJob(10, 0);
  v1::JobSpec validated = base;
  validated.mutable_validation()->set_every_steps(5);
  v1::JobSpec gpipe = base;
  gpipe.mutable_pipeline()->set_method("gpipe");
  v1::JobSpec rate = base;
  rate.mutable_training()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.5);

  std::set<std::string> digests;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan plan, PlanOf(base, 2));
  digests.insert(plan.schedule_digest());
  for (const absl::StatusOr<v1::Plan>& other :
       {PlanOf(base, 3), PlanOf(validated, 2), PlanOf(gpipe, 2), PlanOf(base, 2, 5),
        PlanOf(base, 2, 0, {5})}) {
    ASSERT_THAT(other, IsOk());
    EXPECT_TRUE(digests.insert(other->schedule_digest()).second);
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::Plan same, PlanOf(rate, 2));
  EXPECT_EQ(same.schedule_digest(), plan.schedule_digest());
}

TEST(WorkersFor, SpecSaysOrAllFree) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(SmallJob(10, 0)));
  EXPECT_EQ(WorkersFor(SmallJob(10, 3), job, 2), 0);
  EXPECT_EQ(WorkersFor(SmallJob(10, 3), job, 5), 3);
  EXPECT_EQ(WorkersFor(SmallJob(10, 0), job, 0), 0);
  EXPECT_EQ(WorkersFor(SmallJob(10, 0), job, 5), 5);
  EXPECT_EQ(WorkersFor(SmallJob(10, 0), job, 50), 7);
}

}  // namespace
}  // namespace penstock
