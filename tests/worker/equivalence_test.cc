// The cluster against the serial reference, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compute/backend.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "schedule/block_draws.h"
#include "schedule/catalog/catalog.h"
#include "schedule/pipelining_csv.h"
#include "schedule/search.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/reference.h"
#include "worker/run_plan.h"

namespace penstock {
namespace {

class Equivalence : public ::testing::Test {
 protected:
  Equivalence() { AddTestText(files_); }

  void ExpectEqual(const v1::JobSpec& spec, const std::vector<LayerRange>& layers,
                   uint64_t delay_seed = 0) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained serial, TrainSerially(spec, layers, {}, files_));
    ExpectClusterEquals(spec, layers, serial, delay_seed);
  }

  void ExpectClusterEquals(const v1::JobSpec& spec, const std::vector<LayerRange>& layers,
                           const Trained& serial, uint64_t delay_seed = 0) {
    std::string split;
    for (const LayerRange& range : layers) absl::StrAppend(&split, range.count, " ");
    SCOPED_TRACE(
        absl::StrCat(spec.pipeline().method(), ", layers ", split, ", delays ", delay_seed));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        Trained cluster,
        TrainCluster({.spec = spec, .layers = layers, .delay_seed = delay_seed}, files_));
    ExpectSameTraining(cluster, serial);
  }

  // Every partition of the model into up to 4 stages gives the bits of the serial reference.
  void ExpectEveryPartitionEqual(const v1::JobSpec& spec) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained serial,
                                  TrainSerially(spec, EvenSplit(kLayers, 1), {}, files_));
    for (int stages = 1; stages <= 4; ++stages) {
      for (const auto& layers : AllSplits(kLayers, stages)) {
        ExpectClusterEquals(spec, layers, serial);
      }
    }
  }

  MemoryFiles files_;
};

void SetTied(v1::JobSpec& spec) { spec.mutable_model()->mutable_gpt()->set_tied_head(true); }
void SetGlobalClip(v1::JobSpec& spec, double norm) {
  spec.mutable_training()->mutable_clip()->set_global_norm(norm);
}
void SetLayerClip(v1::JobSpec& spec, double norm) {
  spec.mutable_training()->mutable_clip()->set_layer_norm(norm);
}
// PACI with 8 microbatches in a step, of which `update_every` make an update.
v1::JobSpec UpdatingWithinSteps(int32_t update_every) {
  v1::JobSpec spec = SmallJob("paci");
  spec.mutable_training()->set_microbatches(8);
  spec.mutable_training()->set_batch(16);
  spec.mutable_pipeline()->set_update_every(update_every);
  return spec;
}
void SetDropout(v1::JobSpec& spec) { spec.mutable_model()->mutable_gpt()->set_dropout(0.2); }

TEST_F(Equivalence, OneFOneB_EveryPartitionIntoOneToFour) {
  ExpectEveryPartitionEqual(SmallJob("1f1b"));
}

TEST_F(Equivalence, Gpipe_EveryPartitionIntoOneToFour) {
  ExpectEveryPartitionEqual(SmallJob("gpipe"));
}

TEST_F(Equivalence, OneFOneB_TiedWithGlobalClippingAndDropout_EveryPartition) {
  v1::JobSpec spec = SmallJob("1f1b");
  SetTied(spec);
  SetGlobalClip(spec, 0.5);
  SetDropout(spec);
  ExpectEveryPartitionEqual(spec);
}

TEST_F(Equivalence, OneFOneB_TiedWithLayerClipping) {
  v1::JobSpec spec = SmallJob("1f1b");
  SetTied(spec);
  SetLayerClip(spec, 0.05);
  for (int stages = 1; stages <= 4; ++stages) ExpectEqual(spec, EvenSplit(kLayers, stages));
}

TEST_F(Equivalence, OneFOneB_ClippingOfAllKindsChangesTheResult) {
  v1::JobSpec none = SmallJob("1f1b");
  v1::JobSpec global = none;
  SetGlobalClip(global, 0.05);
  v1::JobSpec layer = none;
  SetLayerClip(layer, 0.01);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(none, EvenSplit(7, 1), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b, TrainSerially(global, EvenSplit(7, 1), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained c, TrainSerially(layer, EvenSplit(7, 1), {}, files_));
  EXPECT_NE(a.weights_sha256, b.weights_sha256);
  EXPECT_NE(b.weights_sha256, c.weights_sha256);
  EXPECT_GT(b.steps[0].gradient_norm, 0.05);
  EXPECT_EQ(a.steps[0].gradient_norm, 0.0);
}

TEST_F(Equivalence, OneFOneB_SgdWithMomentum) {
  v1::JobSpec spec = SmallJob("1f1b");
  v1::SgdSpec& sgd = *spec.mutable_training()->mutable_optimizer()->mutable_sgd();
  sgd.set_learning_rate(0.1);
  sgd.set_momentum(0.9);
  sgd.set_weight_decay(0.01);
  for (int stages = 1; stages <= 4; ++stages) ExpectEqual(spec, EvenSplit(kLayers, stages));
}

TEST_F(Equivalence, OneFOneB_FewerMicrobatchesThanStages) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_batch(2);
  spec.mutable_training()->set_microbatches(2);
  ExpectEqual(spec, EvenSplit(kLayers, 4));
}

