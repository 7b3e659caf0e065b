// Streamed weights: the same training with a part of the memory, and the bytes that were planned.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "planner/cost/memory_plan.h"
#include "planner/cost/run_costs.h"
#include "schedule/catalog/catalog.h"
#include "schedule/placements.h"
#include "schedule/sent_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

class StreamedRun : public ::testing::Test {
 protected:
  StreamedRun() { AddTestText(files_); }

  static v1::JobSpec Job(int stages, int workers, int microbatches, bool streams = true) {
    v1::JobSpec spec = SmallJob("roundpipe");
    spec.mutable_pipeline()->set_stages(stages);
    spec.mutable_pipeline()->set_workers(workers);
    spec.mutable_pipeline()->set_stream_weights(streams ? "on" : "off");
    spec.mutable_training()->set_microbatches(microbatches);
    spec.mutable_training()->set_batch(microbatches);
    spec.mutable_training()->set_steps(4);
    return spec;
  }

  void ExpectSerial(const v1::JobSpec& spec, int stages, uint64_t delay_seed = 0) {
    const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained trained,
        TrainCluster(
            {.spec = spec, .layers = layers, .delay_seed = delay_seed, .delay_us_max = 100},
            files_));
    ExpectSameTraining(trained, serial);
  }

  MemoryFiles files_;
};

TEST_F(StreamedRun, OnAnyNumberOfWorkers_IsTheSerialReference) {
  struct Case {
    int stages, workers, microbatches;
  };
  for (const Case& size :
       {Case{1, 1, 2}, Case{2, 2, 4}, Case{3, 2, 8}, Case{3, 3, 2}, Case{4, 3, 15}, Case{4, 4, 4},
        Case{6, 4, 8}, Case{7, 4, 20}, Case{7, 4, 3}, Case{7, 7, 7}}) {
    v1::JobSpec spec = Job(size.stages, size.workers, size.microbatches);
    spec.mutable_validation()->set_every_steps(3);
    spec.mutable_validation()->set_batches(size.microbatches > 4 ? 1 : 3);
    spec.mutable_model()->mutable_gpt()->set_dropout(0.1);
    SCOPED_TRACE(absl::StrCat(size.stages, " stages, ", size.workers, " workers, ",
                              size.microbatches, " microbatches"));
    ExpectSerial(spec, size.stages, /*delay_seed=*/size.stages + size.workers);
    spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
    ExpectSerial(spec, size.stages);
    spec.mutable_training()->mutable_clip()->set_layer_norm(0.2);
    ExpectSerial(spec, size.stages);
  }
}

// A mirror is rounded where the weights come, with the number of the step that made them.
TEST_F(StreamedRun, Bf16WithEitherRounding_IsTheSerialReference) {
  for (const char* rounding : {"nearest", "stochastic"}) {
    SCOPED_TRACE(rounding);
    v1::JobSpec spec = Job(5, 4, 8);
    spec.mutable_training()->set_precision("bf16");
    spec.mutable_training()->set_rounding(rounding);
    spec.mutable_validation()->set_every_steps(2);
    spec.mutable_validation()->set_batches(1);
    ExpectSerial(spec, 5);
  }
}

TEST_F(StreamedRun, FrozenLayers_StayWhereTheyAre) {
  v1::JobSpec spec = Job(4, 3, 6);
  for (const char* pattern : {"w*", "h.0.*", "*.bias"}) {
    v1::ParameterGroupSpec& group = *spec.mutable_training()->add_groups();
    group.set_parameters(pattern);
    group.set_frozen(true);
  }
  FillDefaults(spec);
  ExpectSerial(spec, 4);
}

TEST_F(StreamedRun, Checkpoint_ResumesWithAndWithoutStreams) {
  for (const bool streams : {false, true}) {
    SCOPED_TRACE(streams);
    constexpr int kStages = 5;
    v1::JobSpec spec = Job(kStages, 4, 8);
    spec.mutable_checkpoint()->set_every_steps(2);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, kStages)}, files_);
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(2));
    spec.mutable_pipeline()->set_stream_weights(streams ? "on" : "off");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                  TrainCluster({.spec = spec,
                                                .layers = EvenSplit(kLayers, kStages),
                                                .first_step = 2,
                                                .checkpoint = directory},
                                               files_));
    EXPECT_EQ(resumed.steps.back().loss, cluster.Steps().back().loss);
    EXPECT_EQ(resumed.weights_sha256, cluster.WeightsSha256());
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(StreamedRun, DrainedAtAnyStep_ThenResumed_EqualsTheReference) {
  for (const auto& [stages, workers] : {std::pair{2, 2}, {4, 4}, {6, 4}}) {
    v1::JobSpec spec = Job(stages, workers, 8);
    spec.mutable_training()->set_steps(24);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    TestCluster* running = nullptr;
    absl::StatusOr<int64_t> step = absl::InternalError("never drained");
    ClusterOptions options = {.spec = spec,
                              .layers = EvenSplit(kLayers, stages),
                              .delay_seed = static_cast<uint64_t>(stages),
                              .delay_us_max = 100};
    options.on_event = [&](int, const v1::RunEvent& event) {
      if (event.has_step_done() && event.step_done().step() == 5) step = running->Drain();
    };
    TestCluster cluster(options, files_);
    running = &cluster;
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
    ASSERT_THAT(step, IsOk());
    ASSERT_LT(*step, 24);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(options.checkpoint, cluster.CommitCheckpoint(*step));
    options.on_event = nullptr;
    options.first_step = *step;
    options.extra_cuts = {*step};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed, TrainCluster(options, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, options.layers, {*step}, files_));
    EXPECT_EQ(resumed.weights_sha256, serial.weights_sha256) << stages << " on " << workers;
  }
}

