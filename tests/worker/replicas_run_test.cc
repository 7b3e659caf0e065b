// Stages with replicas: the cluster against the serial reference of the same arithmetic, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "job/resolve.h"
#include "job/run/message_bytes.h"
#include "job/run/run_schedule.h"
#include "schedule/catalog/catalog.h"
#include "schedule/search.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "schedule/warm_up.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/collectives.h"
#include "worker/run_plan.h"

namespace penstock {
namespace {

using Replicas = std::vector<int32_t>;

constexpr const char* kMethods[] = {
    "1f1b",      "gpipe", "zb-h1",         "zb-h2",    "pipedream", "nesterov-no-stash",
    "spectrain", "paci",  "pipedream-2bw", "pipemare", "xpipe"};

// Whether a stage updates after one microbatch of each replica.
bool UpdatesByRound(const std::string& method) {
  return (*FindMethod(absl::string_view(method)))->updates_each_microbatch;
}

int Stages(const Replicas& replicas) { return static_cast<int>(replicas.size()); }

// 4 steps, validated after every second, of two microbatches on each turn of the replicas.
v1::JobSpec JobOf(const std::string& method, const Replicas& replicas) {
  v1::JobSpec spec = SmallJob(method);
  v1::TrainingSpec& training = *spec.mutable_training();
  training.set_steps(4);
  const int64_t cycle = CycleOf(replicas);
  int64_t microbatches = 2 * cycle;
  if ((*FindMethod(absl::string_view(method)))->weights->fills_pipeline) {
    // As many as are in flight.
    const std::vector<int64_t> ahead = MicrobatchesAhead(replicas);
    for (size_t place = 0; place < replicas.size(); ++place) {
      while (microbatches < ahead[place] + replicas[place]) microbatches += cycle;
    }
  }
  training.set_microbatches(microbatches);
  training.set_batch(2 * training.microbatches());
  spec.mutable_model()->mutable_gpt()->set_dropout(0.2);
  spec.mutable_validation()->set_every_steps(2);
  spec.mutable_validation()->set_batches(1);
  spec.mutable_pipeline()->mutable_replicas()->Assign(replicas.begin(), replicas.end());
  return spec;
}

class ReplicasRun : public ::testing::Test {
 protected:
  ReplicasRun() { AddTestText(files_); }

  void ExpectEqual(const v1::JobSpec& spec, const Replicas& replicas, uint64_t delay_seed = 0) {
    SCOPED_TRACE(absl::StrCat(spec.pipeline().method(), " ", absl::StrJoin(replicas, ","),
                              ", delays ", delay_seed));
    const std::vector<LayerRange> layers = EvenSplit(kLayers, Stages(replicas));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = layers, .delay_seed = delay_seed}, files_));
    ExpectSameTraining(cluster, serial);
  }

  MemoryFiles files_;
};

TEST_F(ReplicasRun, EveryMethodAndNumbers_IsTheSerialReference) {
  for (const char* method : kMethods) {
    for (const Replicas& replicas :
         {Replicas{2, 2}, {4}, {4, 1}, {1, 4}, {3, 1}, {2, 3}, {1, 2, 1}, {2, 1, 3}, {4, 2, 1}}) {
      ExpectEqual(JobOf(method, replicas), replicas, /*delay_seed=*/replicas.size());
    }
  }
}

// Layers of half a megabyte, each of them a bucket of gradients that leaves while the W of those before it goes on.
v1::JobSpec WideJobOf(const std::string& method, const Replicas& replicas) {
  v1::JobSpec spec = JobOf(method, replicas);
  spec.mutable_model()->mutable_gpt()->set_width(128);
  spec.mutable_validation()->set_every_steps(0);
  spec.mutable_training()->set_steps(2);
  return spec;
}

