// Stages that do their forward again: the same weights for less memory.
#include <gmock/gmock.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

class RecomputeTest : public ::testing::Test {
 protected:
  RecomputeTest() { AddTestText(files_); }

  // With dropout, whose masks must be the same the second time, and a tied head where the method has one.
  static v1::JobSpec Job(const Method& method) {
    v1::JobSpec spec = SmallJob(std::string(method.name));
    spec.mutable_model()->mutable_gpt()->set_dropout(0.2);
    spec.mutable_model()->mutable_gpt()->set_tied_head(method.synchronous);
    return spec;
  }

  static v1::JobSpec With(v1::JobSpec spec, const std::string& recompute) {
    spec.mutable_pipeline()->set_recompute(recompute);
    return spec;
  }

  absl::StatusOr<Trained> Train(const v1::JobSpec& spec, int stages, uint64_t delay_seed = 0) {
    return TrainCluster(
        {.spec = spec, .layers = EvenSplit(kLayers, stages), .delay_seed = delay_seed}, files_);
  }

  absl::StatusOr<Trained> Reference(const v1::JobSpec& spec, int stages) {
    return TrainSerially(spec, EvenSplit(kLayers, stages), {}, files_);
  }

  MemoryFiles files_;
};

bool ReadsOtherWeightsInBackward(const Method& method) {
  return !method.synchronous && !method.weights->backward_reads_forwards();
}

TEST_F(RecomputeTest, EveryMethod_AllOrSome_IsTheSerialReference) {
  for (const Method& method : Methods()) {
    for (const int workers : {1, 2, 4}) {
      const int stages = workers * StagesPerWorkerMin(method.placement);
      if (stages > kLayers) continue;
      v1::JobSpec spec = Job(method);
      if (method.steps_in_rounds) {
        spec.mutable_training()->set_microbatches(2 * workers);
        spec.mutable_training()->set_batch(4 * workers);
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained without, Reference(spec, stages));
      for (const std::string recompute : {"all", "0", "1"}) {
        if (recompute == "1" && stages == 1) continue;
        if (recompute != "all" && method.placement == Placement::kRoundTrip) continue;  // refused
        SCOPED_TRACE(absl::StrCat(std::string(method.name), ", ", stages, " stages, ", recompute));
        const v1::JobSpec chosen = With(spec, recompute);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(chosen, stages));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                      Train(chosen, stages, /*delay_seed=*/stages));
        ExpectSameTraining(cluster, serial);
        // The reference of all others does nothing twice.
        if (!ReadsOtherWeightsInBackward(method)) ExpectSameTraining(cluster, without);
      }
    }
  }
}

TEST_F(RecomputeTest, OtherWeights_AreTheSerialReference) {
  for (const char* method : {"pipedream", "paci", "pipedream-2bw"}) {
    for (const char* weights : {"single", "stash", "double-buffer", "vertical-sync"}) {
      v1::JobSpec spec = With(SmallJob(method), "all");
      spec.mutable_training()->set_steps(5);
      spec.mutable_pipeline()->set_weights(weights);
      if (!ResolveJob(spec).ok()) continue;  // the method cannot: catalog_test says which
      SCOPED_TRACE(absl::StrCat(method, ", ", weights));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, 4));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, Train(spec, 4, /*delay_seed=*/7));
      ExpectSameTraining(cluster, serial);
    }
  }
}

// Forward and backward of PACI read different weights; done again, the forward reads those of the backward.
TEST_F(RecomputeTest, Paci_TrainsByTheWeightsOfTheBackward) {
  v1::JobSpec spec = SmallJob("paci");
  spec.mutable_training()->set_steps(6);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained plain, Reference(spec, 3));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained all, Reference(With(spec, "all"), 3));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained first, Reference(With(spec, "0"), 3));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained last, Reference(With(spec, "2"), 3));
  EXPECT_NE(all.weights_sha256, plain.weights_sha256);
  EXPECT_NE(first.weights_sha256, plain.weights_sha256);
  EXPECT_NE(first.weights_sha256, all.weights_sha256);
  ExpectSameTraining(last, plain);  // its backward follows its forward at once
}

TEST_F(RecomputeTest, Bf16AndStashOnTheHost_ChangeNoBit) {
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->set_steps(5);
  spec.mutable_training()->set_precision("bf16");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, 4));
  spec.mutable_training()->set_stash("host");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, Train(With(spec, "all"), 4, 3));
  ExpectSameTraining(cluster, serial);
}

TEST_F(RecomputeTest, ValidationAndCuts_AreTheSame) {
  for (const char* method : {"1f1b", "pipedream", "local-sgd"}) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_training()->set_steps(5);
    spec.mutable_validation()->set_every_steps(2);
    spec.mutable_validation()->set_batches(2);
    if (spec.pipeline().method() == "local-sgd") spec.mutable_pipeline()->add_replicas(2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, 3));
    ASSERT_FALSE(serial.validations.empty());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, Train(With(spec, "1,2"), 3, 2));
    ExpectSameTraining(cluster, serial);
  }
}

