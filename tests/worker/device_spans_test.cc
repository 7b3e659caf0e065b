// Spans of a device that works on behind the calls, with a device whose time a test moves.
#include "worker/device_spans.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/support/manual_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/counting_allocator.h"
#include "worker/action_timer.h"

namespace penstock {
namespace {

// A device with three queues, whose clock has an origin of its own. Work is queued with Work, done by Run.
class FakeDevice {
 public:
  static constexpr int64_t kOriginNs = -77'000'000;  // the device's clock minus the host's

  explicit FakeDevice(ManualClock& clock) : clock_(clock) {}

  // The device will be at it for so long, once it comes to it.
  void Work(int64_t duration_ns, DeviceStream stream = DeviceStream::kCompute) {
    busy_until_ns_[Index(stream)] =
        std::max(busy_until_ns_[Index(stream)], clock_.now_ns) + duration_ns;
  }
  // One queue goes on when the other has done all that was asked of it.
  void Await(DeviceStream stream, DeviceStream other) {
    busy_until_ns_[Index(stream)] =
        std::max(busy_until_ns_[Index(stream)], busy_until_ns_[Index(other)]);
  }
  int64_t busy_until_ns() const { return busy_until_ns_[0]; }
  // The host waits for the computation.
  void Wait() { clock_.now_ns = std::max(clock_.now_ns, busy_until_ns_[0]); }

  // When the device passes a mark that is put now, on the host's clock.
  int64_t PassesAt(DeviceStream stream) const {
    return std::max(busy_until_ns_[Index(stream)], clock_.now_ns);
  }
  int64_t now_ns() const { return clock_.now_ns; }
  // How much faster than the host's clock the device's runs: parts per million.
  int64_t fast_ppm = 0;
  int64_t OnOwnClock(int64_t host_ns) const {
    return host_ns + kOriginNs + host_ns * fast_ppm / 1'000'000;
  }

  std::vector<std::string> ranges;  // names, and "" for each end
  bool stuck = false;               // passes no marks

 private:
  static int Index(DeviceStream stream) { return static_cast<int>(stream); }

  ManualClock& clock_;
  int64_t busy_until_ns_[3] = {};
};

class FakeMarks : public DeviceMarks {
 public:
  FakeMarks(FakeDevice& device, int count) : device_(device), passed_ns_(count, -1) {}

  void Put(int mark, DeviceStream stream) override {
    passed_ns_.at(mark) = device_.PassesAt(stream);
  }
  bool Passed(int mark) override {
    return !device_.stuck && passed_ns_.at(mark) <= device_.now_ns();
  }
  int64_t ElapsedNs(int from, int to) override {
    EXPECT_TRUE(Passed(from) && Passed(to));
    return device_.OnOwnClock(passed_ns_.at(to)) - device_.OnOwnClock(passed_ns_.at(from));
  }
  void BeginRange(const char* name) override {
    if (device_.ranges.size() < device_.ranges.capacity()) device_.ranges.emplace_back(name);
  }
  void EndRange() override {
    if (device_.ranges.size() < device_.ranges.capacity()) device_.ranges.emplace_back();
  }

 private:
  FakeDevice& device_;
  std::vector<int64_t> passed_ns_;
};

class DeviceSpansTest : public ::testing::Test {
 protected:
  DeviceSpansTest() { device_.ranges.reserve(100); }

  // Asks for an action that keeps the device busy for `device_ns`; asking takes `host_ns`.
  void Compute(const Action& action, int64_t host_ns, int64_t device_ns) {
    ASSERT_THAT(timer_.Begin(action, &meter_), IsOk());
    clock_.now_ns += host_ns;
    device_.Work(device_ns);
    timer_.Lap(Lane::kCompute);
    timer_.End();
  }
  void WaitForInput(int64_t ns) {
    ASSERT_THAT(timer_.Begin({ActionKind::kRecvActivation, 0, 9}, &meter_), IsOk());
    clock_.now_ns += ns;
    timer_.Lap(Lane::kWait, Wait::kInput);
    timer_.End();
  }
  std::vector<Span> SpansOf(Lane lane) const {
    std::vector<Span> spans;
    for (const Span& span : recorder_.Recent()) {
      if (span.lane == lane) spans.push_back(span);
    }
    return spans;
  }