TEST_F(ReplicasRun, SeveralBucketsOfGradients_IsTheSerialReference) {
  for (const char* method : {"pipedream-2bw", "paci", "zb-h1", "1f1b", "pipedream"}) {
    for (const Replicas& replicas : {Replicas{2}, {3}, {2, 3}}) {
      const v1::JobSpec spec = WideJobOf(method, replicas);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
      for (const LayerRange& layers : EvenSplit(kLayers, Stages(replicas))) {
        ASSERT_GT(GradientBucketsOfLayers(job.model, layers).size(), 1u);
      }
      ExpectEqual(spec, replicas, /*delay_seed=*/replicas.size());
    }
  }
}

// Both stages of a worker have several, whose messages share the edges.
TEST_F(ReplicasRun, SeveralBucketsAndStagesOnAWorker_IsTheSerialReference) {
  for (const char* method : {"looped-bfs", "zb-v"}) {
    v1::JobSpec spec = WideJobOf(method, {2, 2});
    spec.mutable_training()->set_microbatches(2 * spec.training().microbatches());
    spec.mutable_training()->set_batch(2 * spec.training().microbatches());
    spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
    ExpectEqual(spec, {2, 2}, /*delay_seed=*/1);
  }
}

// The first bucket leaves before the last W ends, whatever the timing.
TEST_F(ReplicasRun, TimelineOfSeveralBuckets_ShowsThemBesideTheLastW) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Trained cluster,
      TrainCluster({.spec = WideJobOf("1f1b", {2}), .layers = EvenSplit(kLayers, 1)}, files_));
  int seen = 0;
  for (const Span& reduction : cluster.timeline.spans) {
    if (reduction.lane != Lane::kTransfer) continue;
    EXPECT_EQ(reduction.action.kind, ActionKind::kReduce);
    for (const Span& span : cluster.timeline.spans) {
      if (span.worker != reduction.worker || span.action.kind != ActionKind::kBackwardWeight) {
        continue;
      }
      seen += span.start_ns <= reduction.start_ns && reduction.start_ns < span.end_ns;
    }
    EXPECT_GT(reduction.end_ns, reduction.start_ns);
  }
  EXPECT_EQ(seen, 4) << "two steps on two workers";
}

// Their replicas are whole pipelines: both ends of a V are on one worker, and hold the tied weight.
TEST_F(ReplicasRun, SeveralStagesOnAWorker_IsTheSerialReference) {
  for (const char* method : {"interleaved-1f1b", "looped-bfs", "zb-v", "dualpipe-v"}) {
    for (const Replicas& replicas : {Replicas{2, 2}, {3, 3}, {2, 2, 2, 2}}) {
      v1::JobSpec spec = JobOf(method, replicas);
      const int64_t microbatches = 2 * spec.training().microbatches();
      spec.mutable_training()->set_microbatches(microbatches);
      spec.mutable_training()->set_batch(2 * microbatches);
      ExpectEqual(spec, replicas, /*delay_seed=*/1);
      spec.mutable_model()->mutable_gpt()->set_tied_head(true);
      spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
      ExpectEqual(spec, replicas, /*delay_seed=*/2);
      spec.mutable_training()->mutable_clip()->set_layer_norm(0.05);
      spec.mutable_pipeline()->set_recompute("all");
      ExpectEqual(spec, replicas);
    }
  }
}

