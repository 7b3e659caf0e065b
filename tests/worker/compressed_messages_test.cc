// Runs whose messages are compressed: the serial reference's weights bit for bit, and fewer bytes.
#include <gmock/gmock.h>

#include <atomic>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "job/run/message_bytes.h"
#include "tests/compute/two_pools.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CompressedMessages : public ::testing::Test {
 protected:
  CompressedMessages() { AddTestText(files_); }

  static v1::JobSpec Job(const std::string& method, const std::string& compress,
                         double keep = 0.0) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_pipeline()->set_compress(compress);
    if (keep > 0.0) spec.mutable_pipeline()->set_compress_keep(keep);
    return spec;
  }

  // Trains with a cluster, and expects the reference's bits.
  absl::StatusOr<Trained> TrainBoth(const v1::JobSpec& spec, int stages, uint64_t delay_seed = 0) {
    const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
    absl::StatusOr<Trained> cluster =
        TrainCluster({.spec = spec, .layers = layers, .delay_seed = delay_seed}, files_);
    if (!cluster.ok()) return cluster;
    const bool recorded = spec.pipeline().order() == "recorded";
    const absl::StatusOr<Trained> serial = TrainSerially(
        spec, layers, {}, files_, recorded ? std::optional(cluster->order) : std::nullopt);
    if (!serial.ok()) return serial;
    ExpectSameTraining(*cluster, *serial);
    return cluster;
  }

  MemoryFiles files_;
};

TEST_F(CompressedMessages, EveryMethod_IsTheSerialReference) {
  int methods = 0;
  for (const Method& method : Methods()) {
    if (!ResolveJob(Job(std::string(method.name), "int8")).ok()) continue;  // support.md says which
    ++methods;
    for (const int workers : {2, 3}) {
      const int stages = workers * StagesPerWorkerMin(method.placement);
      for (const char* compress : {"int8", "topk"}) {
        v1::JobSpec spec = Job(std::string(method.name), compress);
        spec.mutable_model()->mutable_gpt()->set_dropout(0.2);
        spec.mutable_model()->mutable_gpt()->set_tied_head(method.synchronous);
        spec.mutable_training()->set_steps(4);
        spec.mutable_validation()->set_every_steps(2);
        if (method.steps_in_rounds) {
          spec.mutable_training()->set_microbatches(2 * workers);
          spec.mutable_training()->set_batch(4 * workers);
        }
        SCOPED_TRACE(absl::StrCat(method.name, ", ", stages, " stages, ", compress));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                      TrainBoth(spec, stages, /*delay_seed=*/stages));
        spec.mutable_pipeline()->set_compress("off");
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained plain,
                                      TrainSerially(spec, EvenSplit(kLayers, stages), {}, files_));
        EXPECT_NE(trained.weights_sha256, plain.weights_sha256);
        if (compress == std::string("topk")) continue;
        EXPECT_NEAR(trained.steps.front().loss, plain.steps.front().loss, 0.05);
      }
    }
  }
  EXPECT_GE(methods, 15);
}

TEST_F(CompressedMessages, EverySplit_AndOtherMicrobatches_AreTheSerialReference) {
  for (const char* method : {"1f1b", "gpipe", "pipedream", "pipedream-2bw"}) {
    for (const int microbatches : {1, 4, 8}) {
      for (int stages = 1; stages <= 4; ++stages) {
        v1::JobSpec spec = Job(method, "topk", 0.05);
        spec.mutable_training()->set_microbatches(microbatches);
        spec.mutable_training()->set_batch(8);
        if (!ResolveJob(spec).ok() || !CheckStages(*ResolveJob(spec), stages).ok()) continue;
        SCOPED_TRACE(absl::StrCat(method, ", ", microbatches, " microbatches, ", stages));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainBoth(spec, stages));
        if (stages > 1) continue;
        // Nothing is sent.
        spec.mutable_pipeline()->set_compress("off");
        spec.mutable_pipeline()->clear_compress_keep();
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained plain,
                                      TrainSerially(spec, EvenSplit(kLayers, 1), {}, files_));
        ExpectSameTraining(trained, plain);
      }
    }
  }
}

// In bf16 the tensors are another type; with recomputation, offload and recorded order they wait and come otherwise.
TEST_F(CompressedMessages, OtherWaysOfWork_AreTheSerialReference) {
  const std::vector<void (*)(v1::JobSpec&)> ways = {
      [](v1::JobSpec& spec) { spec.mutable_training()->set_precision("bf16"); },
      [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_recompute("all"); },
      [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_offload("all:2"); },
      [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_order("recorded"); },
      [](v1::JobSpec& spec) { spec.mutable_training()->mutable_clip()->set_global_norm(0.5); },
      [](v1::JobSpec& spec) { spec.mutable_training()->mutable_ema()->set_decay(0.9); },
  };
  for (const char* compress : {"int8", "topk"}) {
    for (const char* method : {"1f1b", "zb-h1", "pipedream", "paci"}) {
      for (size_t way = 0; way < ways.size(); ++way) {
        v1::JobSpec spec = Job(method, compress);
        ways[way](spec);
        if (!ResolveJob(spec).ok()) continue;
        SCOPED_TRACE(absl::StrCat(compress, ", ", method, ", way ", way));
        EXPECT_THAT(TrainBoth(spec, 3, /*delay_seed=*/way + 1), IsOk());
      }
    }
  }
}