// With R where the file has it, R where only the job asks for it, and both.
TEST_F(RecomputeTest, ScheduleFiles_WithAndWithoutR_AreTheSerialReference) {
  v1::JobSpec spec = SmallJob(std::string(ListedMethod().name));
  spec.mutable_pipeline()->set_schedule_file("step.csv");
  const std::string first = "0F0,0F1,0F2,0F3,,,0B0,0B1,0B2,0B3\n";
  const std::string plain = first + ",1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n";
  const std::string listed = first + ",1F0,1F1,1R0,1F2,1F3,1B0,1R1,1B1,1R2,1B2,1R3,1B3\n";
  const std::string with_messages =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,"
      "0F2,0SEND_F2,0F3,0SEND_F3,0RECV_B2,0B2,0RECV_B3,0B3\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,"
      "1RECV_F2,1F2,1B2,1SEND_B2,1RECV_F3,1F3,1B3,1SEND_B3\n";
  spec.mutable_pipeline()->set_schedule(plain);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, 2));
  for (const auto& [text, recompute, again] : {std::tuple(plain, "all", 2),
                                               {plain, "1", 1},
                                               {listed, "", 1},
                                               {listed, "0,1", 2},
                                               {with_messages, "all", 2}}) {
    spec.mutable_pipeline()->set_schedule(text);
    spec.mutable_pipeline()->set_recompute(recompute);
    SCOPED_TRACE(absl::StrCat(text, recompute));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, Train(spec, 2, /*delay_seed=*/5));
    ExpectSameTraining(cluster, serial);
    int stages_with_r = 0;
    for (const v1::StageReport& report : cluster.reports) {
      for (const v1::ActionTime& action : report.actions()) {
        if (action.action() != "R") continue;
        ++stages_with_r;
        EXPECT_EQ(action.count(), 3 * 4);
      }
    }
    EXPECT_EQ(stages_with_r, again);
  }
}

// A checkpoint may be continued with another choice, or without.
TEST_F(RecomputeTest, Resume_WithAnotherChoice_GoesOnBitForBit) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_steps(4);
  spec.mutable_checkpoint()->set_every_steps(2);
  spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
  TestCluster cluster({.spec = With(spec, "all"), .layers = EvenSplit(kLayers, 3)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
  const std::string weights = cluster.WeightsSha256();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, cluster.CommitCheckpoint(2));
  for (const std::string recompute : {"none", "1", "all"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                  TrainCluster({.spec = With(spec, recompute),
                                                .layers = EvenSplit(kLayers, 2),
                                                .first_step = 2,
                                                .checkpoint = directory},
                                               files_));
    EXPECT_EQ(resumed.weights_sha256, weights) << recompute;
  }
}

class RecomputeMemory : public RecomputeTest {
 protected:
  // Large enough that messages in mailboxes, whose number depends on timing, weigh little.
  static v1::JobSpec LargeJob(const std::string& method) {
    v1::JobSpec spec = SmallJob(method);
    v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
    gpt.set_layers(4);
    gpt.set_width(64);
    gpt.set_heads(2);
    gpt.set_context(32);
    spec.mutable_training()->set_batch(16);
    spec.mutable_training()->set_microbatches(8);
    return spec;
  }

  std::vector<v1::StageReport> Reports(const v1::JobSpec& spec, int stages) {
    absl::StatusOr<Trained> trained =
        TrainCluster({.spec = spec, .layers = EvenSplit(11, stages)}, files_);
    EXPECT_THAT(trained, IsOk());
    return trained.ok() ? trained->reports : std::vector<v1::StageReport>();
  }
};

TEST_F(RecomputeMemory, Peak_IsThatOfThePlanAndSmallerThanWithout) {
  for (const std::string method : {"gpipe", "1f1b", "pipedream", "local-sgd"}) {
    for (const int stages : {1, 2, 4}) {
      const std::vector<v1::StageReport> plain = Reports(LargeJob(method), stages);
      const std::vector<v1::StageReport> again = Reports(With(LargeJob(method), "all"), stages);
      ASSERT_EQ(plain.size(), again.size());
      for (size_t s = 0; s < again.size(); ++s) {
        SCOPED_TRACE(testing::Message() << method << ", stage " << s << " of " << stages);
        const auto predicted = static_cast<double>(again[s].predicted_memory_bytes());
        EXPECT_NEAR(static_cast<double>(again[s].peak_memory_bytes()) / predicted, 1.0, 0.05)
            << again[s].peak_memory_bytes() << " measured, " << predicted << " predicted";
        if (stages == 1) {
          EXPECT_EQ(again[s].peak_memory_bytes(), again[s].predicted_memory_bytes());
        }
        EXPECT_LT(again[s].memory().activations(), plain[s].memory().activations());
        EXPECT_EQ(again[s].activations_peak(), plain[s].activations_peak());
        // One microbatch in flight is kept whole either way.
        if (plain[s].activations_peak() < 2) continue;
        EXPECT_LT(again[s].peak_memory_bytes(), plain[s].peak_memory_bytes());
      }
    }
  }
}

TEST_F(RecomputeMemory, OfOneStage_LeavesTheOthersAsTheyWere) {
  const std::vector<v1::StageReport> plain = Reports(LargeJob("gpipe"), 3);
  const std::vector<v1::StageReport> again = Reports(With(LargeJob("gpipe"), "1"), 3);
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].predicted_memory_bytes(), plain[0].predicted_memory_bytes());
  EXPECT_LT(again[1].predicted_memory_bytes(), plain[1].predicted_memory_bytes());
  EXPECT_EQ(again[2].predicted_memory_bytes(), plain[2].predicted_memory_bytes());
}

TEST_F(RecomputeMemory, AfterTheWarmUp_NoBlockIsTakenFromTheSystem) {
  v1::JobSpec spec = With(SmallJob("1f1b"), "all");
  spec.mutable_training()->set_steps(12);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(spec, 1));
  EXPECT_EQ(trained.reports[0].allocations_steady(), 0);
}

}  // namespace
}  // namespace penstock
