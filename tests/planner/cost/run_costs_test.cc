#include "planner/cost/run_costs.h"

#include <gmock/gmock.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "job/defaults.h"
#include "job/profile/device_times.h"
#include "job/run/message_bytes.h"
#include "job/yaml/yaml.h"
#include "planner/cost/run_memory.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kTimes[] = "model: {forward_ms: 80, backward_input_ms: 40, update_ms: 8}\n";

v1::DeviceTimes Times(const std::string& more) {
  const auto times = ParseDeviceTimes(kTimes + more, "times.yaml");
  EXPECT_THAT(times, IsOk());
  return *times;
}

// GoodJob (15 layers) on stages of these layers.
struct SplitRun {
  explicit SplitRun(const v1::JobSpec& spec, const std::vector<LayerRange>& parts)
      : job(*ResolveJob(spec)),
        topology(ScheduleOptionsOf(job, TopologyOf(job, static_cast<int64_t>(parts.size())), parts)
                     .topology),
        layers(LayersOfStages(topology, parts)) {}

  absl::StatusOr<SimulationCosts> Costs(const std::string& more) const {
    return RunCostsOf(Times(more), job, topology, layers);
  }

  ResolvedJob job;
  Topology topology;
  std::vector<LayerRange> layers;
};

v1::JobSpec Replicated(std::initializer_list<int32_t> replicas) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->clear_stages();
  for (const int32_t count : replicas) spec.mutable_pipeline()->add_replicas(count);
  return spec;
}

const std::vector<LayerRange> kFour = {{0, 3}, {3, 4}, {7, 4}, {11, 4}};

TEST(RunCosts, WithoutSpeedsAndLinks_AreThoseOfTheStages) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts costs, SplitRun(GoodJob(), kFour).Costs(""));
  ASSERT_THAT(costs.stages, SizeIs(4));
  for (const StageCosts& stage : costs.stages) EXPECT_DOUBLE_EQ(stage.forward_s, 0.020);
  EXPECT_FALSE(costs.worker_links.has_value());
  EXPECT_THAT(costs.links, IsEmpty());
}

constexpr char kBundles[] = "bundles: {pack_ms_per_megabyte: 200, unpack_ms_per_megabyte: 300}\n";

// Of a value that crosses whole there is nothing to copy, unless it is narrowed.
TEST(RunCosts, Bundles_TakeTimeAtBothEndsOfAStageInBf16) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts f32,
                                SplitRun(GoodJob(), kFour).Costs(kBundles));
  EXPECT_DOUBLE_EQ(f32.stages[1].forward_s, 0.020);
  v1::JobSpec spec = GoodJob();
  spec.mutable_training()->set_precision("bf16");
  const SplitRun run(spec, kFour);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts bf16, run.Costs(kBundles));
  const double megabytes = static_cast<double>(ActivationBytesAt(run.job, 3)) * 1e-6;
  ASSERT_GT(megabytes, 0);
  EXPECT_DOUBLE_EQ(bf16.stages[0].forward_s, 0.020 + 0.200 * megabytes);
  EXPECT_DOUBLE_EQ(bf16.stages[0].backward_input_s, 0.010 + 0.300 * megabytes);
  EXPECT_DOUBLE_EQ(bf16.stages[1].forward_s, 0.020 + 0.500 * megabytes);
  EXPECT_DOUBLE_EQ(bf16.stages[1].backward_input_s, 0.010 + 0.500 * megabytes);
  EXPECT_DOUBLE_EQ(bf16.stages[3].forward_s, 0.020 + 0.300 * megabytes);
  EXPECT_DOUBLE_EQ(bf16.stages[3].backward_input_s, 0.010 + 0.200 * megabytes);
  EXPECT_DOUBLE_EQ(bf16.stages[1].backward_weight_s, f32.stages[1].backward_weight_s);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts slow,
                                run.Costs(absl::StrCat(kBundles, "speeds: [0.5, 1, 1, 1]")));
  EXPECT_DOUBLE_EQ(slow.stages[0].forward_s, 2 * bf16.stages[0].forward_s);
}