// The order of 1f1b on two stages with 2 and 1 replicas, written down.
TEST_F(ReplicasRun, ScheduleFileWithReplicas_IsTheSerialReferenceAndTrainsLike1F1B) {
  const Replicas replicas = {2, 1};
  v1::JobSpec spec = JobOf("1f1b", replicas);
  const std::vector<LayerRange> layers = EvenSplit(kLayers, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained by_method,
                                TrainCluster({.spec = spec, .layers = layers}, files_));
  ASSERT_EQ(spec.training().microbatches(), 4);
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.clear_replicas();
  pipeline.set_method(std::string(ListedMethod().name));
  pipeline.set_schedule_file("step.txt");
  pipeline.set_schedule(
      "# penstock schedule 1 range=0+4 stages=0,1,2 replicas=2,1 group=gradient:sum:0,1\n"
      "0F0,0F2,0B0,0B2\n1F1,1B1,1F3,1B3\n2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
  ExpectEqual(spec, replicas, /*delay_seed=*/1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained listed,
                                TrainCluster({.spec = spec, .layers = layers}, files_));
  EXPECT_EQ(listed.weights_sha256, by_method.weights_sha256);
}

// Orders for random times of every replica: other orders than the method of the same placement has, and its weights.
TEST_F(ReplicasRun, SearchedOrder_IsTheSerialReferenceAndTrainsLikeAMethod) {
  struct Case {
    const char* method;
    Replicas replicas;
    int32_t stages_per_worker = 1;
  };
  RandomStream random(1, 0);
  for (const auto& [method, replicas, stages_per_worker] : {Case{"1f1b", {2, 2}},
                                                            {"1f1b", {4}},
                                                            {"1f1b", {3, 1}},
                                                            {"1f1b", {1, 4}},
                                                            {"1f1b", {2, 3}},
                                                            {"1f1b", {2, 1, 2}},
                                                            {"1f1b", {4, 2, 1}},
                                                            {"looped-bfs", {1, 1, 1, 1}, 2},
                                                            {"looped-bfs", {2, 2, 2, 2}, 2},
                                                            {"looped-bfs", {1, 1, 1}, 3},
                                                            {"zb-v", {2, 2, 2, 2}, 2}}) {
    v1::JobSpec spec = JobOf(method, replicas);
    if (stages_per_worker > 1) {
      spec.mutable_pipeline()->set_stages_per_worker(stages_per_worker);
      spec.mutable_training()->set_microbatches(2 * spec.training().microbatches());
      spec.mutable_training()->set_batch(2 * spec.training().microbatches());
    }
    const std::vector<LayerRange> layers = EvenSplit(kLayers, Stages(replicas));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained by_method,
                                  TrainCluster({.spec = spec, .layers = layers}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Topology topology,
        PlaceReplicas(**FindMethod(absl::string_view(method)), replicas, stages_per_worker));
    SearchOptions options{.moves = 500};
    for (int32_t stage = 0; stage < topology.stages(); ++stage) {
      options.costs.stages.push_back({random.Uniform(), random.Uniform(), random.Uniform(), 0});
    }
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const SearchResult found,
        SearchSchedule(topology, spec.training().microbatches(), options));
    spec.mutable_pipeline()->set_method("searched");
    spec.mutable_pipeline()->set_schedule(PrintSchedule(found.schedule));
    ExpectEqual(spec, replicas, /*delay_seed=*/replicas.size());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained searched,
                                  TrainCluster({.spec = spec, .layers = layers}, files_));
    EXPECT_EQ(searched.weights_sha256, by_method.weights_sha256);
    spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
    spec.mutable_pipeline()->set_recompute("all");
    spec.mutable_pipeline()->clear_replicas();  // the order says these, too
    spec.mutable_pipeline()->clear_stages_per_worker();
    ExpectEqual(spec, replicas, /*delay_seed=*/1);
  }
}

TEST_F(ReplicasRun, AnyWeights_IsTheSerialReference) {
  for (const char* name : {"pipedream", "nesterov", "paci"}) {
    const Method& method = **FindMethod(absl::string_view(name));
    for (const Weights* weights : kAllWeights) {
      if (!CheckWeights(method, *weights).ok() || weights->fills_pipeline) continue;
      SCOPED_TRACE(weights->name);
      for (const Replicas& replicas : {Replicas{2, 2}, {3, 1}, {1, 3}, {2, 3}, {1, 2, 1}}) {
        v1::JobSpec spec = JobOf(name, replicas);
        spec.mutable_pipeline()->set_weights(std::string(weights->name));
        ExpectEqual(spec, replicas, /*delay_seed=*/1);
        if (replicas.size() != 3) continue;
        spec.mutable_pipeline()->set_recompute("all");
        ExpectEqual(spec, replicas);
      }
    }
  }
}