// The first of four workers borrows 1000 bytes for stage 0 and sends as many to stage 2 until it passes stage 4, which it
// updates.
TEST(PeakStreamedBytes, FirstOfFourWorkers_HoldsAndSendsOneStageAndThenAccumulates) {
  const ScheduleOptions options = {.topology = StreamWeights(RoundTripPipelines(4, 4, 4)).value(),
                                   .microbatches_per_step = 4};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                BuildSchedule(**FindMethod("roundpipe"), options, {0, 12}));
  std::vector<StageBytes> stages(options.topology.stages());
  for (int32_t id = 0; id < options.topology.stages(); ++id) {
    stages[id] = {.part = options.topology[StageId(id)].part,
                  .streamed_weights = 1000,
                  .streamed_mirror = 7,
                  .gradients = 500};
  }
  EXPECT_EQ(PeakStreamedBytes(schedule.programs[0], stages, options.topology), 1000 + 1000 + 7);
  for (StageBytes& stage : stages) stage.gradients = 10'000;
  EXPECT_EQ(PeakStreamedBytes(schedule.programs[0], stages, options.topology), 10'000);
}

// By worker, from the reports of its stages.
std::map<std::string, v1::StageReport> FirstOfWorkers(const std::vector<v1::StageReport>& reports) {
  std::map<std::string, v1::StageReport> first;
  for (const v1::StageReport& report : reports) first.try_emplace(report.worker(), report);
  return first;
}

TEST_F(StreamedRun, BytesSent_AreThosePlanned) {
  for (const auto& [stages, workers] : {std::pair{4, 4}, {7, 4}, {5, 3}}) {
    const v1::JobSpec spec = Job(stages, workers, 4 * workers);
    const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
    const ScheduleOptions options = ScheduleOptionsOf(job, TopologyOf(job, stages), layers);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                  ScheduleOfSteps(job, options, 0, job.steps));
    std::vector<LayerRange> of_stages;
    for (const StageWiring& row : options.topology.table) of_stages.push_back(layers[row.part]);
    const std::vector<double> planned =
        SentBytesOf(schedule, TrafficOf(job, options.topology, of_stages));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                  TrainCluster({.spec = spec, .layers = layers}, files_));
    std::vector<double> sent(workers);
    for (const v1::StageReport& report : trained.reports) {
      sent[options.topology.worker(StageId(static_cast<int32_t>(report.stage()))).value] +=
          static_cast<double>(report.bytes_sent());
    }
    EXPECT_EQ(sent, planned) << stages << " on " << workers;
  }
}

// The embedding of 256 tokens, or the head, is one stage and most of this model; so a stage that has one decides.
TEST_F(StreamedRun, Memory_IsBoundedByThePredictionAndLessThanWithoutStreams) {
  for (const auto& [stages, workers] : {std::pair{4, 4}, {7, 4}, {7, 3}}) {
    SCOPED_TRACE(absl::StrCat(stages, " on ", workers));
    const auto reports_of = [&](bool streams) {
      v1::JobSpec spec = Job(stages, workers, 4 * workers, streams);
      spec.mutable_model()->mutable_gpt()->set_width(64);
      spec.mutable_training()->set_batch(4 * workers);
      const auto trained =
          TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, stages)}, files_);
      EXPECT_THAT(trained, IsOk());
      return trained.ok() ? FirstOfWorkers(trained->reports)
                          : std::map<std::string, v1::StageReport>();
    };
    const auto streamed = reports_of(true);
    const auto whole = reports_of(false);
    ASSERT_EQ(streamed.size(), static_cast<size_t>(workers));
    int64_t most = 0;
    int64_t most_whole = 0;
    for (const auto& [worker, report] : streamed) {
      const auto predicted = static_cast<double>(report.predicted_memory_bytes());
      const auto measured = static_cast<double>(report.peak_memory_bytes());
      EXPECT_LE(measured, 1.05 * predicted) << worker;
      EXPECT_GE(measured, 0.7 * predicted) << worker;
      most = std::max<int64_t>(most, report.peak_memory_bytes());
      most_whole = std::max<int64_t>(most_whole, whole.at(worker).peak_memory_bytes());
    }
    EXPECT_LT(most, most_whole);
  }
}

}  // namespace
}  // namespace penstock