TEST(RunCosts, BundlesOfSeveralValues_AreCopiedTogetherInF32) {
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(R"(
name: skip
model:
  layers:
    - input: {x: {f32: [16]}, wanted: {f32: [16]}}
    - linear: {of: x, outputs: 32, name: first}
    - linear: {outputs: 64, name: second}
    - linear: {outputs: 16, name: third}
    - linear: {of: first, outputs: 16, name: fourth}
    - add: {of: [third, fourth], name: sum}
    - mse: {of: [sum, wanted]}
data: {synthetic: {}}
training: {steps: 1, batch: 8, microbatches: 2, optimizer: {sgd: {learning_rate: 0.1}}}
pipeline: {method: 1f1b}
)",
                                                        "job.yaml");
  ASSERT_THAT(spec, IsOk());
  const SplitRun run(*spec, {{0, 2}, {2, 2}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts costs, run.Costs(kBundles));
  const double megabytes = 4 * (32 + 64) * 4 * 1e-6;  // first and second, of 4 samples
  EXPECT_DOUBLE_EQ(costs.stages[0].forward_s, 0.040 + 0.200 * megabytes);
  EXPECT_DOUBLE_EQ(costs.stages[0].backward_input_s, 0.020);
  EXPECT_DOUBLE_EQ(costs.stages[1].forward_s, 0.040);
  EXPECT_DOUBLE_EQ(costs.stages[1].backward_input_s, 0.020 + 0.200 * megabytes);
}

TEST(RunCosts, Speeds_DivideTheTimesOfEachWorker) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts costs,
                                SplitRun(GoodJob(), kFour).Costs("speeds: [1, 2, 0.5, 4]"));
  EXPECT_DOUBLE_EQ(costs.stages[1].forward_s, 0.010);
  EXPECT_DOUBLE_EQ(costs.stages[2].forward_s, 0.040);
  EXPECT_DOUBLE_EQ(costs.stages[2].update_s, 0.004);
  EXPECT_DOUBLE_EQ(costs.stages[3].backward_input_s, 0.0025);
  // By worker, not by place: the first place has two.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationCosts replicas,
      SplitRun(Replicated({2, 1}), {{0, 10}, {10, 5}}).Costs("speeds: [1, 4, 2]"));
  EXPECT_DOUBLE_EQ(replicas.stages[0].forward_s, 0.040);
  EXPECT_DOUBLE_EQ(replicas.stages[1].forward_s, 0.010);
  EXPECT_DOUBLE_EQ(replicas.stages[2].forward_s, 0.020);
  EXPECT_THAT(SplitRun(GoodJob(), kFour).Costs("speeds: [1, 2]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("speeds has 2 numbers, but the run has 4 workers")));
}

TEST(RunCosts, Links_AreOfPairsAndOfAllOthers) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts costs,
                                SplitRun(GoodJob(), kFour)
                                    .Costs("links: [{gigabits_per_second: 8, latency_ms: 2}, "
                                           "{workers: [2, 1], latency_ms: 5}]"));
  ASSERT_TRUE(costs.worker_links.has_value());
  const WorkerLinks& links = *costs.worker_links;
  EXPECT_DOUBLE_EQ(links.Between(WorkerId(0), WorkerId(1)).bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(links.Between(WorkerId(3), WorkerId(0)).latency_s, 0.002);
  for (const auto& [one, other] : {std::pair(1, 2), {2, 1}}) {
    const LinkSpeed& pair = links.Between(WorkerId(one), WorkerId(other));
    EXPECT_DOUBLE_EQ(pair.latency_s, 0.005);
    EXPECT_EQ(pair.bytes_per_second, std::numeric_limits<double>::infinity());
  }
  EXPECT_THAT(SplitRun(GoodJob(), kFour).Costs("links: [{workers: [0, 4]}]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a link joins worker 4, but the run has workers 0 to 3")));
}