  ManualClock clock_{1'000'000};
  FakeDevice device_{clock_};
  int waits_ = 0;
  absl::Status error_;
  TimelineRecorder recorder_{WorkerId(0), 1 << 15};
  StageMeter meter_{1 << 10};
  DeviceSpans spans_{clock_,
                     [this] {
                       ++waits_;
                       device_.Wait();
                       return error_;
                     },
                     std::make_unique<FakeMarks>(device_, DeviceSpans::kMarks), recorder_};
  ActionTimer timer_{clock_, recorder_, &spans_};
};

constexpr Action kForward0 = {ActionKind::kForward, 0, 0};
constexpr Action kForward1 = {ActionKind::kForward, 0, 1};

TEST_F(DeviceSpansTest, Actions_QueuedBehindOneAnother_GetTheDevicesTimeOnTheHostsClock) {
  const int64_t start_ns = clock_.now_ns;
  Compute(kForward0, /*host_ns=*/10, /*device_ns=*/5000);
  Compute(kForward1, 10, 3000);
  EXPECT_EQ(meter_.lane_ns(Lane::kCompute), 0) << "the device is still at it";
  ASSERT_THAT(timer_.Finish(), IsOk());
  const std::vector<Span> spans = SpansOf(Lane::kCompute);
  ASSERT_EQ(spans.size(), 2u);
  // The first mark is passed at once, the work begins when it is asked for.
  EXPECT_EQ(spans[0].action, kForward0);
  EXPECT_EQ(spans[0].start_ns, start_ns);
  EXPECT_EQ(spans[0].end_ns, start_ns + 10 + 5000);
  EXPECT_EQ(spans[1].start_ns, spans[0].end_ns);
  EXPECT_EQ(spans[1].duration_ns(), 3000);
  EXPECT_EQ(meter_.lane_ns(Lane::kCompute), 10 + 5000 + 3000);
  EXPECT_EQ(meter_.durations(ActionKind::kForward).count(), 2);
  EXPECT_EQ(meter_.durations(ActionKind::kForward).total_ns(), 8010);
}

TEST_F(DeviceSpansTest, Results_ComeLate_InTheOrderOfTheActions) {
  Compute(kForward0, 1, 100);
  Compute({ActionKind::kBackwardInput, 0, 0}, 1, 100);
  clock_.now_ns += 110;  // the first is done, the second is not
  Compute({ActionKind::kBackwardWeight, 0, 0}, 1, 100);
  ASSERT_EQ(recorder_.Recent().size(), 1u);
  EXPECT_EQ(recorder_.Recent()[0].action, kForward0);
  clock_.now_ns += 1000;
  Compute({ActionKind::kUpdate, 0}, 1, 100);
  ASSERT_EQ(recorder_.Recent().size(), 3u);
  EXPECT_EQ(recorder_.Recent()[1].action.kind, ActionKind::kBackwardInput);
  EXPECT_EQ(recorder_.Recent()[2].action.kind, ActionKind::kBackwardWeight);
}

TEST_F(DeviceSpansTest, Waiting_WhileTheDeviceWorks_IsNoWaiting) {
  Compute(kForward0, 10, 1000);
  WaitForInput(400);  // all of it while the device works
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_EQ(meter_.waiting_ns(Wait::kInput), 0);
  Compute(kForward1, 10, 1000);
  WaitForInput(1700);  // 700 of it after
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_EQ(meter_.waiting_ns(Wait::kInput), 700);
  const std::vector<Span> waits = SpansOf(Lane::kWait);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].start_ns, SpansOf(Lane::kCompute)[0].end_ns);
  EXPECT_EQ(waits[0].duration_ns(), 0);
  EXPECT_EQ(waits[1].start_ns, SpansOf(Lane::kCompute)[1].end_ns);
  EXPECT_EQ(waits[1].duration_ns(), 700);
}

// The prediction measures links from the end of SEND: when the tensor is there, not when it was asked for.
TEST_F(DeviceSpansTest, Send_AskedForWhileTheDeviceComputes_IsShownWhenItIsComputed) {
  Compute(kForward0, 10, 1000);
  ASSERT_THAT(timer_.Begin({ActionKind::kSendActivation, 0, 0}, &meter_), IsOk());
  clock_.now_ns += 20;
  timer_.Lap(Lane::kSend);
  timer_.End();
  ASSERT_THAT(timer_.Finish(), IsOk());
  const std::vector<Span> sends = SpansOf(Lane::kSend);
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].end_ns, SpansOf(Lane::kCompute)[0].end_ns);
  EXPECT_EQ(meter_.durations(ActionKind::kSendActivation).count(), 1);
}

