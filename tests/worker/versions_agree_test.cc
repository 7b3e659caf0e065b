// The four that know which versions are read, for every method on 2, 4 and 8 stages: the verifier, which proves
// it of a schedule, the simulator, which counts it, the serial reference, which follows closed
// forms and asks no schedule, and a cluster, which measures it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "schedule/block_delay.h"
#include "schedule/block_delay_meter.h"
#include "schedule/catalog/catalog.h"
#include "schedule/lower.h"
#include "schedule/simulate.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/run_plan.h"

namespace penstock {
namespace {

// 48 microbatches, enough for a steady state of 8 stages (PredictBlockDelay).
constexpr int64_t kSteps = 6;
constexpr int64_t kMicrobatches = 8;
constexpr int kBlocks = 3;
constexpr int kNineLayers = 9;

v1::JobSpec JobOf(const Method& method) {
  v1::JobSpec spec = SmallJob(std::string(method.name));
  spec.mutable_model()->mutable_gpt()->set_layers(kBlocks);
  spec.mutable_training()->set_steps(kSteps);
  spec.mutable_training()->set_batch(kMicrobatches);
  spec.mutable_training()->set_microbatches(kMicrobatches);
  if (method.placement == Placement::kReplicas) spec.mutable_pipeline()->add_replicas(2);
  return spec;
}

// The schedule of what the workers did, in the order in which they did it.
absl::StatusOr<Schedule> ScheduleOf(const Timeline& measured, const Schedule& planned) {
  Schedule schedule = planned;
  for (size_t worker = 0; worker < schedule.programs.size(); ++worker) {
    std::vector<Span> spans;
    for (const Span& span : measured.spans) {
      const bool mine = span.worker.value == static_cast<int32_t>(worker);
      // Averaging weights is part of a method; other reductions follow from it.
      const bool averages =
          span.action.kind == ActionKind::kReduce &&
          planned.topology.groups[span.action.index].quantity == ReduceGroup::Quantity::kWeight;
      if (mine && (span.lane == Lane::kCompute || (span.lane == Lane::kCollective && averages))) {
        spans.push_back(span);
      }
    }
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
    schedule.programs[worker] = Program();
    for (const Span& span : spans) schedule.programs[worker].prologue.push_back(span.action);
  }
  return CompleteSchedule(schedule, LowerOptions());
}

// The distribution has the microbatches, the sum and the most that are counted beside it; of delays beyond its exact
// part, the sum and that there are any.
void ExpectDistribution(const v1::DelayCounts& delays, const StalenessCount& expected) {
  ASSERT_EQ(delays.microbatches_size(), DelayCounts::kExact + 1);
  int64_t microbatches = 0;
  int64_t sum = 0;
  int64_t max = 0;
  for (int updates = 0; updates < delays.microbatches_size(); ++updates) {
    microbatches += delays.microbatches(updates);
    sum += updates * delays.microbatches(updates);
    if (delays.microbatches(updates) > 0) max = updates;
  }
  EXPECT_EQ(microbatches, expected.microbatches);
  EXPECT_EQ(delays.sum(), expected.sum);
  EXPECT_EQ(max, std::min<int64_t>(expected.max, DelayCounts::kExact));
  if (expected.max < DelayCounts::kExact) {
    EXPECT_EQ(sum, expected.sum);
  }
}

void ExpectReport(const v1::StageReport& report, const StageCounts& expected) {
  ExpectDistribution(report.staleness_counts(), expected.staleness);
  ExpectDistribution(report.version_drift_counts(), expected.version_drift);
  EXPECT_LE(report.staleness().max(), report.staleness_bound());
  EXPECT_EQ(report.activations_live(), 0) << "nothing is in flight at the end";
  EXPECT_GE(report.versions_live(), 1);
  EXPECT_LE(report.versions_live(), expected.versions_peak);
  EXPECT_EQ(report.staleness().max(), expected.staleness.max);
  EXPECT_EQ(report.staleness().mean(), expected.staleness.mean());
  EXPECT_EQ(report.version_drift().max(), expected.version_drift.max);
  EXPECT_EQ(report.version_drift().mean(), expected.version_drift.mean());
  EXPECT_EQ(report.updates(), expected.staleness.updates);
  EXPECT_EQ(report.versions_peak(), expected.versions_peak);
  EXPECT_EQ(report.activations_peak(), expected.activations_peak);
}

class VersionsAgree : public ::testing::Test {
 protected:
  VersionsAgree() { AddTestText(files_); }