// Width 192, 128 time steps, microbatches of 4.
TEST(RunCosts, Traffic_IsWhatTheWorkersSend) {
  const SplitRun run(Replicated({4, 1}), {{0, 10}, {10, 5}});
  const Traffic traffic = TrafficOf(run.job, run.topology, run.layers);
  const double boundary = 4.0 * 128 * 192 * 4;
  for (size_t stage = 0; stage < traffic.stages.size(); ++stage) {
    const bool first = run.layers[stage].first == 0;
    const bool last = run.layers[stage].end() == 15;
    EXPECT_DOUBLE_EQ(traffic.stages[stage].output, last ? 0.0 : boundary);
    EXPECT_DOUBLE_EQ(traffic.stages[stage].grad_input, first ? 0.0 : boundary);
    EXPECT_DOUBLE_EQ(traffic.stages[stage].input, first ? 0.0 : boundary);
  }
  ASSERT_EQ(traffic.groups.size(), run.topology.groups.size());
  ASSERT_EQ(traffic.groups.size(), 2u) << "the replicas of the first place, and tied ends";
  double parts = 0.0;
  for (const Traffic::OfGroup::Bucket& bucket : traffic.groups[0].buckets) {
    for (const double part : bucket.parts) parts += part;
    EXPECT_THAT(bucket.parts, SizeIs(4));
  }
  EXPECT_DOUBLE_EQ(parts, 4.0 * static_cast<double>(GradientsOfLayers(run.job.model, {0, 10})));
  EXPECT_GT(traffic.groups[0].buckets.size(), 1u);
  EXPECT_THAT(traffic.groups[1].buckets, IsEmpty());
  ASSERT_THAT(traffic.groups[1].tied, SizeIs(1));
  EXPECT_DOUBLE_EQ(traffic.groups[1].tied[0].bytes, 256.0 * 192 * 4) << "the embedding";
  EXPECT_EQ(traffic.groups[1].tied[0].sum, (TiedSum{.parts = {0, 1}, .exchanges = true}));
  EXPECT_THAT(traffic.sums, IsEmpty());
  EXPECT_THAT(traffic.norms, ElementsAre(80, 80, 80, 80, 40)) << "8 bytes for each layer";
}

// Every layer takes as long as any other, so the time tells which of the ten a bucket ends with.
TEST(RunCosts, BucketsOfGradients_AreWholeWhenWOfTheirLayersIs) {
  const SplitRun run(Replicated({4, 1}), {{0, 10}, {10, 5}});
  const auto times = ParseDeviceTimes(
      "model: {forward_ms: 80, backward_input_ms: 40, backward_weight_ms: 60}\n"
      "links: [{gigabits_per_second: 1}]\n",
      "times.yaml");
  ASSERT_THAT(times, IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationCosts costs,
                                RunCostsOf(*times, run.job, run.topology, run.layers));
  const std::vector<GradientBucket> gradients = GradientBucketsOfLayers(run.job.model, {0, 10});
  const std::vector<Traffic::OfGroup::Bucket>& buckets = costs.traffic.groups[0].buckets;
  ASSERT_EQ(buckets.size(), gradients.size());
  ASSERT_GT(buckets.size(), 2u);
  for (size_t i = 0; i < buckets.size(); ++i) {
    EXPECT_NEAR(buckets[i].done, (10.0 - gradients[i].layer) / 10.0, 1e-12);
  }
  EXPECT_EQ(gradients.back().layer, 0);
}

TEST(RunCosts, TrafficThereAndBack_HasSumsAndCopies) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_pipeline()->set_method("roundpipe");
  spec.mutable_pipeline()->set_stages(2);
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  const SplitRun run(spec, {{0, 10}, {10, 5}});
  const Traffic traffic = TrafficOf(run.job, run.topology, run.layers);
  ASSERT_EQ(traffic.sums.size(), static_cast<size_t>(run.topology.stages()));
  double norms = 0.0;
  for (const double bytes : traffic.norms) norms += bytes;
  EXPECT_DOUBLE_EQ(norms, 8.0 * 15) << "each layer once, from the worker that updates it";
  EXPECT_DOUBLE_EQ(traffic.sums[0],
                   4.0 * static_cast<double>(GradientsOfLayers(run.job.model, {0, 10})));
  for (size_t group = 0; group < traffic.groups.size(); ++group) {
    const LayerRange& range = run.layers[run.topology.groups[group].stages.front().value];
    EXPECT_DOUBLE_EQ(traffic.groups[group].copied,
                     4.0 * static_cast<double>(WeightsOfLayers(run.job.model, range)));
  }
}

}  // namespace
}  // namespace penstock
