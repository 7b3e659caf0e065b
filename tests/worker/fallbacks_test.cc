// A worker tells of attention that its device computes by slow kernels: in its log, in the report of the stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/late_device.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As those inside, but for what they say of themselves.
class SlowKernels : public OpKernels {
 public:
  explicit SlowKernels(std::unique_ptr<OpKernels> inside) : inside_(std::move(inside)) {}

  absl::string_view fallback() const override { return "cuDNN has no engine for it on this GPU"; }
  TapeNeeds tape_needs() const override { return inside_->tape_needs(); }
  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    return inside_->Forward(context, weights, tape);
  }
  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) override {
    return inside_->BackwardInput(context, weights, tape);
  }
  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    return inside_->BackwardWeight(context, gradients, tape);
  }

 private:
  const std::unique_ptr<OpKernels> inside_;
};

class DeviceWithoutFusedAttention : public LateDevice {
 public:
  DeviceWithoutFusedAttention() : LateDevice(1) {}
  absl::StatusOr<std::unique_ptr<OpKernels>> MakeKernels(KernelSpec spec,
                                                         Precision precision) override {
    const bool attends = std::string(spec.node.op->name).find("attention") != std::string::npos;
    absl::StatusOr<std::unique_ptr<OpKernels>> made =
        LateDevice::MakeKernels(std::move(spec), precision);
    if (!made.ok() || !attends) return made;
    return std::make_unique<SlowKernels>(*std::move(made));
  }
};

class FallbacksTest : public ::testing::Test {
 protected:
  FallbacksTest() { AddTestText(files_); }

  template <typename Device>
  std::vector<int64_t> FallbacksOnTwoStages() {
    TestCluster cluster({.spec = SmallJob("1f1b"),
                         .layers = EvenSplit(kLayers, 2),
                         .on_notice =
                             [this](int, const std::string& text) {
                               MutexLock lock(mutex_);
                               if (text.find("attention") != std::string::npos)
                                 notices_.push_back(text);
                             },
                         .make_backend = [] { return std::make_unique<Device>(); }},
                        files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
    std::vector<int64_t> fallbacks;
    for (const v1::StageReport& report : cluster.Reports()) {
      fallbacks.push_back(report.attention_fallbacks());
    }
    return fallbacks;
  }

  MemoryFiles files_;
  Mutex mutex_;
  std::vector<std::string> notices_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(FallbacksTest, SlowAttention_IsCountedByStageAndToldWithTheReason) {
  EXPECT_THAT(FallbacksOnTwoStages<DeviceWithoutFusedAttention>(), ElementsAre(1, 1));
  MutexLock lock(mutex_);
  EXPECT_THAT(notices_, ::testing::SizeIs(2));
  EXPECT_THAT(
      notices_,
      ::testing::Each(HasSubstr("attention is several times slower than it could be in 1 of")));
  EXPECT_THAT(notices_, ::testing::Each(HasSubstr("cuDNN has no engine for it on this GPU")));
}

class DeviceAsUsual : public LateDevice {
 public:
  DeviceAsUsual() : LateDevice(1) {}
};

TEST_F(FallbacksTest, KernelsAsUsual_NothingIsTold) {
  EXPECT_THAT(FallbacksOnTwoStages<DeviceAsUsual>(), ElementsAre(0, 0));
  MutexLock lock(mutex_);
  EXPECT_THAT(notices_, IsEmpty());
}

}  // namespace
}  // namespace penstock