  // Whatever the timing was. (Where it is known, the delay is exact: block_delay_meter_test.)
  void ExpectMeasuredDelay(const ResolvedJob& job, const RunPlan& plan, const Timeline& timeline) {
    const Topology& topology = plan.topology();
    const bool replicas = topology.form == Topology::Form::kReplicas;
    if (job.method->synchronous || job.draws() || replicas) return;
    const int32_t stages = topology.stages();
    const int64_t microbatches = kSteps * kMicrobatches;
    BlockDelayMeter meter(stages, topology.pipelines, {{0, microbatches}});
    meter.Add(timeline);
    const BlockDelay delay = meter.delay();
    // All of the steady state, but for an update that the first stage makes when the others have ended.
    EXPECT_LE(delay.count, (microbatches - 4 * stages) * stages * stages);
    EXPECT_GE(delay.count, (microbatches - 4 * stages - kMicrobatches) * stages * stages);
    // Between a forward on stage s and the update that it leads to, every other stage makes at most 2 S updates, however
    // fast it is: one ahead of s waits for its gradients, one behind it for its activations, and the static order
    // keeps S microbatches in flight at most.
    EXPECT_LE(delay.max, 2 * stages * stages);
    // A stage's own updates are among those that are counted.
    for (const StageCounts& counts : plan.counts) EXPECT_GE(delay.max, counts.staleness.max);
  }

  void ExpectAgreement(const Method& method, int stages) {
    const v1::JobSpec spec = JobOf(method);
    const std::vector<LayerRange> layers = EvenSplit(kNineLayers, stages);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
    ASSERT_THAT(CheckStages(job, stages), IsOk());
    // As many messages as any of the methods needs.
    const auto widen = [](v1::PrepareRunRequest& request) {
      request.mutable_plan()->set_channel_capacity(kMicrobatches);
    };
    v1::PrepareRunRequest request = MakeRequest(spec, layers, 0);
    widen(request);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const RunPlan verified, MakeRunPlan(request, RunLimits()));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                  ScheduleOfSteps(job, verified.schedule, 0, kSteps));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const SimulationResult simulated,
        Simulate(schedule, {}, {.channel_capacity = verified.edge_capacity}));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, TrainCluster({.spec = spec,
                                                                       .layers = layers,
                                                                       .delay_seed = 3,
                                                                       .delay_us_max = 50,
                                                                       .edit_request = widen},
                                                                      files_));

    ExpectSameTraining(cluster, serial);
    ASSERT_EQ(simulated.stages.size(), verified.counts.size());
    ASSERT_EQ(cluster.reports.size(), verified.counts.size());
    // Of a method that drains the reference has the whole model as one stage.
    const bool one_stage = job.method->synchronous;
    const Topology& topology = verified.topology();
    const bool loops = topology.form == Topology::Form::kThereAndBack;
    const int32_t models = loops ? 1 : topology.pipelines;
    const size_t serial_stages =
        loops ? static_cast<size_t>(topology.parts()) : verified.counts.size();
    ASSERT_EQ(serial.reads.size(), one_stage ? models : serial_stages);
    for (size_t s = 0; s < verified.counts.size(); ++s) {
      SCOPED_TRACE(absl::StrCat("stage ", s));
      ExpectReport(cluster.reports[s], verified.counts[s]);
      EXPECT_EQ(simulated.stages[s].staleness, verified.counts[s].staleness);
      EXPECT_EQ(simulated.stages[s].version_drift, verified.counts[s].version_drift);
      EXPECT_EQ(simulated.stages[s].versions_peak, verified.counts[s].versions_peak);
      const StageId stage(static_cast<int32_t>(s));
      if (!topology[stage].updates) continue;
      const int32_t model = models == 1 ? 0 : topology[stage].pipeline;
      const size_t of_stage = loops ? topology[stage].part : s;
      const ReferenceResult::StageReads& reads = serial.reads[one_stage ? model : of_stage];
      EXPECT_EQ(reads.staleness, verified.counts[s].staleness);
      EXPECT_EQ(reads.version_drift, verified.counts[s].version_drift);
    }
    if (loops && !method.synchronous) {
      EXPECT_THAT(PredictBlockDelay(schedule), StatusIs(absl::StatusCode::kUnimplemented,
                                                        ::testing::HasSubstr("there and back")));
      return;
    }
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay predicted, PredictBlockDelay(schedule));
    if (loops) {
      EXPECT_EQ(predicted.max,
                0);  // copies of weights within a worker take no time and leave no span
      return;
    }
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule done, ScheduleOf(cluster.timeline, schedule));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const BlockDelay replayed, PredictBlockDelay(done));
    EXPECT_EQ(replayed.max, predicted.max);
    EXPECT_EQ(replayed.mean, predicted.mean);
    EXPECT_EQ(replayed.count, predicted.count);
    ExpectMeasuredDelay(job, verified, cluster.timeline);
  }

  MemoryFiles files_;
};

TEST_F(VersionsAgree, EveryMethodOn2And4And8Stages_VerifierSimulatorReferenceAndCluster) {
  for (const Method& method : Methods()) {
    for (const int stages : {2, 4, 8}) {
      SCOPED_TRACE(absl::StrCat(std::string(method.name), " on ", stages, " stages"));
      ExpectAgreement(method, stages);
    }
  }
}

}  // namespace
}  // namespace penstock