TEST_F(Equivalence, OneFOneB_UnderRandomDelays) {
  v1::JobSpec spec = SmallJob("1f1b");
  SetTied(spec);
  SetGlobalClip(spec, 0.5);
  for (uint64_t seed = 1; seed <= 4; ++seed) ExpectEqual(spec, EvenSplit(kLayers, 4), seed);
}

TEST_F(Equivalence, PipeDream_OneToFourStages) {
  const v1::JobSpec spec = SmallJob("pipedream");
  for (int stages = 1; stages <= 4; ++stages) ExpectEqual(spec, EvenSplit(kLayers, stages));
}

TEST_F(Equivalence, PipeDream_UnderRandomDelays) {
  v1::JobSpec spec = SmallJob("pipedream");
  SetDropout(spec);
  for (int stages = 2; stages <= 4; ++stages) {
    for (uint64_t seed = 1; seed <= 4; ++seed) ExpectEqual(spec, EvenSplit(kLayers, stages), seed);
  }
}

TEST_F(Equivalence, PipeDream_LayerClippingAndCuts) {
  v1::JobSpec spec = SmallJob("pipedream");
  SetLayerClip(spec, 0.05);
  spec.mutable_training()->set_steps(5);
  spec.mutable_validation()->set_every_steps(2);
  spec.mutable_validation()->set_batches(1);
  for (int stages = 1; stages <= 4; ++stages) {
    ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/stages);
  }
}

TEST_F(Equivalence, PipeDream_RangeShorterThanThePipeline) {
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->set_batch(2);
  spec.mutable_training()->set_microbatches(2);
  spec.mutable_training()->set_steps(2);
  spec.mutable_validation()->set_every_steps(1);
  spec.mutable_validation()->set_batches(1);
  ExpectEqual(spec, EvenSplit(kLayers, 5));
}

TEST_F(Equivalence, PipeDream_PartitionMatters) {
  // The method is not synchronous: another partition reads other versions.
  const v1::JobSpec spec = SmallJob("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained two, TrainSerially(spec, SplitInto({3, 4}), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained other, TrainSerially(spec, SplitInto({4, 3}), {}, files_));
  EXPECT_NE(two.weights_sha256, other.weights_sha256);
}

TEST_F(Equivalence, PipeDream_CutsMatter) {
  const v1::JobSpec spec = SmallJob("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained whole, TrainSerially(spec, SplitInto({3, 4}), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained cut, TrainSerially(spec, SplitInto({3, 4}), {1}, files_));
  EXPECT_NE(whole.weights_sha256, cut.weights_sha256);
}

TEST_F(Equivalence, PipeDream_OneStageOneMicrobatch_IsPlainMinibatchTraining) {
  // With nothing in flight and one update a step both methods are the same; their references share
  // no rule for versions.
  v1::JobSpec continuous = SmallJob("pipedream");
  continuous.mutable_training()->set_microbatches(1);
  v1::JobSpec synchronous = continuous;
  synchronous.mutable_pipeline()->set_method("1f1b");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(continuous, EvenSplit(7, 1), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b, TrainSerially(synchronous, EvenSplit(7, 1), {}, files_));
  ExpectSameTraining(a, b);
}

TEST_F(Equivalence, Validation_AtEveryCut_IsThatOfTheReference) {
  v1::JobSpec spec = SmallJob("gpipe");
  SetTied(spec);
  spec.mutable_training()->set_steps(5);
  spec.mutable_validation()->set_every_steps(2);
  spec.mutable_validation()->set_batches(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained serial, TrainSerially(spec, EvenSplit(7, 1), {}, files_));
  ASSERT_EQ(serial.validations.size(), 3u);  // after 2, 4 and 5
  for (int stages = 1; stages <= 4; ++stages) {
    ExpectClusterEquals(spec, EvenSplit(kLayers, stages), serial, /*delay_seed=*/stages);
  }
}

// With cuts and without, tied and untied weights, all norms: the bits of plain minibatch training for methods
// that drain at every step, of the versions in closed form for the others.
TEST_F(Equivalence, EveryMethod_IsTheSerialReference) {
  for (const Method& method : Methods()) {
    const int per_worker = StagesPerWorkerMin(method.placement);
    for (const int workers : {1, 2, 3}) {
      for (const bool cuts : {false, true}) {
        const int stages = workers * per_worker;
        v1::JobSpec spec = SmallJob(std::string(method.name));
        v1::TrainingSpec& training = *spec.mutable_training();
        training.set_microbatches(method.steps_in_rounds ? 2 * workers : 4);
        training.set_batch(2 * training.microbatches());
        training.set_steps(7);
        if (cuts) {
          spec.mutable_validation()->set_every_steps(3);
          spec.mutable_validation()->set_batches(1);
        }
        if (method.synchronous) SetTied(spec);
        if (method.synchronous && !method.updates_each_microbatch) {
          SetGlobalClip(spec, 0.5);
        } else {
          SetLayerClip(spec, 0.2);
        }
        ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/stages);
      }
    }
  }
}

// Gradients of K rounds of as many microbatches as fill the pipeline are accumulated as microbatches one after the other are.
TEST_F(Equivalence, MicrobatchesOfSeveralRounds_AreOneSumInOrder) {
  for (const char* const name : {"1f1b", "zb-h1", "interleaved-1f1b"}) {
    const Method& method = **FindMethod(name);
    const int workers = 2;
    const int stages = workers * StagesPerWorkerMin(method.placement);
    for (const int rounds : {1, 2, 4}) {
      v1::JobSpec spec = SmallJob(name);
      spec.mutable_training()->set_microbatches(rounds * workers);
      spec.mutable_training()->set_batch(2 * rounds * workers);
      spec.mutable_training()->set_steps(3);
      SCOPED_TRACE(absl::StrCat(name, ", ", rounds, " rounds"));
      ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/rounds);
    }
  }
}