TEST_F(ReplicasRun, StepsThatDrainFirst_IsTheSerialReference) {
  for (const char* method : {"pipedream", "nesterov-no-stash", "spectrain", "paci", "xpipe"}) {
    for (const Replicas& replicas : {Replicas{2, 2}, {4}, {3, 1}, {2, 3}, {2, 1, 3}}) {
      for (const int64_t steps : {1, 3}) {
        v1::JobSpec spec = JobOf(method, replicas);
        spec.mutable_pipeline()->set_synchronous_steps(steps);
        ExpectEqual(spec, replicas, /*delay_seed=*/2);
        spec.mutable_training()->mutable_staleness()->set_rescheduled_steps(2);
        ExpectEqual(spec, replicas);
      }
    }
  }
}

// They take no other steps than 1f1b does.
TEST_F(ReplicasRun, StepsThatDrainFirst_AreThoseOf1F1B) {
  v1::JobSpec spec = JobOf("pipedream", {2, 3});
  spec.mutable_pipeline()->set_synchronous_steps(4);
  const std::vector<LayerRange> layers = EvenSplit(kLayers, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained begun,
                                TrainCluster({.spec = spec, .layers = layers}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Trained synchronous,
      TrainCluster({.spec = JobOf("1f1b", {2, 3}), .layers = layers}, files_));
  EXPECT_EQ(begun.weights_sha256, synchronous.weights_sha256);
}

TEST_F(ReplicasRun, UnderRandomDelays_IsTheSerialReference) {
  for (const char* method : {"1f1b", "pipedream", "paci"}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      ExpectEqual(JobOf(method, {3, 1}), {3, 1}, seed);
      ExpectEqual(JobOf(method, {2, 3}), {2, 3}, seed);
    }
  }
}

// Both ends hold the tied weight, each with replicas of its own number; the norm of a replicated stage
// counts once.
TEST_F(ReplicasRun, TiedWeightsAndClipping_IsTheSerialReference) {
  for (const Replicas& replicas : {Replicas{3}, {2, 2}, {3, 1}, {1, 3}, {2, 3}, {3, 1, 2}}) {
    v1::JobSpec spec = JobOf("1f1b", replicas);
    spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
    ExpectEqual(spec, replicas, /*delay_seed=*/1);
    spec.mutable_training()->mutable_clip()->set_layer_norm(0.05);
    ExpectEqual(spec, replicas);
  }
}

TEST_F(ReplicasRun, RulesAboutLateGradients_IsTheSerialReference) {
  for (const StalenessCase& rule : StalenessCases()) {
    for (const Replicas& replicas : {Replicas{2, 1}, {2, 3}}) {
      SCOPED_TRACE(rule.name);
      v1::JobSpec spec = JobOf(rule.method, replicas);
      rule.apply(spec);
      spec.mutable_training()->mutable_clip()->set_layer_norm(0.2);
      ExpectEqual(spec, replicas);
      if (std::string(rule.method) != "pipedream" || spec.pipeline().synchronous_steps() > 0) {
        continue;
      }
      spec.mutable_pipeline()->set_weights("vertical-sync");
      ExpectEqual(spec, replicas);
    }
  }
}

TEST_F(ReplicasRun, RecomputeAndLowPrecision_IsTheSerialReference) {
  for (const char* method : {"1f1b", "pipedream", "paci", "pipedream-2bw", "spectrain"}) {
    v1::JobSpec spec = JobOf(method, {2, 1});
    spec.mutable_pipeline()->set_recompute("all");
    spec.mutable_training()->set_precision("bf16");
    spec.mutable_training()->set_rounding("stochastic");
    ExpectEqual(spec, {2, 1});
  }
}

