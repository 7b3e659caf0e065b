// Runs in recorded order: each is another one, and the reference replays it bit for bit from its log.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/run/run_schedule.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/run_plan.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::JobSpec RecordedJob(const std::string& method) {
  v1::JobSpec spec = SmallJob(method);
  spec.mutable_pipeline()->set_order("recorded");
  spec.mutable_training()->set_steps(7);
  return spec;
}

// The blocks of the static program of a worker, as the log has them.
std::vector<std::string> StaticBlocks(const v1::JobSpec& spec, int stages, int worker,
                                      MicrobatchRange range) {
  const ResolvedJob job = ResolveJob(spec).value();
  const Schedule schedule =
      BuildSchedule(*job.method, ScheduleOptionsOf(job, TopologyOf(job, stages)), range).value();
  std::vector<std::string> blocks;
  for (const Action& action : Expand(schedule.programs[worker])) {
    if (action.kind != ActionKind::kForward && action.kind != ActionKind::kBackwardInput) continue;
    blocks.push_back(
        ToString(OrderBlock{action.stage(), action.kind == ActionKind::kBackwardInput}));
  }
  return blocks;
}

std::vector<std::string> Blocks(const OrderLog& log) {
  std::vector<std::string> blocks;
  for (int64_t i = 0; i < log.size(); ++i) blocks.push_back(ToString(log.At(i)));
  return blocks;
}

// Whether some worker did something in another order than the static one.
bool LeavesStaticOrder(const v1::JobSpec& spec, const RecordedOrder& order) {
  for (const RecordedOrder::Range& range : order.ranges) {
    for (size_t worker = 0; worker < range.workers.size(); ++worker) {
      if (Blocks(range.workers[worker]) != StaticBlocks(spec, static_cast<int>(order.stages.size()),
                                                        static_cast<int>(worker),
                                                        range.microbatches)) {
        return true;
      }
    }
  }
  return false;
}

class RecordedRun : public ::testing::Test {
 protected:
  RecordedRun() { AddTestText(files_); }

  // Trains, and expects the bits of the reference that replays its log, by way of its text.
  absl::StatusOr<Trained> TrainAndReplay(const ClusterOptions& options) {
    absl::StatusOr<Trained> cluster = TrainCluster(options, files_);
    if (!cluster.ok()) return cluster;
    const absl::StatusOr<RecordedOrder> read =
        ParseRecordedOrder(PrintRecordedOrder(cluster->order));
    if (!read.ok()) return read.status();
    EXPECT_EQ(*read, cluster->order);
    absl::StatusOr<Trained> serial =
        TrainSerially(options.spec, options.layers, options.extra_cuts, files_, *read);
    if (!serial.ok()) return serial;
    ExpectSameTraining(*cluster, *serial);
    return cluster;
  }

  // Enough room on every edge for the methods' own bounds, as the coordinator plans it.
  static void GiveRoom(v1::PrepareRunRequest& request) {
    request.mutable_plan()->set_channel_capacity(8);
  }

  MemoryFiles files_;
};

TEST_F(RecordedRun, EveryMethod_AnyTiming_IsReplayedBitForBit) {
  for (const char* method :
       {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "pipedream", "pipedream-2bw", "paci"}) {
    const Method& found = **FindMethod(absl::string_view(method));
    bool other_order = false;
    for (const int workers : {2, 3}) {
      const int stages = workers * StagesPerWorkerMin(found.placement);
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(absl::StrCat(method, " on ", workers, " workers, delays ", seed));
        v1::JobSpec spec = RecordedJob(method);
        v1::TrainingSpec& training = *spec.mutable_training();
        training.set_microbatches(found.steps_in_rounds ? 2 * workers : 4);
        training.set_batch(2 * training.microbatches());
        if (seed == 2) {
          spec.mutable_validation()->set_every_steps(3);
          spec.mutable_validation()->set_batches(1);
        }
        if (found.synchronous) {
          spec.mutable_model()->mutable_gpt()->set_tied_head(true);
          training.mutable_clip()->set_global_norm(0.5);
        } else {
          training.mutable_clip()->set_layer_norm(0.2);
          spec.mutable_model()->mutable_gpt()->set_dropout(0.2);
        }
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                      TrainAndReplay({.spec = spec,
                                                      .layers = EvenSplit(kLayers, stages),
                                                      .delay_seed = seed,
                                                      .edit_request = GiveRoom}));
        other_order = other_order || LeavesStaticOrder(spec, trained.order);
      }
    }
    EXPECT_TRUE(other_order) << method << ": no timing changed anything, so this shows nothing";
  }
}