TEST_F(DeviceSpansTest, LanesOfOneWorker_NeverOverlap) {
  for (int i = 0; i < 300; ++i) {
    Compute({ActionKind::kForward, 0, i}, 1 + i % 7, 50 * (i % 11));
    WaitForInput(30 * (i % 13));
    ASSERT_THAT(timer_.Begin({ActionKind::kSendActivation, 0, i}, &meter_), IsOk());
    clock_.now_ns += 5 * (i % 17);
    timer_.Lap(Lane::kSend);
    timer_.End();
  }
  ASSERT_THAT(timer_.Finish(), IsOk());
  int64_t end_ns = 0;
  for (const Span& span : recorder_.Recent()) {
    EXPECT_GE(span.start_ns, end_ns);
    EXPECT_GE(span.end_ns, span.start_ns);
    end_ns = span.end_ns;
  }
}

// What the host does before the device's part of an action counts for itself.
TEST_F(DeviceSpansTest, DataLap_BeforeTheComputation_IsNotTheDevicesTime) {
  ASSERT_THAT(timer_.Begin(kForward0, &meter_), IsOk());
  clock_.now_ns += 300;
  timer_.Lap(Lane::kWait, Wait::kData);
  device_.Work(100);
  timer_.Lap(Lane::kCompute);
  timer_.End();
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_EQ(meter_.waiting_ns(Wait::kData), 300);
  EXPECT_EQ(meter_.lane_ns(Lane::kCompute), 100);
}

TEST_F(DeviceSpansTest, Copies_AreTimedBesideTheLanes) {
  ASSERT_THAT(timer_.Begin(kForward0, &meter_), IsOk());
  device_.Work(1000);
  timer_.Lap(Lane::kCompute);
  timer_.End();
  for (int i = 0; i < 2; ++i) {  // two copies queued at once: the second waits for the first
    ASSERT_THAT(timer_.Begin({ActionKind::kSendActivation, 0, i}, &meter_), IsOk());
    timer_.StartCopy(CopyDirection::kToHost);
    device_.Await(DeviceStream::kCopyOut, DeviceStream::kCompute);
    device_.Work(250, DeviceStream::kCopyOut);
    timer_.EndCopy(CopyDirection::kToHost);
    timer_.End();
  }
  timer_.StartCopy(CopyDirection::kToDevice);
  device_.Work(70, DeviceStream::kCopyIn);
  timer_.EndCopy(CopyDirection::kToDevice);
  ASSERT_THAT(timer_.Finish(), IsOk());
  clock_.now_ns += 10'000;
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_EQ(meter_.copies(CopyDirection::kToHost).count.value(), 2);
  EXPECT_EQ(meter_.copies(CopyDirection::kToHost).total_ns.value(), 500);
  EXPECT_EQ(meter_.copies(CopyDirection::kToDevice).count.value(), 1);
  EXPECT_EQ(meter_.copies(CopyDirection::kToDevice).total_ns.value(), 70);
  EXPECT_EQ(meter_.lane_ns(Lane::kCompute), 1000);
}

// The copy's queue is idle, so its mark is passed before the tensor is computed.
TEST_F(DeviceSpansTest, TensorThatIsExported_IsACopyOfNoTime) {
  Compute(kForward0, 10, 1000);
  ASSERT_THAT(timer_.Begin({ActionKind::kSendActivation, 0, 0}, &meter_), IsOk());
  timer_.StartCopy(CopyDirection::kToHost);
  timer_.EndCopy(CopyDirection::kToHost);
  timer_.Lap(Lane::kSend);
  timer_.End();
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_EQ(meter_.copies(CopyDirection::kToHost).count.value(), 1);
  EXPECT_EQ(meter_.copies(CopyDirection::kToHost).total_ns.value(), 0);
}

