// Clusters whose devices are busy when tensors leave: the same bits, and nothing left behind.
#include "tests/worker/late_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

class LateDeviceTest : public ::testing::Test {
 protected:
  LateDeviceTest() { AddTestText(files_); }

  ClusterOptions OnLateDevices(const v1::JobSpec& spec, int stages) {
    return {.spec = spec, .layers = EvenSplit(kLayers, stages), .make_backend = [this] {
              return std::make_unique<LateDevice>(++devices_);
            }};
  }
  void ExpectSameBits(const v1::JobSpec& spec, int stages) {
    SCOPED_TRACE(absl::StrCat(spec.pipeline().method(), ", stages ", stages));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, EvenSplit(kLayers, stages), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster(OnLateDevices(spec, stages), files_));
    ExpectSameTraining(cluster, serial);
  }

  MemoryFiles files_;
  std::atomic<uint64_t> devices_ = 0;  // the workers make theirs at the same time
};

TEST_F(LateDeviceTest, EveryMethod_HasTheBitsOfTheReference) {
  for (const Method& method : Methods()) {
    for (int stages : {2, 4}) {
      if (stages / StagesPerWorkerMin(method.placement) < 2) continue;
      ExpectSameBits(SmallJob(std::string(method.name)), stages);
    }
  }
  ExpectSameBits(SmallJob("1f1b"), 2);
}

TEST_F(LateDeviceTest, EveryStalenessRule_HasTheBitsOfTheReference) {
  for (const StalenessCase& rule : StalenessCases()) {
    v1::JobSpec spec = SmallJob(rule.method);
    rule.apply(spec);
    ExpectSameBits(spec, rule.method == std::string("pipedream-2bw") ? 4 : 2);
  }
}

TEST_F(LateDeviceTest, TiedHeadAndClipping_HaveTheBitsOfTheReference) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_model()->mutable_gpt()->set_tied_head(true);
  spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
  ExpectSameBits(spec, 3);
  spec.mutable_training()->mutable_clip()->set_layer_norm(0.05);
  ExpectSameBits(spec, 3);
}

TEST_F(LateDeviceTest, WindowOfOne_HasTheBitsOfTheReference) {
  const v1::JobSpec spec = SmallJob("1f1b");
  ClusterOptions options = OnLateDevices(spec, 3);
  options.limits.edge_capacity = 1;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                TrainSerially(spec, EvenSplit(kLayers, 3), {}, files_));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, TrainCluster(options, files_));
  ExpectSameTraining(cluster, serial);
}

TEST_F(LateDeviceTest, Stop_InTheMiddle_EndsAllWorkers) {
  ClusterOptions options = OnLateDevices(SmallJob("1f1b"), 3);
  TestCluster cluster(std::move(options), files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  cluster.run(1).Stop("the user said so");
  for (const absl::Status& status : cluster.Join()) {
    EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
  }
}

}  // namespace
}  // namespace penstock