TEST_F(RecordedRun, FourWorkers_WithOtherWeightsToo_AreReplayedBitForBit) {
  for (const char* method : {"pipedream", "paci"}) {
    for (const char* weights : {"", "single", "stash", "double-buffer", "vertical-sync"}) {
      v1::JobSpec spec = RecordedJob(method);
      spec.mutable_pipeline()->set_weights(weights);
      if (!ResolveJob(spec).ok()) continue;  // the method cannot: catalog_test says which
      for (uint64_t seed = 4; seed <= 6; ++seed) {
        SCOPED_TRACE(absl::StrCat(method, " with ", weights, ", delays ", seed));
        EXPECT_THAT(TrainAndReplay({.spec = spec,
                                    .layers = EvenSplit(kLayers, 4),
                                    .delay_seed = seed,
                                    .edit_request = GiveRoom}),
                    IsOk());
      }
    }
  }
}

TEST_F(RecordedRun, UpdatesWithinAStep_AreReplayedBitForBit) {
  for (const int32_t update_every : {1, 2}) {
    v1::JobSpec spec = RecordedJob("paci");  // 4 microbatches in a step
    spec.mutable_pipeline()->set_update_every(update_every);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(absl::StrCat("updates every ", update_every, ", delays ", seed));
      EXPECT_THAT(TrainAndReplay({.spec = spec,
                                  .layers = EvenSplit(kLayers, 4),
                                  .delay_seed = seed,
                                  .edit_request = GiveRoom}),
                  IsOk());
    }
  }
}

TEST_F(RecordedRun, Replicas_AreReplayedBitForBit) {
  for (const char* method : {"gpipe", "1f1b", "looped-bfs", "pipedream", "pipedream-2bw", "paci"}) {
    for (const std::vector<int32_t>& replicas :
         {std::vector<int32_t>{2, 2}, {3}, {3, 1}, {1, 3}, {2, 3}, {1, 2, 1}}) {
      for (const char* weights : {"", "single", "stash", "vertical-sync"}) {
        v1::JobSpec spec = RecordedJob(method);
        for (const int32_t count : replicas) spec.mutable_pipeline()->add_replicas(count);
        spec.mutable_pipeline()->set_stages(static_cast<int32_t>(replicas.size()));
        spec.mutable_pipeline()->set_weights(weights);
        spec.mutable_training()->set_microbatches(12);
        spec.mutable_training()->set_batch(12);
        spec.mutable_training()->set_steps(4);
        spec.mutable_validation()->set_every_steps(2);
        spec.mutable_validation()->set_batches(1);
        spec.mutable_model()->mutable_gpt()->set_dropout(0.2);
        if (!ResolveJob(spec).ok()) continue;
        for (uint64_t seed = 1; seed <= 2; ++seed) {
          SCOPED_TRACE(absl::StrCat(method, " ", weights, " with ", absl::StrJoin(replicas, ","),
                                    ", delays ", seed));
          spec.mutable_pipeline()->set_in_flight_factor(static_cast<int32_t>(seed));
          PENSTOCK_ASSERT_OK_AND_ASSIGN(
              const Trained trained,
              TrainAndReplay({.spec = spec,
                              .layers = EvenSplit(kLayers, static_cast<int>(replicas.size())),
                              .delay_seed = seed,
                              .edit_request = GiveRoom}));
          if (!(*FindMethod(absl::string_view(method)))->synchronous) continue;
          v1::JobSpec in_order = spec;
          in_order.mutable_pipeline()->set_order("static");
          in_order.mutable_pipeline()->clear_in_flight_factor();
          PENSTOCK_ASSERT_OK_AND_ASSIGN(
              const Trained of_static,
              TrainSerially(in_order, EvenSplit(kLayers, static_cast<int>(replicas.size())), {},
                            files_));
          EXPECT_EQ(trained.weights_sha256, of_static.weights_sha256);
        }
      }
    }
  }
}

TEST_F(RecordedRun, MoreInFlight_IsReplayedBitForBit) {
  int64_t most = 0;
  for (const char* method : {"1f1b", "pipedream", "paci"}) {
    v1::JobSpec spec = RecordedJob(method);
    spec.mutable_pipeline()->set_in_flight_factor(3);
    for (uint64_t seed = 7; seed <= 9; ++seed) {
      SCOPED_TRACE(absl::StrCat(method, ", delays ", seed));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                    TrainAndReplay({.spec = spec,
                                                    .layers = EvenSplit(kLayers, 3),
                                                    .delay_seed = seed,
                                                    .edit_request = GiveRoom}));
      for (const v1::StageReport& report : trained.reports) {
        most = std::max(most, report.activations_peak());
      }
    }
  }
  // The static order has three at most.
  EXPECT_GT(most, 3);
}