// Stages that the workers divide and others, one place of the rounds and several, that come again
// in a step and do not, and a step of fewer microbatches than workers.
TEST_F(Equivalence, RoundPipe_OnAnyNumberOfWorkers_IsTheSerialReference) {
  struct Case {
    int stages, workers, microbatches;
  };
  for (const Case& size :
       {Case{1, 1, 3}, Case{3, 1, 2}, Case{2, 2, 4}, Case{2, 3, 9}, Case{3, 2, 8}, Case{3, 4, 4},
        Case{3, 5, 10}, Case{4, 3, 6}, Case{4, 3, 15}, Case{6, 4, 8}, Case{6, 4, 20}, Case{7, 4, 3},
        Case{4, 6, 12}}) {
    v1::JobSpec spec = SmallJob("roundpipe");
    spec.mutable_pipeline()->set_stages(size.stages);
    spec.mutable_pipeline()->set_workers(size.workers);
    spec.mutable_training()->set_microbatches(size.microbatches);
    spec.mutable_training()->set_batch(size.microbatches);
    spec.mutable_training()->set_steps(4);
    spec.mutable_validation()->set_every_steps(3);
    spec.mutable_validation()->set_batches(1);
    SetDropout(spec);
    SCOPED_TRACE(absl::StrCat(size.stages, " stages, ", size.workers, " workers, ",
                              size.microbatches, " microbatches"));
    ExpectEqual(spec, EvenSplit(kLayers, size.stages), /*delay_seed=*/size.stages + size.workers);
    SetTied(spec);
    SetGlobalClip(spec, 0.5);
    ExpectEqual(spec, EvenSplit(kLayers, size.stages));
    SetLayerClip(spec, 0.2);
    ExpectEqual(spec, EvenSplit(kLayers, size.stages));
  }
}

v1::JobSpec LocalSgdJob(int replicas, int local_steps) {
  v1::JobSpec spec = SmallJob("local-sgd");
  spec.mutable_training()->set_microbatches(replicas * local_steps);
  spec.mutable_training()->set_batch(2 * replicas * local_steps);
  spec.mutable_pipeline()->add_replicas(replicas);
  return spec;
}

TEST_F(Equivalence, LocalSgd_EveryPartitionIntoOneToFour) {
  ExpectEveryPartitionEqual(LocalSgdJob(/*replicas=*/3, /*local_steps=*/2));
}

TEST_F(Equivalence, LocalSgd_TiedWithLayerClippingAndDropout_AnyReplicasUnderDelays) {
  for (const auto& [replicas, local_steps] : {std::pair(1, 3), {2, 3}, {4, 1}, {5, 2}}) {
    v1::JobSpec spec = LocalSgdJob(replicas, local_steps);
    SetTied(spec);
    SetLayerClip(spec, 0.2);
    SetDropout(spec);
    spec.mutable_training()->set_steps(5);
    spec.mutable_validation()->set_every_steps(2);
    spec.mutable_validation()->set_batches(1);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained serial, TrainSerially(spec, EvenSplit(7, 1), {}, files_));
    for (int stages = 1; stages <= 5; ++stages) {
      ExpectClusterEquals(spec, EvenSplit(kLayers, stages), serial, /*delay_seed=*/stages);
    }
  }
}

// Each replica's norm is its own.
TEST_F(Equivalence, LocalSgd_GlobalClipping_AnyReplicasUnderDelays) {
  for (const auto& [replicas, local_steps] : {std::pair(1, 3), {2, 3}, {4, 1}, {6, 2}}) {
    for (const bool tied : {false, true}) {
      v1::JobSpec spec = LocalSgdJob(replicas, local_steps);
      if (tied) SetTied(spec);
      SetGlobalClip(spec, 0.3);
      SetDropout(spec);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained serial,
                                    TrainSerially(spec, EvenSplit(7, 1), {}, files_));
      for (int stages = 1; stages <= 5; ++stages) {
        ExpectClusterEquals(spec, EvenSplit(kLayers, stages), serial, /*delay_seed=*/stages);
      }
    }
  }
}