// The same step but for the order of additions: losses agree to many digits, and those of the first step, before
// any update, to all.
TEST_F(ReplicasRun, Synchronous_TrainsAsWithoutReplicas) {
  v1::JobSpec spec = JobOf("1f1b", {2, 3});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained replicated,
                                TrainSerially(spec, EvenSplit(kLayers, 2), {}, files_));
  spec.mutable_pipeline()->clear_replicas();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained plain,
                                TrainSerially(spec, EvenSplit(kLayers, 2), {}, files_));
  ASSERT_EQ(replicated.steps.size(), plain.steps.size());
  EXPECT_EQ(replicated.steps[0].loss, plain.steps[0].loss);
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_NEAR(replicated.steps[i].loss, plain.steps[i].loss, 1e-4);
  }
}

TEST_F(ReplicasRun, OneOfEachStage_IsTheJobWithoutReplicas) {
  for (const char* method : kMethods) {
    v1::JobSpec spec = JobOf(method, {1, 1, 1});
    const std::vector<LayerRange> layers = EvenSplit(kLayers, 3);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained ones,
                                  TrainCluster({.spec = spec, .layers = layers}, files_));
    spec.mutable_pipeline()->clear_replicas();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained plain, TrainSerially(spec, layers, {}, files_));
    ExpectSameTraining(ones, plain);
  }
}

// The four that know which versions are read; of replicas the reference counts the sum.
TEST_F(ReplicasRun, VerifierSimulatorReferenceAndCluster_CountTheSameVersions) {
  for (const char* method : kMethods) {
    for (const Replicas& replicas : {Replicas{3, 1}, {2, 3}, {1, 4}, {2, 1, 2}}) {
      SCOPED_TRACE(absl::StrCat(method, " ", absl::StrJoin(replicas, ",")));
      v1::JobSpec spec = JobOf(method, replicas);
      const std::vector<LayerRange> layers = EvenSplit(kLayers, Stages(replicas));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const RunPlan plan,
                                    MakeRunPlan(MakeRequest(spec, layers, 0), RunLimits()));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                    TrainCluster({.spec = spec, .layers = layers}, files_));
      const Topology& topology = plan.topology();
      std::vector<StageCounts> simulated(plan.counts.size());
      for (const int64_t from : {0, 2}) {
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                      ScheduleOfSteps(plan.job, plan.schedule, from, from + 2));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(schedule, {}));
        for (size_t s = 0; s < simulated.size(); ++s) AddRange(result.stages[s], simulated[s]);
      }
      std::vector<ReferenceResult::StageReads> reads(replicas.size());
      ASSERT_EQ(cluster.reports.size(), plan.counts.size());
      for (size_t s = 0; s < plan.counts.size(); ++s) {
        const StageCounts& counts = plan.counts[s];
        EXPECT_EQ(simulated[s].staleness, counts.staleness);
        EXPECT_EQ(simulated[s].version_drift, counts.version_drift);
        const v1::StageReport& report = cluster.reports[s];
        EXPECT_EQ(report.staleness().max(), counts.staleness.max);
        EXPECT_EQ(report.staleness().mean(), counts.staleness.mean());
        EXPECT_EQ(report.version_drift().mean(), counts.version_drift.mean());
        EXPECT_EQ(report.updates(), counts.staleness.updates);
        EXPECT_EQ(report.versions_peak(), counts.versions_peak);
        EXPECT_EQ(report.activations_peak(), counts.activations_peak);
        const auto add = [](const StalenessCount& own, StalenessCount& all) {
          all.updates = own.updates;  // all replicas make the same
          all.max = std::max(all.max, own.max);
          all.sum += own.sum;
          all.microbatches += own.microbatches;
        };
        ReferenceResult::StageReads& all = reads[topology[StageId(static_cast<int32_t>(s))].place];
        add(counts.staleness, all.staleness);
        add(counts.version_drift, all.version_drift);
      }
      ASSERT_EQ(serial.reads.size(), reads.size());
      for (size_t place = 0; place < reads.size(); ++place) {
        EXPECT_EQ(serial.reads[place].staleness, reads[place].staleness);
        EXPECT_EQ(serial.reads[place].version_drift, reads[place].version_drift);
      }
    }
  }
}

