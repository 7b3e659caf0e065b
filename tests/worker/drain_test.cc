// Draining a run at any moment, and going on from there.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "job/run/run_schedule.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

// The program of a shorter range is that of the longer one with the microbatches beyond left out, so the
// two agree up to the first action that begins one of these.
TEST(ShorterRange, Program_OfEveryMethodAndLength_AgreesUpToTheCut) {
  for (const Method& method : Methods()) {
    for (int32_t workers = 1; workers <= 5; ++workers) {
      for (const int64_t few : {1, 2, 3, 4, 7}) {
        const int64_t microbatches = StepFor(method, workers, few);
        ScheduleOptions options = {
            .topology = PlacedOn(method, workers, microbatches),
            .microbatches_per_step = microbatches,
            .global_norm = method.synchronous && !method.updates_each_microbatch};
        // An R belongs to its microbatch's backward, which stands before what the cut leaves out.
        if (few % 2 == 0) options.topology.Recompute(ChosenStages({.all = true}, options.topology));
        constexpr int64_t kFirstStep = 2;
        constexpr int64_t kSteps = 5;
        const MicrobatchRange whole = {kFirstStep * microbatches, kSteps * microbatches};
        const auto schedule = BuildSchedule(method, options, whole);
        ASSERT_THAT(schedule, IsOk());
        for (int64_t steps = 1; steps < kSteps; ++steps) {
          const MicrobatchRange cut = {whole.first, steps * microbatches};
          const auto shorter = BuildSchedule(method, options, cut);
          ASSERT_THAT(shorter, IsOk());
          for (int32_t worker = 0; worker < workers; ++worker) {
            ActionList expected = Expand(schedule->programs[worker]);
            const auto beyond = std::find_if(expected.begin(), expected.end(), [&](Action action) {
              return HasMicrobatch(action.kind) && action.microbatch >= cut.end();
            });
            EXPECT_TRUE(beyond->kind == ActionKind::kRecvActivation ||
                        beyond->kind == ActionKind::kForward ||
                        beyond->kind == ActionKind::kSendRequest ||
                        beyond->kind == ActionKind::kRecvRequest)
                << ToString(*beyond);
            const ActionList actual = Expand(shorter->programs[worker]);
            ASSERT_GE(actual.size(), static_cast<size_t>(beyond - expected.begin()));
            EXPECT_TRUE(std::equal(expected.begin(), beyond, actual.begin()))
                << std::string(method.name) << ", worker " << worker << " of " << workers
                << ", cut after " << steps;
          }
        }
      }
    }
  }
}

class Drain : public ::testing::Test {
 protected:
  Drain() { AddTestText(files_); }

  static v1::JobSpec Job(const std::string& method) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_training()->set_steps(30);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    return spec;
  }

  // Trains until a drain when the last worker has done `drain_step`, wherever the others are then. Returns
  // the step it was cut after, whose checkpoint is committed.
  absl::StatusOr<int64_t> TrainAndDrain(ClusterOptions options, int64_t drain_step) {
    TestCluster* running = nullptr;
    absl::StatusOr<int64_t> step = absl::InternalError("never drained");
    options.on_event = [&](int, const v1::RunEvent& event) {
      if (event.has_step_done() && event.step_done().step() == drain_step) step = running->Drain();
    };
    TestCluster cluster(options, files_);
    running = &cluster;
    if (!cluster.prepared().ok()) return cluster.prepared();
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) {
      if (!status.ok()) return status;
    }
    if (!step.ok()) return step;
    for (int w = 0; w < cluster.size(); ++w) {
      EXPECT_EQ(cluster.events(w).back().run_done().step(), *step) << "worker " << w;
    }
    const auto directory = cluster.CommitCheckpoint(*step);
    if (!directory.ok()) return directory.status();
    checkpoint_ = *directory;
    return *step;
  }

  MemoryFiles files_;
  std::string checkpoint_;
};