TEST_F(Equivalence, LocalSgd_OtherOptimizersAndPrecisions) {
  v1::JobSpec momentum = LocalSgdJob(/*replicas=*/2, /*local_steps=*/3);
  v1::SgdSpec& sgd = *momentum.mutable_training()->mutable_optimizer()->mutable_sgd();
  sgd.set_learning_rate(0.1);
  sgd.set_momentum(0.9);
  sgd.set_weight_decay(0.01);
  v1::JobSpec rounded = LocalSgdJob(/*replicas=*/3, /*local_steps=*/2);
  rounded.mutable_training()->set_precision("bf16");
  rounded.mutable_training()->set_rounding("stochastic");
  for (const v1::JobSpec& spec : {momentum, rounded}) {
    for (const int stages : {1, 3}) ExpectEqual(spec, EvenSplit(kLayers, stages), stages);
  }
}

TEST_F(Equivalence, LocalSgd_OneReplica_IsAnUpdateForEveryMicrobatch) {
  // One copy of the model that always reads its newest weights: PipeDream on a single stage.
  v1::JobSpec local = LocalSgdJob(/*replicas=*/1, /*local_steps=*/4);
  v1::JobSpec continuous = SmallJob("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(local, EvenSplit(7, 3), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b, TrainSerially(continuous, EvenSplit(7, 1), {}, files_));
  ExpectSameTraining(a, b);
}

TEST_F(Equivalence, LocalSgd_OneLocalStepOfSgd_IsTheStepOfTheMeanGradient) {
  // The mean of R weights after a step each is the weights after a step with the mean gradient.
  v1::JobSpec local = LocalSgdJob(/*replicas=*/4, /*local_steps=*/1);
  local.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  FillDefaults(local);
  local.mutable_training()->mutable_learning_rate()->set_warmup_steps(0);
  local.mutable_training()->mutable_learning_rate()->set_decay("constant");
  v1::JobSpec plain = local;
  plain.mutable_pipeline()->set_method("1f1b");
  plain.mutable_pipeline()->clear_replicas();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(local, EvenSplit(7, 2), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b, TrainSerially(plain, EvenSplit(7, 2), {}, files_));
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, 1e-5 * b.steps[i].loss);
  }
}

TEST_F(Equivalence, LocalSgd_ReplicasAndLocalStepsMatter) {
  std::set<std::string> weights;
  for (const int replicas : {1, 2, 3, 6}) {
    v1::JobSpec spec = LocalSgdJob(replicas, 6 / replicas);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(spec, EvenSplit(7, 1), {}, files_));
    weights.insert(a.weights_sha256);
  }
  EXPECT_EQ(weights.size(), 4u);
}

TEST_F(Equivalence, ThreeStagesOnEachWorker_AreTheSerialReference) {
  for (const char* method : {"interleaved-1f1b", "looped-bfs"}) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_pipeline()->set_stages_per_worker(3);
    ExpectEqual(spec, EvenSplit(kLayers, 6), /*delay_seed=*/6);
  }
}

// Files of PyTorch's pipelining, for sizes and orders of our own.
TEST_F(Equivalence, ScheduleFiles_AreTheSerialReference) {
  for (const char* text :
       {"0F0,0F1,0F2,0F3,,,0B0,0B1,0B2,0B3\n,1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n",
        // Zero bubble, by hand.
        "0F0,0F1,0F2,0I0,0F3,0I1,0W0,0I2,0W1,0I3,0W2,0W3\n"
        ",1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1F3,1I3,1W2,1W3\n",
        // Two stages on each worker, with its messages.
        "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,"
        "2RECV_B0,2I0,2W0,2SEND_B0,2RECV_B1,2B1,2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1,"
        "0F2,0SEND_F2,0F3,0SEND_F3,2RECV_F2,2F2,2SEND_F2,2RECV_F3,2F3,2SEND_F3,"
        "2RECV_B2,2B2,2SEND_B2,2RECV_B3,2B3,2SEND_B3,0RECV_B2,0B2,0RECV_B3,0B3\n"
        "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,3B1,"
        "3SEND_B1,1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1,"
        "1RECV_F2,1F2,1SEND_F2,1RECV_F3,1F3,1SEND_F3,3RECV_F2,3F2,3B2,3SEND_B2,3RECV_F3,3F3,3B3,"
        "3SEND_B3,1RECV_B2,1B2,1SEND_B2,1RECV_B3,1B3,1SEND_B3\n"}) {
    v1::JobSpec spec = SmallJob(std::string(ListedMethod().name));
    spec.mutable_pipeline()->set_schedule_file("step.csv");
    spec.mutable_pipeline()->set_schedule(text);
    SetTied(spec);
    SetGlobalClip(spec, 0.5);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
    ExpectEqual(spec, EvenSplit(kLayers, static_cast<int>(job.StagesOn(1))), /*delay_seed=*/3);
  }
}