// A replica of r sends (r - 1) / r of the gradients twice for every update, as little as can be.
TEST_F(ReplicasRun, Reduction_SendsAsFewBytesAsCanBe) {
  for (const int32_t replicas : {2, 3, 5}) {
    v1::JobSpec spec = JobOf("pipedream", {replicas});
    spec.mutable_validation()->set_every_steps(0);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 1)}, files_));
    for (const v1::StageReport& report : cluster.reports) {
      const auto gradients = static_cast<double>(report.memory().gradients());
      const double per_update = 2.0 * (replicas - 1) / replicas * gradients;
      const auto updates = static_cast<double>(report.updates());
      // The parts are whole registers; losses are a few bytes more.
      EXPECT_NEAR(static_cast<double>(report.bytes_sent()), updates * per_update,
                  updates * replicas * 2 * 128.0);
    }
  }
}

// Blocks for peers that are behind, as many as there can be and no more.
TEST_F(ReplicasRun, ManySteps_TakeNoMoreThanAFewBlocksAfterTheFirst) {
  for (const char* method : {"1f1b", "pipedream", "paci"}) {
    for (const Replicas& replicas : {Replicas{3, 1}, {2, 3}}) {
      v1::JobSpec spec = JobOf(method, replicas);
      spec.mutable_training()->set_steps(50);
      spec.mutable_validation()->set_every_steps(0);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained cluster,
          TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, Stages(replicas))}, files_));
      for (const v1::StageReport& report : cluster.reports) {
        EXPECT_LE(report.allocations_steady(), 8) << method << " stage " << report.stage();
      }
    }
  }
}

TEST(ReplicaChunk, Parts_AreAllOfTheGradientsOnce_InWholeRegisters) {
  for (const int64_t count : {0, 1, 15, 16, 17, 100, 4096, 12345}) {
    for (const int64_t replicas : {1, 2, 3, 7, 64}) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < replicas; ++rank) {
        const ReplicaChunk chunk = ReplicaChunkOf(count, replicas, rank);
        EXPECT_EQ(chunk.first, next);
        EXPECT_GE(chunk.count, 0);
        EXPECT_TRUE(chunk.first % 16 == 0 || chunk.first == count);
        EXPECT_LE(chunk.count, (count + replicas - 1) / replicas + 16);
        next += chunk.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

class ReplicasResume : public ReplicasRun {
 protected:
  static constexpr int64_t kSavedStep = 2;

  // Trains to the end and commits the checkpoint of kSavedStep.
  absl::StatusOr<std::string> Save(const v1::JobSpec& spec, int stages, std::string& weights) {
    TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, stages)}, files_);
    if (!cluster.prepared().ok()) return cluster.prepared();
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) {
      if (!status.ok()) return status;
    }
    weights = cluster.WeightsSha256();
    return cluster.CommitCheckpoint(kSavedStep);
  }

  absl::StatusOr<Trained> Continue(const v1::JobSpec& spec, int stages,
                                   const std::string& directory) {
    return TrainCluster({.spec = spec,
                         .layers = EvenSplit(kLayers, stages),
                         .first_step = kSavedStep,
                         .checkpoint = directory},
                        files_);
  }

  static v1::JobSpec SavingJobOf(const std::string& method, const Replicas& replicas) {
    v1::JobSpec spec = JobOf(method, replicas);
    if (!(*FindMethod(absl::string_view(method)))->weights->fills_pipeline) {
      spec.mutable_training()->set_microbatches(6);
      spec.mutable_training()->set_batch(12);
    }
    spec.mutable_checkpoint()->set_every_steps(kSavedStep);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    return spec;
  }
};

