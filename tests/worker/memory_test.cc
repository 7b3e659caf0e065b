// The memory a worker says that it will need against what its pool gave out.
#include <gtest/gtest.h>

#include <string>

#include "planner/cost/memory_plan.h"
#include "schedule/catalog/catalog.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

// Bytes that are easy to tell apart in sums.
StageBytes Bytes() {
  return {.activations = {.input = 1,
                          .output = 1,
                          .grad_input = 1,
                          .grad_output = 1,
                          .forward = {1100, 1000},
                          .recompute = {900, 800},
                          .backward_input = {40, -700},
                          .backward_weight = {0, -300}},
          .tied_gradient = 5};
}

int64_t PeakOf(const std::string& method, int32_t stages, int32_t stage, int64_t microbatches,
               StageBytes bytes = Bytes(), const std::vector<StageId>& recomputes = {}) {
  ScheduleOptions options = {.topology = StraightPipeline(stages),
                             .microbatches_per_step = microbatches};
  options.topology.Recompute(recomputes);
  const absl::StatusOr<const Method*> found = FindMethod(absl::string_view(method));
  EXPECT_THAT(found, IsOk());
  const absl::StatusOr<Schedule> schedule =
      BuildSchedule(**found, options, {.first = 0, .count = 5 * microbatches});
  EXPECT_THAT(schedule, IsOk());
  return PeakActivationBytes(schedule->programs[stage], std::vector<StageBytes>(stages, bytes));
}

TEST(PeakActivationBytes, GPipe_HoldsAllMicrobatchesOfAStep) {
  // The last forward of a step, with what it takes for its time; the first stage receives nothing.
  EXPECT_EQ(PeakOf("gpipe", 1, 0, 8), 7 * 1000 + 1100);
}

TEST(PeakActivationBytes, OneFOneB_HoldsAsManyAsThereAreStagesFromHereOn) {
  const int64_t first = PeakOf("1f1b", 4, 0, 8);
  // Of three the output, one byte, is sent.
  EXPECT_EQ(first, 3 * 999 + 1100);
  // Its received input is one more byte.
  EXPECT_EQ(PeakOf("1f1b", 4, 3, 8), 1100 + 1);
  EXPECT_LT(PeakOf("1f1b", 4, 0, 8), PeakOf("gpipe", 4, 0, 8));
}

TEST(PeakActivationBytes, StageThatRecomputes_HoldsOneMicrobatchWholeAndOfTheRestTheInput) {
  StageBytes bytes = Bytes();
  bytes.activations.forward = {1100, 10};
  bytes.activations.backward_input = {40, -500};
  bytes.activations.backward_weight = {0, -310};
  // Eight inputs, and one microbatch done again with what it takes for its time.
  EXPECT_EQ(PeakOf("gpipe", 1, 0, 8, bytes, {StageId(0)}), std::max(7 * 10 + 1100, 8 * 10 + 900));
  bytes.activations.forward.most = 300;
  EXPECT_EQ(PeakOf("gpipe", 1, 0, 8, bytes, {StageId(0)}), 8 * 10 + 900);
}

TEST(PeakActivationBytes, LongRanges_NeedNoMoreThanShortOnes) {
  const StageBytes bytes = Bytes();
  const absl::StatusOr<const Method*> method = FindMethod("pipedream");
  ASSERT_THAT(method, IsOk());
  const ScheduleOptions options = {.topology = StraightPipeline(3), .microbatches_per_step = 4};
  int64_t expected = 0;
  for (const int64_t count : {40, 400, 4'000'000}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                  BuildSchedule(**method, options, {.first = 0, .count = count}));
    const int64_t peak =
        PeakActivationBytes(schedule.programs[0], std::vector<StageBytes>(3, bytes));
    if (expected == 0) expected = peak;
    EXPECT_EQ(peak, expected) << count;
  }
}

class MeasuredMemory : public ::testing::Test {
 protected:
  MeasuredMemory() { AddTestText(files_); }

  // Large enough that messages in mailboxes, whose number depends on timing, weigh little.
  static v1::JobSpec Job(const std::string& method) {
    v1::JobSpec spec = SmallJob(method);
    v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
    gpt.set_layers(4);
    gpt.set_width(64);
    gpt.set_heads(2);
    gpt.set_context(32);
    return spec;
  }

  std::vector<v1::StageReport> Train(const v1::JobSpec& spec, int stages) {
    absl::StatusOr<Trained> trained =
        TrainCluster({.spec = spec, .layers = EvenSplit(11, stages)}, files_);
    EXPECT_THAT(trained, IsOk());
    return trained.ok() ? trained->reports : std::vector<v1::StageReport>();
  }