// An order for stages that take unequal times is shorter than 1f1b for them, and trains as it does.
TEST_F(Equivalence, SearchedOrder_IsTheSerialReference) {
  const SimulationCosts costs = {.stages = {{1, 1.5, 0.5, 0}, {3, 2, 2.5, 0}, {0.5, 1, 2, 0}}};
  v1::JobSpec spec = SmallJob("searched");
  const Topology topology = StraightPipeline(3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SearchResult found,
      SearchSchedule(topology, spec.training().microbatches(), {.costs = costs, .moves = 2000}));
  const ScheduleOptions options{.topology = topology,
                                .microbatches_per_step = spec.training().microbatches()};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Schedule plain,
      BuildSchedule(**FindMethod("1f1b"), options, {0, spec.training().microbatches()}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult simulated, Simulate(plain, costs));
  EXPECT_LT(found.makespan_s, simulated.makespan_s);
  spec.mutable_pipeline()->set_schedule(PrintSchedule(found.schedule));
  SetTied(spec);
  SetGlobalClip(spec, 0.5);
  ExpectEqual(spec, EvenSplit(kLayers, 3), /*delay_seed=*/5);
}

// What `penstock schedule show METHOD -o FILE.csv` writes trains as the method does.
TEST_F(Equivalence, WrittenScheduleFiles_AreTheSerialReference) {
  int written = 0;
  for (const Method& method : Methods()) {
    v1::JobSpec of_method = SmallJob(std::string(method.name));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(of_method));
    const int64_t stages = job.StagesOn(2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Schedule schedule,
        BuildSchedule(method, ScheduleOptionsOf(job, TopologyOf(job, stages)),
                      {0, job.microbatches}));
    const absl::StatusOr<std::string> text = PrintPipeliningCsv(schedule);
    if (!text.ok()) continue;  // pipelining_csv_test says which
    v1::JobSpec spec = SmallJob(std::string(ListedMethod().name));
    spec.mutable_pipeline()->set_schedule_file("step.csv");
    spec.mutable_pipeline()->set_schedule(*text);
    ExpectEqual(spec, EvenSplit(kLayers, static_cast<int>(stages)), /*delay_seed=*/4);
    ++written;
  }
  EXPECT_GE(written, 8);
}

TEST_F(Equivalence, OtherWeightsThanTheMethods_AreTheSerialReference) {
  for (const char* method : {"pipedream", "paci", "pipedream-2bw"}) {
    for (const Weights* weights : kAllWeights) {
      v1::JobSpec spec = SmallJob(method);
      spec.mutable_training()->set_steps(6);
      spec.mutable_pipeline()->set_weights(std::string(weights->name));
      const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
      if (!job.ok()) continue;  // the method cannot: catalog_test says which
      for (const int stages : {2, 4}) {
        ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/stages);
      }
    }
  }
}

// Updates within a step, with all weights, replicas, cuts and a synchronous start.
TEST_F(Equivalence, PaciWithUpdatesWithinAStep_IsTheSerialReference) {
  int trained = 0;
  for (const int64_t update_every : {1, 2, 4}) {
    for (const Weights* weights : kAllWeights) {
      v1::JobSpec spec = UpdatingWithinSteps(static_cast<int32_t>(update_every));
      spec.mutable_training()->set_steps(5);
      spec.mutable_validation()->set_every_steps(2);
      spec.mutable_validation()->set_batches(1);
      spec.mutable_pipeline()->set_weights(std::string(weights->name));
      SetLayerClip(spec, 0.2);
      SetDropout(spec);
      const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
      if (!job.ok()) continue;  // the method cannot: catalog_test says which
      for (const int stages : {1, 2, 4}) {
        if (!CheckStages(*job, stages).ok()) continue;
        SCOPED_TRACE(absl::StrCat("weights ", std::string(weights->name), ", ", update_every));
        ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/stages);
        ++trained;
      }
    }
  }
  EXPECT_GT(trained, 40);
  v1::JobSpec start = UpdatingWithinSteps(2);
  start.mutable_training()->set_steps(6);
  start.mutable_pipeline()->set_synchronous_steps(2);
  ExpectEqual(start, EvenSplit(kLayers, 4), /*delay_seed=*/1);
  v1::JobSpec replicated = UpdatingWithinSteps(2);
  replicated.mutable_training()->set_steps(6);
  replicated.mutable_pipeline()->add_replicas(2);
  ExpectEqual(replicated, EvenSplit(kLayers, 2), /*delay_seed=*/2);
  v1::JobSpec rescheduled = UpdatingWithinSteps(2);
  rescheduled.mutable_training()->set_steps(6);
  rescheduled.mutable_training()->mutable_staleness()->set_rescheduled_steps(4);
  ExpectEqual(rescheduled, EvenSplit(kLayers, 4), /*delay_seed=*/3);
}