// One replica of each stage writes. The stages of pipedream have made other numbers of updates, which the
// checkpoint tells by layer.
TEST_F(ReplicasResume, WithTheSameNumbers_EqualsTheUninterruptedRun) {
  for (const char* method : kMethods) {
    for (const Replicas& replicas : {Replicas{3, 1}, {2, 3}, {6}}) {
      SCOPED_TRACE(absl::StrCat(method, " ", absl::StrJoin(replicas, ",")));
      const v1::JobSpec spec = SavingJobOf(method, replicas);
      std::string weights;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory,
                                    Save(spec, Stages(replicas), weights));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Manifest manifest, VerifyCheckpoint(files_, directory));
      EXPECT_EQ(manifest.files.size(), 2u * kLayers);
      const bool by_replica = UpdatesByRound(spec.pipeline().method());
      const int64_t microbatches = kSavedStep * spec.training().microbatches();
      const int64_t first = by_replica ? microbatches / replicas.front() : kSavedStep;
      const int64_t last = by_replica ? microbatches / replicas.back() : kSavedStep;
      EXPECT_EQ(manifest.UpdatesOf(0), first);
      EXPECT_EQ(manifest.UpdatesOf(kLayers - 1), last);
      EXPECT_EQ(manifest.layer_updates.empty(), first == last);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                    Continue(spec, Stages(replicas), directory));
      EXPECT_EQ(resumed.weights_sha256, weights);
      ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    }
  }
}

// The arithmetic of the rest is that of the new numbers.
TEST_F(ReplicasResume, WithOtherNumbersStagesOrMethods_GoesOn) {
  for (const char* method : {"1f1b", "pipedream", "paci"}) {
    std::string weights;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory,
                                  Save(SavingJobOf(method, {3, 1}), 2, weights));
    for (const char* other : {"1f1b", "pipedream", "paci"}) {
      for (const Replicas& replicas : {Replicas{1, 2}, {2}, {1, 1}, {1, 2, 3}}) {
        SCOPED_TRACE(absl::StrCat(method, " to ", other, " ", absl::StrJoin(replicas, ",")));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed, Continue(SavingJobOf(other, replicas),
                                                                      Stages(replicas), directory));
        ASSERT_EQ(resumed.steps.size(), 2u);
        for (const StepResult& step : resumed.steps) EXPECT_TRUE(std::isfinite(step.loss));
      }
    }
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(ReplicasResume, DrainedAtAnyStep_ThenResumed_EqualsTheReferenceWithTheSameCuts) {
  for (const char* method : {"1f1b", "pipedream", "paci", "spectrain"}) {
    for (const Replicas& replicas : {Replicas{3, 1}, {2, 3}}) {
      v1::JobSpec spec = SavingJobOf(method, replicas);
      spec.mutable_training()->set_steps(40);
      spec.mutable_checkpoint()->set_every_steps(0);
      spec.mutable_validation()->set_every_steps(0);
      const std::vector<LayerRange> layers = EvenSplit(kLayers, Stages(replicas));
      TestCluster cluster({.spec = spec, .layers = layers, .delay_seed = 5}, files_);
      ASSERT_THAT(cluster.prepared(), IsOk());
      cluster.Start();
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t step, cluster.Drain());
      for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
      if (step == 0 || step == 40) continue;  // it was too early or too late to be one
      SCOPED_TRACE(absl::StrCat(method, " ", absl::StrJoin(replicas, ","), " after ", step));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(step));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed, TrainCluster({.spec = spec,
                                                                         .layers = layers,
                                                                         .first_step = step,
                                                                         .checkpoint = directory,
                                                                         .extra_cuts = {step}},
                                                                        files_));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                    TrainSerially(spec, layers, {step}, files_));
      EXPECT_EQ(resumed.weights_sha256, serial.weights_sha256);
      ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    }
  }
}

}  // namespace
}  // namespace penstock