// Capacity 2 on every edge, where the first of four stages would have four microbatches in flight.
TEST_F(RecordedRun, NarrowEdges_HoldLessInFlightAndBlockNobody) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                  TrainAndReplay({.spec = RecordedJob("pipedream"),
                                                  .layers = EvenSplit(kLayers, 4),
                                                  .delay_seed = seed}));
    for (const v1::StageReport& report : trained.reports) {
      EXPECT_LE(report.activations_peak(), 2);
      EXPECT_LE(report.versions_peak(), 2);
    }
  }
}

TEST_F(RecordedRun, MethodsThatDrain_GiveTheWeightsOfTheStaticOrder) {
  for (const char* method : {"gpipe", "1f1b"}) {
    v1::JobSpec spec = RecordedJob(method);
    const ClusterOptions recorded = {
        .spec = spec, .layers = EvenSplit(kLayers, 3), .delay_seed = 5, .edit_request = GiveRoom};
    spec.mutable_pipeline()->set_order("static");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained in_order,
                                  TrainSerially(spec, EvenSplit(kLayers, 1), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained as_ready, TrainAndReplay(recorded));
    ExpectSameTraining(as_ready, in_order);
  }
}

TEST_F(RecordedRun, Counts_StayWithinWhatWasPlanned) {
  for (const char* method : {"1f1b", "interleaved-1f1b", "pipedream", "paci"}) {
    const int stages = 3 * StagesPerWorkerMin((*FindMethod(absl::string_view(method)))->placement);
    v1::JobSpec spec = RecordedJob(method);
    spec.mutable_training()->set_microbatches(6);
    spec.mutable_training()->set_batch(6);
    const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
    v1::PrepareRunRequest request = MakeRequest(spec, layers, 0);
    GiveRoom(request);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const RunPlan plan, MakeRunPlan(request, RunLimits()));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained trained,
        TrainAndReplay(
            {.spec = spec, .layers = layers, .delay_seed = 8, .edit_request = GiveRoom}));
    for (int s = 0; s < stages; ++s) {
      const v1::StageReport& report = trained.reports[s];
      SCOPED_TRACE(absl::StrCat(method, ", stage ", s));
      EXPECT_LE(report.activations_peak(), plan.counts[s].activations_peak);
      EXPECT_LE(report.versions_peak(), plan.counts[s].versions_peak);
      EXPECT_EQ(report.updates(), plan.counts[s].staleness.updates);
    }
  }
}

TEST_F(RecordedRun, ResumedFromACheckpoint_IsReplayedFromBothLogs) {
  v1::JobSpec spec = RecordedJob("pipedream");
  spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
  spec.mutable_checkpoint()->set_every_steps(3);
  const std::vector<LayerRange> layers = EvenSplit(kLayers, 3);
  // The first run is stopped after its first checkpoint, the second goes on from there.
  TestCluster first({.spec = spec, .layers = layers, .delay_seed = 3, .edit_request = GiveRoom},
                    files_);
  ASSERT_THAT(first.prepared(), IsOk());
  first.Start();
  for (const absl::Status& status : first.Join()) ASSERT_THAT(status, IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, first.CommitCheckpoint(3));
  RecordedOrder order = first.Order();
  ASSERT_EQ(order.ranges.size(), 3u);
  order.ranges.resize(1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed, TrainCluster({.spec = spec,
                                                                     .layers = layers,
                                                                     .first_step = 3,
                                                                     .checkpoint = directory,
                                                                     .delay_seed = 4,
                                                                     .edit_request = GiveRoom},
                                                                    files_));
  EXPECT_THAT(TrainSerially(spec, layers, {}, files_, resumed.order),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("range 0 is 12+12"), HasSubstr("all runs before it"))));
  ASSERT_THAT(Continue(resumed.order, order), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                TrainSerially(spec, layers, {}, files_, order));
  EXPECT_EQ(resumed.weights_sha256, serial.weights_sha256);
}