// Steps of half the size with one update each: the same microbatches, rates and updates.
TEST_F(Equivalence, PaciWithUpdatesWithinAStep_TrainsTheWeightsOfSmallerSteps) {
  const v1::JobSpec within = UpdatingWithinSteps(4);
  v1::JobSpec smaller = within;
  smaller.mutable_pipeline()->clear_update_every();
  v1::TrainingSpec& training = *smaller.mutable_training();
  training.set_steps(2 * training.steps());
  training.set_batch(training.batch() / 2);
  training.set_microbatches(training.microbatches() / 2);
  v1::LearningRateSpec& rate = *training.mutable_learning_rate();
  rate.set_warmup_steps(2 * rate.warmup_steps());
  for (const int stages : {1, 2, 4}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a,
                                  TrainSerially(within, EvenSplit(kLayers, stages), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b,
                                  TrainSerially(smaller, EvenSplit(kLayers, stages), {}, files_));
    EXPECT_EQ(a.weights_sha256, b.weights_sha256);
  }
  // As many as a step is what the method does by itself.
  v1::JobSpec whole = UpdatingWithinSteps(8);
  v1::JobSpec absent = whole;
  absent.mutable_pipeline()->clear_update_every();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(whole, EvenSplit(kLayers, 4), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b,
                                TrainSerially(absent, EvenSplit(kLayers, 4), {}, files_));
  EXPECT_EQ(a.weights_sha256, b.weights_sha256);
}

// Every rule about late gradients with every method and all weights that allow it, on 1, 2 and 4 stages, with
// cuts.
TEST_F(Equivalence, EveryStalenessRule_WithAllWeights_IsTheSerialReference) {
  int trained = 0;
  for (const StalenessCase& rule : StalenessCases()) {
    for (const char* method : {"pipedream", "paci", "pipedream-2bw"}) {
      for (const Weights* weights : kAllWeights) {
        v1::JobSpec spec = SmallJob(method);
        spec.mutable_training()->set_steps(5);
        spec.mutable_validation()->set_every_steps(3);
        spec.mutable_validation()->set_batches(1);
        spec.mutable_pipeline()->set_weights(std::string(weights->name));
        SetLayerClip(spec, 0.2);
        rule.apply(spec);
        const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
        if (!job.ok()) continue;  // resolve_test says which
        for (const int stages : {1, 2, 4}) {
          if (!CheckStages(*job, stages).ok()) continue;
          SCOPED_TRACE(absl::StrCat(rule.name, ", weights ", std::string(weights->name)));
          ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/stages);
          ++trained;
        }
      }
    }
  }
  EXPECT_GT(trained, 150);
}

// No rule is without effect where gradients are late.
TEST_F(Equivalence, EveryStalenessRule_ChangesTheResult) {
  for (const StalenessCase& rule : StalenessCases()) {
    v1::JobSpec plain = SmallJob(rule.method);
    plain.mutable_training()->set_steps(5);
    v1::JobSpec spec = plain;
    rule.apply(spec);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(plain, EvenSplit(7, 4), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b, TrainSerially(spec, EvenSplit(7, 4), {}, files_));
    EXPECT_NE(a.weights_sha256, b.weights_sha256) << rule.name;
  }
}

TEST_F(Equivalence, AllStalenessRulesTogether_UnderRandomDelays) {
  v1::JobSpec spec = SmallJob("pipedream-2bw");
  spec.mutable_training()->set_steps(8);
  spec.mutable_pipeline()->set_synchronous_steps(2);
  for (const StalenessCase& rule : StalenessCases()) rule.apply(spec);
  SetDropout(spec);
  SetLayerClip(spec, 0.2);
  for (uint64_t seed = 1; seed <= 3; ++seed) ExpectEqual(spec, EvenSplit(kLayers, 4), seed);
}

TEST_F(Equivalence, SynchronousSteps_AreThoseOf1F1B) {
  v1::JobSpec synchronous = SmallJob("1f1b");
  synchronous.mutable_training()->set_steps(4);
  for (const char* method : {"pipedream", "pipemare", "nesterov"}) {
    v1::JobSpec spec = synchronous;
    spec.mutable_pipeline()->set_method(method);
    spec.mutable_pipeline()->set_synchronous_steps(4);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a,
                                  TrainSerially(synchronous, EvenSplit(7, 1), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b, TrainSerially(spec, EvenSplit(7, 3), {}, files_));
    ExpectSameTraining(b, a);
  }
}

v1::JobSpec RpdJob(std::optional<int64_t> delta = std::nullopt) {
  v1::JobSpec spec = SmallJob("rpd");
  if (delta.has_value()) spec.mutable_pipeline()->mutable_rpd()->set_delta(*delta);
  spec.mutable_training()->set_steps(6);
  spec.mutable_validation()->set_every_steps(4);
  spec.mutable_validation()->set_batches(1);
  return spec;
}

TEST_F(Equivalence, Rpd_AnyStagesAndDelta_UnderRandomDelays) {
  for (const int stages : {1, 2, 3, 4, 6}) {
    for (const int64_t delta : {int64_t{stages} - 1, int64_t{14}, int64_t{100}}) {
      if (delta < stages - 1) continue;
      SCOPED_TRACE(absl::StrCat("delta ", delta));
      v1::JobSpec spec = RpdJob(delta);
      SetDropout(spec);
      SetLayerClip(spec, 0.2);
      ExpectEqual(spec, EvenSplit(kLayers, stages), /*delay_seed=*/stages);
    }
    ExpectEqual(RpdJob(), EvenSplit(kLayers, stages), /*delay_seed=*/stages + 10);
  }
}

