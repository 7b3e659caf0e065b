// A cluster whose workers stand for slower devices.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>

#include "tests/compute/two_pools.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// A device that tells its own time, as those do that work on when a call returns.
class MarkedDevice : public TwoPools {
 public:
  absl::StatusOr<std::unique_ptr<DeviceMarks>> MakeMarks(int /*count*/) override {
    return std::make_unique<Marks>();
  }

 private:
  class Marks : public DeviceMarks {
    void Put(int, DeviceStream) override {}
    bool Passed(int) override { return true; }
    int64_t ElapsedNs(int, int) override { return 0; }
    void BeginRange(const char*) override {}
    void EndRange() override {}
  };
};

class EmulatedDeviceTest : public ::testing::Test {
 protected:
  EmulatedDeviceTest() {
    AddTestText(files_);
    v1::PassTimes& model = *device_.times.mutable_model();
    model.set_forward_ms(40'000);
    model.set_backward_input_ms(20'000);
    model.set_backward_weight_ms(20'000);
    model.set_update_ms(20'000);
    device_.cores = 4;
    // Nobody waits; what would have been waited is added up.
    device_.sleep = [this](absl::Duration time) { waited_ns_ += absl::ToInt64Nanoseconds(time); };
  }

  MemoryFiles files_;
  EmulatedDevice device_;
  std::atomic<int64_t> waited_ns_ = 0;
};

TEST_F(EmulatedDeviceTest, Training_WaitsForEveryPassAndGivesTheSameBits) {
  for (const std::string method : {"1f1b", "pipedream"}) {
    const v1::JobSpec spec = SmallJob(method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, EvenSplit(kLayers, 2), {}, files_));
    waited_ns_ = 0;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 2), .emulated_device = device_},
                     files_));
    ExpectSameTraining(cluster, serial);
    // What every stage takes for its passes, less the arithmetic, which takes far less than a second.
    const double updates = method == "1f1b" ? 3 : 12;
    EXPECT_EQ(std::round(static_cast<double>(waited_ns_) * 1e-9 / 10),
              (12 * (40 + 20 + 20) + updates * 20) / 10)
        << method;
  }
}

TEST_F(EmulatedDeviceTest, UnequalSpeeds_AreWaitedForByEachWorker) {
  const v1::JobSpec spec = SmallJob("1f1b");
  for (const double speed : {4.0, 0.5}) device_.times.add_speeds(speed);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Trained cluster,
      TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 2), .emulated_device = device_},
                   files_));
  const double one = (12 * (40 + 20 + 20) + 3 * 20) / 2.0;
  EXPECT_EQ(std::round(static_cast<double>(waited_ns_) * 1e-9 / 10),
            std::round((one / 4.0 + one / 0.5) / 10));
}

TEST_F(EmulatedDeviceTest, SlowLinks_ChangeNoBit) {
  device_.times.add_links()->set_latency_ms(0.2);
  v1::LinkTimes& pair = *device_.times.add_links();
  pair.add_workers(0);
  pair.add_workers(1);
  pair.set_gigabits_per_second(0.01);
  for (const std::string method : {"1f1b", "pipedream", "roundpipe"}) {
    v1::JobSpec spec = SmallJob(method);
    if (method == "1f1b") {
      spec.mutable_pipeline()->add_replicas(2);
      spec.mutable_pipeline()->add_replicas(1);
      spec.mutable_model()->mutable_gpt()->set_tied_head(true);
      spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
    }
    spec.mutable_validation()->set_every_steps(2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, EvenSplit(kLayers, 2), {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 2), .emulated_device = device_},
                     files_));
    ExpectSameTraining(cluster, serial);
  }
}

TEST_F(EmulatedDeviceTest, SlowLinksInRecordedOrder_AreRefused) {
  device_.times.add_links()->set_latency_ms(1.0);
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_pipeline()->set_order("recorded");
  EXPECT_THAT(
      TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 2), .emulated_device = device_},
                   files_)
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("links cannot be emulated with")));
}

TEST_F(EmulatedDeviceTest, OnABackEndThatWorksOn_IsRefused) {
  const absl::Status refused =
      TrainCluster({.spec = SmallJob("1f1b"),
                    .layers = EvenSplit(kLayers, 2),
                    .make_backend = [] { return std::make_unique<MarkedDevice>(); },
                    .emulated_device = device_},
                   files_)
          .status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--device cpu")));
}

TEST_F(EmulatedDeviceTest, TimesForOtherLayers_AreRefusedBeforeTraining) {
  device_.times.clear_model();
  device_.times.add_layers()->set_layer("convolution");
  const absl::Status refused =
      TrainCluster(
          {.spec = SmallJob("1f1b"), .layers = EvenSplit(kLayers, 2), .emulated_device = device_},
          files_)
          .status();
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no layer convolution")));
}

}  // namespace
}  // namespace penstock