  MemoryFiles files_;
};

TEST_F(MeasuredMemory, PeakOfEveryMethod_IsWithinFivePercentOfThePrediction) {
  for (const std::string method :
       {"1f1b", "gpipe", "pipedream", "rpd", "spectrain", "pipemare", "local-sgd"}) {
    for (const int stages : {1, 2, 4}) {
      for (const v1::StageReport& report : Train(Job(method), stages)) {
        SCOPED_TRACE(testing::Message()
                     << method << ", stage " << report.stage() << " of " << stages);
        const auto predicted = static_cast<double>(report.predicted_memory_bytes());
        EXPECT_NEAR(static_cast<double>(report.peak_memory_bytes()) / predicted, 1.0, 0.05)
            << report.peak_memory_bytes() << " measured, " << report.predicted_memory_bytes()
            << " predicted";
        // Alone on its worker, and without messages, all is known.
        if (stages == 1) {
          EXPECT_EQ(report.peak_memory_bytes(), report.predicted_memory_bytes());
        }
      }
    }
  }
}

TEST_F(MeasuredMemory, PeakWithCompressedMessages_IsWithinFivePercentOfThePrediction) {
  for (const char* method : {"1f1b", "pipedream"}) {
    for (const char* compress : {"int8", "topk"}) {
      v1::JobSpec spec = Job(method);
      spec.mutable_pipeline()->set_compress(compress);
      for (const v1::StageReport& report : Train(spec, 3)) {
        SCOPED_TRACE(testing::Message()
                     << method << ", " << compress << ", stage " << report.stage());
        const auto predicted = static_cast<double>(report.predicted_memory_bytes());
        EXPECT_NEAR(static_cast<double>(report.peak_memory_bytes()) / predicted, 1.0, 0.05);
      }
    }
  }
}

// Sums and weights on their way are large, and how long they wait depends on timing: they count for
// as long as they can.
TEST_F(MeasuredMemory, PeakOfRoundPipe_IsBoundedByThePrediction) {
  for (const auto& [stages, workers] : {std::pair{1, 1}, {2, 2}, {2, 3}, {4, 4}, {6, 4}}) {
    v1::JobSpec spec = Job("roundpipe");
    spec.mutable_pipeline()->set_stages(stages);
    spec.mutable_pipeline()->set_workers(workers);
    spec.mutable_training()->set_microbatches(12);
    spec.mutable_training()->set_batch(12);
    for (const v1::StageReport& report : Train(spec, stages)) {
      SCOPED_TRACE(testing::Message()
                   << "stage " << report.stage() << " of " << stages << " on " << workers);
      const auto predicted = static_cast<double>(report.predicted_memory_bytes());
      const auto measured = static_cast<double>(report.peak_memory_bytes());
      EXPECT_LE(measured, 1.05 * predicted);
      EXPECT_GE(measured, 0.7 * predicted);
      if (workers == 1) {
        EXPECT_EQ(report.peak_memory_bytes(), report.predicted_memory_bytes());
      }
    }
  }
}

// So are the parts of gradients that replicas send each other.
TEST_F(MeasuredMemory, PeakWithReplicasOfStages_IsBoundedByThePrediction) {
  for (const std::string method : {"1f1b", "pipedream", "paci", "interleaved-1f1b", "zb-v"}) {
    const bool several = StagesPerWorkerMin((*FindMethod(method))->placement) > 1;
    for (const std::vector<int32_t>& replicas :
         std::vector<std::vector<int32_t>>{{4}, {2, 2}, {3, 1}, {2, 2, 2, 2}}) {
      if (several && (replicas.size() == 1 || replicas.front() != replicas.back())) continue;
      v1::JobSpec spec = Job(method);
      spec.mutable_pipeline()->mutable_replicas()->Assign(replicas.begin(), replicas.end());
      spec.mutable_training()->set_microbatches(12);
      spec.mutable_training()->set_batch(12);
      const auto stages = static_cast<int>(replicas.size());
      for (const v1::StageReport& report : Train(spec, stages)) {
        SCOPED_TRACE(testing::Message() << method << ", stage " << report.stage() << " of "
                                        << replicas.front() << " and " << replicas.back());
        const auto predicted = static_cast<double>(report.predicted_memory_bytes());
        const auto measured = static_cast<double>(report.peak_memory_bytes());
        EXPECT_LE(measured, 1.05 * predicted);
        EXPECT_GE(measured, 0.7 * predicted);
      }
    }
  }
}