TEST_F(DeviceSpansTest, AtTheEndOfARange_AllSpansAreThere) {
  for (int i = 0; i < 50; ++i) Compute({ActionKind::kForward, 0, i}, 1, 10'000);
  EXPECT_LT(recorder_.Recent().size(), 50u);
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_EQ(recorder_.Recent().size(), 50u);
  EXPECT_EQ(meter_.durations(ActionKind::kForward).count(), 50);
}

TEST_F(DeviceSpansTest, HostFarAhead_WaitsForTheDeviceInsteadOfLosingSpans) {
  const int actions = 5 * DeviceSpans::kEntries;
  for (int i = 0; i < actions; ++i) Compute({ActionKind::kForward, 0, i}, 1, 100);
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_EQ(meter_.durations(ActionKind::kForward).count(), actions);
  // After a wait the device has nothing to do for the 1 ns of asking.
  EXPECT_NEAR(meter_.lane_ns(Lane::kCompute), 100 * actions, waits_);
  EXPECT_EQ(spans_.dropped(), 0);
  EXPECT_GT(waits_, 3);
}

TEST_F(DeviceSpansTest, ManyRounds_OfTheRing_KeepMarksApart) {
  for (int i = 0; i < 7 * DeviceSpans::kMarks; ++i) {
    Compute({ActionKind::kForward, 0, i}, 10, 5 + i % 3);  // the device keeps up
    clock_.now_ns += 20;
  }
  ASSERT_THAT(timer_.Finish(), IsOk());
  const DurationMeter& durations = meter_.durations(ActionKind::kForward);
  EXPECT_EQ(durations.count(), 7 * DeviceSpans::kMarks);
  EXPECT_EQ(durations.MedianNs(), 10 + 6);
}

// 50 ppm: after a minute without a new anchor spans would be 3 ms beside the host's clock.
TEST_F(DeviceSpansTest, ClocksThatDriftApart_AreTiedTogetherAgain) {
  device_.fast_ppm = 50;
  for (int i = 0; i < 60'000; ++i) {
    Compute({ActionKind::kForward, 0, i}, 10, 900'000);
    const int64_t end_ns = device_.busy_until_ns();
    // The host is one action ahead: the device is never idle when the next is asked for.
    clock_.now_ns = std::max(clock_.now_ns, end_ns - 450'000);
  }
  ASSERT_THAT(timer_.Finish(), IsOk());
  const Span last = SpansOf(Lane::kCompute).back();
  EXPECT_NEAR(last.end_ns, device_.busy_until_ns(), 600'000);  // 10 s of drift and a little
}

TEST_F(DeviceSpansTest, IdleDevice_GetsANewAnchorEverySecond) {
  device_.fast_ppm = 50;
  for (int i = 0; i < 100; ++i) {
    Compute({ActionKind::kForward, 0, i}, 10, 1000);
    clock_.now_ns += 1'100'000'000;
  }
  Compute({ActionKind::kForward, 0, 100}, 10, 1000);
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_NEAR(SpansOf(Lane::kCompute).back().end_ns, device_.busy_until_ns(), 1000);
}

TEST_F(DeviceSpansTest, FailedDevice_IsToldByTheNextAction) {
  error_ = absl::InternalError("the GPU is gone");
  EXPECT_THAT(timer_.Begin(kForward0, &meter_),
              StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("GPU is gone")));
}

TEST_F(DeviceSpansTest, DeviceThatPassesNoMarks_IsAnErrorAndNoHang) {
  Compute(kForward0, 1, 1);
  device_.stuck = true;
  absl::Status status;
  for (int i = 0; i < DeviceSpans::kEntries; ++i) {
    status = timer_.Begin(kForward1, &meter_);
    if (!status.ok()) break;
    timer_.Lap(Lane::kCompute);
    timer_.End();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("marks")));
}

TEST_F(DeviceSpansTest, WithoutMeter_NothingIsMarkedOrKept) {
  ASSERT_THAT(timer_.Begin(kForward0, nullptr), IsOk());
  timer_.StartCopy(CopyDirection::kToHost);
  timer_.EndCopy(CopyDirection::kToHost);
  timer_.Lap(Lane::kCompute);
  timer_.End();
  ASSERT_THAT(timer_.Finish(), IsOk());
  EXPECT_TRUE(recorder_.Recent().empty());
}

TEST_F(DeviceSpansTest, Ranges_AreNamedLikeTheActions) {
  for (const Action& action :
       {Action{ActionKind::kForward, 0, 3},
        Action{ActionKind::kSendGradient, 12, 1'234'567'890'123}, Action{ActionKind::kUpdate, 2},
        Action{ActionKind::kReduce, 0}, Action{ActionKind::kNorm}}) {
    ASSERT_THAT(timer_.Begin(action, nullptr), IsOk());
    timer_.End();
    EXPECT_EQ(device_.ranges.at(device_.ranges.size() - 2), ToString(action));
    EXPECT_EQ(device_.ranges.back(), "");
  }
}

TEST_F(DeviceSpansTest, SteadyState_AllocatesNothing) {
  Compute(kForward0, 10, 1000);
  device_.ranges = std::vector<std::string>();  // keeps no more names
  if (!CountsAllocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  bool good = true;
  StartCountingAllocations();
  for (int i = 0; i < 3 * DeviceSpans::kEntries; ++i) {
    good &= timer_.Begin({ActionKind::kBackwardInput, 3, 1'000'000'000 + i}, &meter_).ok();
    timer_.StartCopy(CopyDirection::kToHost);
    timer_.EndCopy(CopyDirection::kToHost);
    device_.Work(1000);
    timer_.Lap(Lane::kCompute);
    clock_.now_ns += 700;
    timer_.Lap(Lane::kWait, Wait::kCredit);
    timer_.End();
  }
  StopCountingAllocations();
  EXPECT_TRUE(good);
  EXPECT_EQ(CountedAllocations(), 0);
}

}  // namespace
}  // namespace penstock