TEST_F(RecordedRun, CutShortAnywhere_IsReplayedWithTheSameCut) {
  for (int round = 0; round < 12; ++round) {
    v1::JobSpec spec = RecordedJob(round % 3 == 0 ? "1f1b" : "paci");
    spec.mutable_training()->set_steps(30);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    const std::vector<LayerRange> layers = EvenSplit(kLayers, 1 + round % 4);
    const int64_t drain_step = 1 + 2 * round;
    TestCluster* running = nullptr;
    absl::StatusOr<int64_t> step = absl::InternalError("never drained");
    TestCluster cluster(
        {.spec = spec,
         .layers = layers,
         .delay_seed = static_cast<uint64_t>(round + 1),
         .on_event =
             [&](int, const v1::RunEvent& event) {
               if (event.has_step_done() && event.step_done().step() == drain_step) {
                 step = running->Drain();
               }
             },
         .edit_request = GiveRoom},
        files_);
    running = &cluster;
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
    ASSERT_THAT(step, IsOk());
    EXPECT_EQ(cluster.LastStep(), *step);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(*step));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                  TrainCluster({.spec = spec,
                                                .layers = layers,
                                                .first_step = *step,
                                                .checkpoint = directory,
                                                .extra_cuts = {*step},
                                                .delay_seed = static_cast<uint64_t>(round + 50),
                                                .edit_request = GiveRoom},
                                               files_));
    RecordedOrder order = cluster.Order();
    ASSERT_THAT(Continue(resumed.order, order), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, layers, {*step}, files_, order));
    EXPECT_EQ(resumed.weights_sha256, serial.weights_sha256)
        << "round " << round << ", drained after step " << *step;
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(RecordedRun, DrainedBeforeTheStart_EndsWithNothingDone) {
  TestCluster cluster({.spec = RecordedJob("paci"), .layers = EvenSplit(kLayers, 3)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  EXPECT_THAT(cluster.Drain(), IsOkAndHolds(0));
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
  EXPECT_TRUE(cluster.Order().ranges.empty());
}

TEST_F(RecordedRun, StoppedOrLeftAlone_EndsWithTheReason) {
  v1::JobSpec spec = RecordedJob("pipedream");
  spec.mutable_training()->set_steps(100'000);
  for (const bool dies : {false, true}) {
    TestCluster* running = nullptr;
    TestCluster cluster({.spec = spec,
                         .layers = EvenSplit(kLayers, 3),
                         .on_event =
                             [&](int, const v1::RunEvent& event) {
                               if (!event.has_step_done() || event.step_done().step() != 3) return;
                               if (dies) {
                                 running->network().Disconnect(1);
                               } else {
                                 for (int w = 0; w < 3; ++w) running->run(w).Stop("enough");
                               }
                             }},
                        files_);
    running = &cluster;
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) {
      EXPECT_THAT(status,
                  StatusIs(dies ? absl::StatusCode::kUnavailable : absl::StatusCode::kAborted,
                           HasSubstr(dies ? "worker-1 is gone" : "enough")));
    }
  }
}

TEST_F(RecordedRun, MessageThatNeverComes_EndsTheWaitInTime) {
  v1::JobSpec spec = RecordedJob("pipedream");
  RunLimits limits = {.timeline_spans_max = 1 << 12, .duration_samples_max = 1 << 6};
  limits.checkpoint_timeout = limits.hold_timeout = absl::Milliseconds(20);
  limits.work_timeout = absl::Milliseconds(30);
  // The first worker's first forward takes far longer than the other waits.
  EmulatedDevice slow;
  slow.times.mutable_model()->set_forward_ms(1000);
  slow.sleep = [](absl::Duration) { absl::SleepFor(absl::Milliseconds(400)); };
  TestCluster cluster(
      {.spec = spec, .layers = EvenSplit(kLayers, 2), .limits = limits, .emulated_device = slow},
      files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  EXPECT_THAT(cluster.Join()[1], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          HasSubstr("0 of 56 forwards and backwards")));
}

TEST_F(RecordedRun, OrderOfAnotherJob_IsRefused) {
  const v1::JobSpec spec = RecordedJob("pipedream");
  const std::vector<LayerRange> layers = EvenSplit(kLayers, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                TrainCluster({.spec = spec, .layers = layers}, files_));
  const auto refused = [&](const v1::JobSpec& job, const std::vector<LayerRange>& split,
                           std::optional<RecordedOrder> order, const std::string& why) {
    EXPECT_THAT(TrainSerially(job, split, {}, files_, std::move(order)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("recorded order"), HasSubstr(why))));
  };
  refused(spec, layers, std::nullopt, "--record");
  v1::JobSpec in_order = spec;
  in_order.mutable_pipeline()->set_order("static");
  refused(in_order, layers, trained.order, "pipeline.order is static");
  refused(RecordedJob("paci"), layers, trained.order, "method pipedream");
  refused(spec, EvenSplit(kLayers, 3), trained.order, "2 stages, expected 3");
  refused(spec, SplitInto({2, 5}), trained.order,
          "with layers 0+3, expected worker 0 with layers 0+2");
  v1::JobSpec longer = spec;
  longer.mutable_training()->set_steps(8);
  refused(longer, layers, trained.order, "0+28, but the job has 0+32");
  v1::JobSpec smaller = spec;
  smaller.mutable_training()->set_microbatches(8);
  refused(smaller, layers, trained.order, "4 microbatches in a step, expected 8");
}

}  // namespace
}  // namespace penstock