TEST_F(MeasuredMemory, PeakInRecordedOrder_IsNotAboveThePrediction) {
  for (const std::string method : {"1f1b", "gpipe", "pipedream", "interleaved-1f1b"}) {
    for (const int stages : {2, 4}) {
      v1::JobSpec spec = Job(method);
      spec.mutable_pipeline()->set_order("recorded");
      for (const v1::StageReport& report : Train(spec, stages)) {
        const auto predicted = static_cast<double>(report.predicted_memory_bytes());
        EXPECT_LE(static_cast<double>(report.peak_memory_bytes()), 1.05 * predicted)
            << method << ", stage " << report.stage() << " of " << stages;
      }
    }
  }
}

TEST_F(MeasuredMemory, Report_SaysWhatHoldsTheMemory) {
  const std::vector<v1::StageReport> reports = Train(Job("pipedream"), 4);
  ASSERT_EQ(reports.size(), 4u);
  for (const v1::StageReport& report : reports) {
    const v1::StageMemory& memory = report.memory();
    EXPECT_GT(memory.weights(), 0);
    EXPECT_EQ(memory.gradients(), memory.weights());
    EXPECT_EQ(memory.optimizer(), 2 * memory.weights());
    EXPECT_EQ(memory.stashed_weights(), (report.versions_peak() - 1) * memory.weights());
    EXPECT_EQ(memory.host_stashed_weights(), 0);
    EXPECT_GT(memory.activations(), 0);
    EXPECT_LE(report.memory_bytes(), report.peak_memory_bytes());
    EXPECT_EQ(report.copies_to_host().count(), 0);
  }
  EXPECT_EQ(reports[0].versions_peak(), 4);
}

TEST_F(MeasuredMemory, Replicas_EachHoldWeightsGradientsAndOptimizerState) {
  const std::vector<v1::StageReport> one = Train(Job("1f1b"), 4);
  const std::vector<v1::StageReport> replicas = Train(Job("local-sgd"), 4);
  ASSERT_EQ(replicas.size(), 16u);
  for (int s = 0; s < 16; ++s) {
    const v1::StageMemory& memory = replicas[s].memory();
    EXPECT_EQ(memory.weights(), one[s % 4].memory().weights());
    EXPECT_EQ(memory.gradients(), one[s % 4].memory().gradients());
    EXPECT_EQ(memory.optimizer(), one[s % 4].memory().optimizer());
    EXPECT_EQ(replicas[s].worker(), one[s % 4].worker());
    // What the worker has taken before it starts.
    EXPECT_GE(replicas[s].memory_bytes(),
              4 * (memory.weights() + memory.gradients() + memory.optimizer()));
  }
}

TEST_F(MeasuredMemory, MovedWeights_AreOneCopyInPlaceOfTheStash) {
  for (const v1::StageReport& report : Train(Job("spectrain"), 4)) {
    const v1::StageMemory& memory = report.memory();
    EXPECT_EQ(report.versions_peak(), 1);
    EXPECT_EQ(report.predicted_weight_copies(), 1);
    EXPECT_EQ(memory.predicted_weights(), memory.weights());
    EXPECT_EQ(memory.optimizer(), 3 * memory.weights());  // AdamW's and the momentum average
    EXPECT_EQ(memory.stashed_weights(), 0);
  }
}

// Where host and device are one, a stash on the host is the same memory and the same training.
TEST_F(MeasuredMemory, StashOnTheHost_OnTheCpu_ChangesNoBit) {
  v1::JobSpec spec = Job("pipedream");
  spec.mutable_training()->set_steps(6);
  const ClusterOptions on_device = {.spec = spec, .layers = EvenSplit(11, 4)};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained kept, TrainCluster(on_device, files_));
  ClusterOptions on_host = on_device;
  on_host.spec.mutable_training()->set_stash("host");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained stashed, TrainCluster(on_host, files_));
  ExpectSameTraining(stashed, kept);
  EXPECT_GT(stashed.reports[0].memory().host_stashed_weights(), 0);
}

TEST_F(MeasuredMemory, RoundingAtRandom_ClusterAndReferenceAgree) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_precision("bf16");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained nearest,
                                TrainSerially(spec, EvenSplit(7, 1), {}, files_));
  spec.mutable_training()->set_rounding("stochastic");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                TrainSerially(spec, EvenSplit(7, 1), {}, files_));
  for (const int stages : {1, 2, 3}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = EvenSplit(7, stages)}, files_));
    ExpectSameTraining(cluster, serial);
  }
  const bool has_bf16 = std::string((*MakeCpuBackend(1))->name()).find("bf16") != std::string::npos;
  EXPECT_EQ(serial.weights_sha256 != nearest.weights_sha256, has_bf16);
}

}  // namespace
}  // namespace penstock