TEST_F(CompressedMessages, SynchronousStepsBefore_AreTheSerialReference) {
  v1::JobSpec spec = Job("pipedream", "topk");
  spec.mutable_training()->set_steps(5);
  spec.mutable_pipeline()->set_synchronous_steps(2);
  EXPECT_THAT(TrainBoth(spec, 3, 5), IsOk());
}

// Stages 1 and 2 of a V on two workers are on one, and send each other nothing.
TEST_F(CompressedMessages, BytesSent_AreThoseOfTheMessages) {
  for (const char* method : {"1f1b", "pipedream", "zb-v"}) {
    for (const char* compress : {"off", "int8", "topk"}) {
      for (const char* precision : {"f32", "bf16"}) {
        SCOPED_TRACE(absl::StrCat(method, ", ", compress, ", ", precision));
        v1::JobSpec spec = Job(method, compress);
        spec.mutable_training()->set_precision(precision);
        const int stages = method == std::string("zb-v") ? 4 : 3;
        const std::vector<LayerRange> layers = EvenSplit(kLayers, stages);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                      TrainCluster({.spec = spec, .layers = layers}, files_));
        const ResolvedJob job = *ResolveJob(spec);
        const Topology topology = TopologyOf(job, stages);
        for (int s = 0; s < stages; ++s) {
          const auto leaves = [&](int other) {
            return other >= 0 && other < stages &&
                   topology.worker(StageId(s)) != topology.worker(StageId(other));
          };
          int64_t bytes = 0;
          if (leaves(s + 1)) bytes += ActivationMessageBytesAt(job, layers[s].end());
          if (leaves(s - 1)) bytes += GradientMessageBytesAt(job, layers[s].first);
          EXPECT_EQ(trained.reports[s].bytes_sent(), bytes * job.steps * job.microbatches) << s;
        }
      }
    }
  }
}

// What messages left out is a part of a checkpoint.
TEST_F(CompressedMessages, ResumedRun_IsTheUninterruptedOne) {
  for (const char* method : {"1f1b", "zb-v", "pipedream", "paci"}) {
    for (const char* compress : {"int8", "topk"}) {
      SCOPED_TRACE(absl::StrCat(method, ", ", compress));
      v1::JobSpec spec = Job(method, compress);
      spec.mutable_training()->set_steps(4);
      spec.mutable_checkpoint()->set_every_steps(2);
      spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
      const int stages = method == std::string("zb-v") ? 4 : 3;
      ClusterOptions options = {.spec = spec, .layers = EvenSplit(kLayers, stages)};
      TestCluster cluster(options, files_);
      ASSERT_THAT(cluster.prepared(), IsOk());
      cluster.Start();
      for (const absl::Status& status : cluster.Join()) ASSERT_THAT(status, IsOk());
      PENSTOCK_ASSERT_OK_AND_ASSIGN(options.checkpoint, cluster.CommitCheckpoint(2));
      options.first_step = 2;
      std::atomic<int> notices = 0;
      options.on_notice = [&](int, const std::string& notice) {
        if (absl::StrContains(notice, "compressed messages left out")) ++notices;
      };
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed, TrainCluster(options, files_));
      EXPECT_EQ(resumed.weights_sha256, cluster.WeightsSha256());
      ASSERT_EQ(resumed.steps.size(), 2u);
      EXPECT_EQ(resumed.steps[1].loss, cluster.Steps()[3].loss);
      EXPECT_EQ(notices, 0);

      // Where it has no place any more it is told of, and left out.
      options.spec.mutable_pipeline()->set_compress("off");
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained off, TrainCluster(options, files_));
      EXPECT_NE(off.weights_sha256, resumed.weights_sha256);
      EXPECT_GE(notices, 2);
      options.spec = spec;
      options.layers = stages == 4 ? SplitInto({1, 1, 2, 3}) : SplitInto({2, 1, 4});
      notices = 0;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained moved, TrainCluster(options, files_));
      EXPECT_NE(moved.weights_sha256, resumed.weights_sha256);
      EXPECT_GT(notices, 0);
      ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    }
  }
}

TEST_F(CompressedMessages, NumbersThatAreNotFinite_EndTheRunAsALossWould) {
  for (const char* compress : {"int8", "topk"}) {
    v1::JobSpec spec = Job("1f1b", compress);
    spec.mutable_training()->set_steps(30);
    spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1e30);
    const auto not_finite =
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("lower the learning rate"));
    EXPECT_THAT(TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_), not_finite);
    EXPECT_THAT(TrainSerially(spec, EvenSplit(kLayers, 3), {}, files_), not_finite);
  }
}

TEST_F(CompressedMessages, ADeviceWithItsOwnMemory_IsRefusedByName) {
  ClusterOptions options = {.spec = Job("1f1b", "int8"), .layers = EvenSplit(kLayers, 2)};
  options.make_backend = [] { return std::make_unique<TwoPools>(); };
  EXPECT_THAT(
      TrainCluster(options, files_),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("pipeline.compress: int8 is for workers"), HasSubstr("use off"))));
}

}  // namespace
}  // namespace penstock