TEST_F(Equivalence, Rpd_OtherOptimizersPrecisionsAndRules) {
  const auto expect_equal = [&](const char* what, auto change) {
    SCOPED_TRACE(what);
    v1::JobSpec spec = RpdJob(9);
    change(spec);
    ExpectEqual(spec, EvenSplit(kLayers, 3), /*delay_seed=*/4);
  };
  expect_equal("sgd", [](v1::JobSpec& spec) {
    v1::SgdSpec& sgd = *spec.mutable_training()->mutable_optimizer()->mutable_sgd();
    sgd.set_learning_rate(0.1);
    sgd.set_momentum(0.9);
  });
  expect_equal("nadamw", [](v1::JobSpec& spec) {
    spec.mutable_training()->mutable_optimizer()->mutable_nadamw()->set_learning_rate(1e-3);
    FillDefaults(spec);
  });
  expect_equal("bf16", [](v1::JobSpec& spec) {
    spec.mutable_training()->set_precision("bf16");
    spec.mutable_training()->set_rounding("stochastic");
  });
  expect_equal("delay compensation", [](v1::JobSpec& spec) {
    spec.mutable_training()->mutable_staleness()->set_delay_compensation(2.0);
  });
  expect_equal("synchronous steps",
               [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_synchronous_steps(2); });
  expect_equal("recompute",
               [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_recompute("all"); });
}

TEST_F(Equivalence, Rpd_DelayCompensationIsNotWithoutEffect) {
  v1::JobSpec plain = RpdJob();
  v1::JobSpec compensated = plain;
  compensated.mutable_training()->mutable_staleness()->set_delay_compensation(2.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained a, TrainSerially(plain, EvenSplit(7, 3), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained b, TrainSerially(compensated, EvenSplit(7, 3), {}, files_));
  EXPECT_NE(a.weights_sha256, b.weights_sha256);
}

// Nothing is drawn where there is one stage without delay: then it is PipeDream, and minibatch training.
TEST_F(Equivalence, Rpd_OneStage_IsPipeDreamWithoutDelay) {
  v1::JobSpec spec = SmallJob("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained expected, TrainSerially(spec, EvenSplit(7, 1), {}, files_));
  spec.mutable_pipeline()->set_method("rpd");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained actual, TrainSerially(spec, EvenSplit(7, 1), {}, files_));
  ExpectSameTraining(actual, expected);
}

TEST_F(Equivalence, Rpd_SeedAndDeltaMatter) {
  const auto weights = [&](std::optional<int64_t> delta, uint64_t seed) {
    v1::JobSpec spec = RpdJob(delta);
    // Weights and data of one seed, draws of another, would need a key of its own.
    spec.mutable_training()->set_seed(seed);
    return TrainSerially(spec, EvenSplit(7, 4), {}, files_).value().weights_sha256;
  };
  const std::string by_default = weights(std::nullopt, 1);
  EXPECT_EQ(by_default, weights(14, 1)) << "floor(S^2 - S/2)";
  EXPECT_NE(by_default, weights(15, 1));
  EXPECT_NE(by_default, weights(14, 2));
}

// One microbatch changes the layers of the stage that is drawn, and no others.
TEST_F(Equivalence, Rpd_OneMicrobatch_MovesTheDrawnStageAlone) {
  const std::vector<LayerRange> layers = SplitInto({2, 2, 2, 1});
  v1::JobSpec spec = RpdJob();
  spec.mutable_training()->set_batch(2);
  spec.mutable_training()->set_microbatches(1);
  spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  spec.mutable_training()->mutable_learning_rate()->set_decay("constant");
  spec.mutable_validation()->set_every_steps(0);
  const auto digests = [&](int64_t steps) {
    spec.mutable_training()->set_steps(steps);
    const auto backend = MakeCpuBackend(/*threads=*/1);
    return TrainReference({.spec = spec, .stages = layers, .data_root = "/"}, files_, **backend)
        .value()
        .layer_sha256;
  };
  std::vector<std::string> before = digests(1);
  int moved_stages[4] = {};
  for (int64_t steps = 2; steps <= 12; ++steps) {
    const std::vector<std::string> after = digests(steps);
    // Microbatch number steps - 1 is the last.
    const int32_t drawn = BlockDraws(spec.training().seed(), 14, 4).StageOf(steps - 1);
    for (int32_t s = 0; s < 4; ++s) {
      for (int layer = layers[s].first; layer < layers[s].end(); ++layer) {
        EXPECT_EQ(after[layer] != before[layer], s == drawn) << "layer " << layer;
      }
    }
    ++moved_stages[drawn];
    before = after;
  }
  for (const int moved : moved_stages) EXPECT_GT(moved, 0);
}

// On bf16 products, where a prediction has a mirror of its own.
TEST_F(Equivalence, PredictedWeightsInBf16_AreTheSerialReference) {
  for (const char* method : {"spectrain", "xpipe", "pipemare"}) {
    for (const char* rounding : {"nearest", "stochastic"}) {
      v1::JobSpec spec = SmallJob(method);
      spec.mutable_training()->set_precision("bf16");
      spec.mutable_training()->set_rounding(rounding);
      ExpectEqual(spec, EvenSplit(kLayers, 3), /*delay_seed=*/5);
    }
  }
}

bool HasBf16Products() {
  const auto backend = MakeCpuBackend(/*threads=*/1);
  return absl::StrContains((*backend)->name(), "with bf16");
}

// Operands have scales of their own, so neither the schedule nor the cut changes a bit. The CPU rounds to the numbers of fp8 and
// multiplies in bf16.
TEST_F(Equivalence, Fp8_IsTheSerialReference) {
  if (!HasBf16Products()) GTEST_SKIP() << "this machine has no products of bf16";
  for (const char* method :
       {"1f1b", "zb-v", "pipedream", "pipedream-2bw", "paci", "pipemare", "roundpipe-async"}) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_training()->set_precision("fp8");
    SCOPED_TRACE(method);
    ExpectEqual(spec, EvenSplit(kLayers, 4), /*delay_seed=*/5);
  }
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_precision("fp8");
  spec.mutable_pipeline()->set_recompute("all");
  ExpectEqual(spec, EvenSplit(kLayers, 3), /*delay_seed=*/6);
}