TEST_F(Drain, AtRandomSteps_ThenResumed_EqualsTheReferenceWithTheSameCuts) {
  RandomStream random(/*seed=*/11, /*purpose=*/0);
  for (int round = 0; round < 24; ++round) {
    constexpr const char* kSome[] = {"pipedream", "1f1b", "spectrain", "pipemare", "local-sgd"};
    v1::JobSpec spec = Job(kSome[round % 5]);
    if (round % 5 == 4) {
      spec.mutable_pipeline()->add_replicas(2);
    } else if (round % 5 != 1) {
      // Drained before or after the method has begun.
      spec.mutable_pipeline()->set_synchronous_steps(round % 3 * 6);
    }
    v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
    round % 2 == 1 ? pipeline.set_recompute("all") : pipeline.set_offload("all:2");
    const std::vector<LayerRange> layers = EvenSplit(kLayers, 1 + round / 2 % 4);
    ClusterOptions options = {.spec = spec,
                              .layers = layers,
                              .delay_seed = static_cast<uint64_t>(round + 1),
                              .delay_us_max = 200};
    // Far enough from the end that no worker has begun the last step.
    const auto drain_step = static_cast<int64_t>(1 + random.Below(24));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t step, TrainAndDrain(options, drain_step));
    ASSERT_GE(step, drain_step);
    ASSERT_LT(step, spec.training().steps());
    options.first_step = step;
    options.checkpoint = checkpoint_;
    options.extra_cuts = {step};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed, TrainCluster(options, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained serial, TrainSerially(spec, layers, {step}, files_));
    EXPECT_EQ(resumed.weights_sha256, serial.weights_sha256)
        << "round " << round << ", drained after step " << step;
  }
}

TEST_F(Drain, RoundPipe_AtAnyStep_ThenResumed_EqualsTheReference) {
  for (const auto& [stages, workers] : {std::pair{2, 2}, {2, 3}, {3, 4}, {6, 4}, {4, 6}}) {
    v1::JobSpec spec = Job("roundpipe");
    spec.mutable_pipeline()->set_stages(stages);
    spec.mutable_pipeline()->set_workers(workers);
    spec.mutable_training()->set_microbatches(12);
    spec.mutable_training()->set_batch(12);
    ClusterOptions options = {.spec = spec,
                              .layers = EvenSplit(kLayers, stages),
                              .delay_seed = static_cast<uint64_t>(stages + workers),
                              .delay_us_max = 100};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t step, TrainAndDrain(options, 3 * workers));
    ASSERT_LT(step, spec.training().steps());
    options.first_step = step;
    options.checkpoint = checkpoint_;
    options.extra_cuts = {step};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed, TrainCluster(options, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, options.layers, {step}, files_));
    EXPECT_EQ(resumed.weights_sha256, serial.weights_sha256)
        << stages << " stages on " << workers << ", drained after step " << step;
  }
}

TEST_F(Drain, BeforeTheStart_EndsAtOnceWithNothingDone) {
  TestCluster cluster({.spec = Job("1f1b"), .layers = EvenSplit(kLayers, 3)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  EXPECT_THAT(cluster.Drain(), IsOkAndHolds(0));
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
  EXPECT_EQ(cluster.LastStep(), 0);
  EXPECT_FALSE(files_.Exists(kCheckpointRoot));
}

TEST_F(Drain, WhileAtARegularCut_KeepsItsValidation) {
  v1::JobSpec spec = Job("pipedream");
  spec.mutable_training()->set_steps(4);
  spec.mutable_validation()->set_every_steps(2);
  spec.mutable_validation()->set_batches(1);
  // Drained by the first worker when it has reached the cut, before it validates: the others wait there
  // for its activations. The last worker would be too late, for the first one only sends in a validation.
  TestCluster* cluster = nullptr;
  ClusterOptions options = {.spec = spec, .layers = EvenSplit(kLayers, 3)};
  options.on_event = [&](int worker, const v1::RunEvent& event) {
    if (worker != 0 || !event.has_cut_reached() || event.cut_reached().step() != 2) return;
    EXPECT_THAT(cluster->Drain(), IsOk());
  };
  TestCluster made(options, files_);
  cluster = &made;
  ASSERT_THAT(made.prepared(), IsOk());
  made.Start();
  for (const absl::Status& status : made.Join()) EXPECT_THAT(status, IsOk());
  ASSERT_EQ(made.Validations().size(), 1u);
  EXPECT_EQ(made.Validations()[0].step, 2);
  EXPECT_EQ(made.LastStep(), 2);
}

}  // namespace
}  // namespace penstock