TEST_F(Equivalence, Fp8_IsAnotherTrainingThanBf16AndLearns) {
  if (!HasBf16Products()) GTEST_SKIP() << "this machine has no products of bf16";
  const auto trained = [&](const char* precision) {
    v1::JobSpec spec = SmallJob("1f1b");
    spec.mutable_training()->set_steps(40);
    spec.mutable_training()->set_precision(precision);
    return *TrainSerially(spec, EvenSplit(kLayers, 1), {}, files_);
  };
  const Trained fp8 = trained("fp8");
  EXPECT_NE(fp8.weights_sha256, trained("bf16").weights_sha256);
  const double f32_loss = trained("f32").steps.back().loss;
  EXPECT_NEAR(fp8.steps.back().loss, f32_loss, 0.05 * f32_loss);
}

TEST_F(Equivalence, Losses_OverTraining_GoDown) {
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->set_steps(40);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      Trained trained, TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_));
  EXPECT_NEAR(trained.steps.front().loss, std::log(256.0), 0.5);
  EXPECT_LT(trained.steps.back().loss, trained.steps.front().loss - 2.0);
}

// What the run counted is what the verifier proved.
TEST_F(Equivalence, Counts_MeasuredInARun_EqualTheVerifiersExactly) {
  for (const Method& method : Methods()) {
    const int per_worker = StagesPerWorkerMin(method.placement);
    for (int stages = per_worker; stages <= 4; stages += per_worker) {
      v1::JobSpec spec = SmallJob(std::string(method.name));
      if (method.placement == Placement::kReplicas) spec.mutable_pipeline()->add_replicas(2);
      if (method.placement == Placement::kRoundTrip) {
        spec.mutable_training()->set_microbatches(2 * stages);
        spec.mutable_training()->set_batch(4 * stages);
      }
      spec.mutable_training()->set_steps(5);
      spec.mutable_validation()->set_every_steps(2);
      spec.mutable_validation()->set_batches(1);
      const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(RunPlan plan,
                                    MakeRunPlan(MakeRequest(spec, layers, 0), RunLimits()));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          Trained trained, TrainCluster({.spec = spec, .layers = layers, .delay_seed = 9}, files_));
      ASSERT_EQ(trained.reports.size(), plan.counts.size());
      for (size_t s = 0; s < plan.counts.size(); ++s) {
        SCOPED_TRACE(absl::StrCat(std::string(method.name), ", stage ", s, " of ", stages));
        const StageCounts& expected = plan.counts[s];
        const v1::StageReport& report = trained.reports[s];
        EXPECT_EQ(report.staleness().max(), expected.staleness.max);
        EXPECT_EQ(report.staleness().mean(), expected.staleness.mean());
        EXPECT_EQ(report.version_drift().max(), expected.version_drift.max);
        EXPECT_EQ(report.version_drift().mean(), expected.version_drift.mean());
        EXPECT_EQ(report.versions_peak(), expected.versions_peak);
        EXPECT_EQ(report.predicted_weight_copies(), expected.moved_copies);
        EXPECT_EQ(report.activations_peak(), expected.activations_peak);
        EXPECT_EQ(report.updates(), expected.staleness.updates);
        const bool updates = plan.topology()[StageId(static_cast<int32_t>(s))].updates;
        EXPECT_EQ(report.updates(), updates ? job.UpdatesBetween(0, 5, stages) : 0);
      }
    }
  }
}

}  // namespace
}  // namespace penstock
