#include "worker/courier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/worker/fake_device.h"
#include "tests/worker/memory_transport.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Time Soon() { return absl::Now() + absl::Milliseconds(50); }
absl::Time Later() { return absl::Now() + absl::Seconds(20); }

bool Eventually(const std::function<bool()>& condition) {
  for (int attempt = 0; attempt < 4000; ++attempt) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}
// Long enough for a thread that does not wait as it should.
void GiveOthersTime() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

// Two workers; the left one has a courier and a device that the test commands.
class CourierTest : public ::testing::Test {
 protected:
  // What is still under way would hold the courier up.
  ~CourierTest() override { device_.FinishAll(); }

  struct Edge {
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
  };
  // The courier works on edges until it ends.
  Edge& Open(const EdgeId& id, int capacity) {
    auto sender = transports_[id.source]->OpenSender(id, capacity, 1 << 20);
    auto receiver = transports_[id.destination]->OpenReceiver(id, capacity, 1 << 20, pool_);
    EXPECT_THAT(sender, IsOk());
    EXPECT_THAT(receiver, IsOk());
    return edges_.emplace_back(Edge{*std::move(sender), *std::move(receiver)});
  }
  Edge& OpenForward(int capacity) { return Open({EdgeKind::kActivation, 0, 1}, capacity); }

  Tensor Holding(float value) {
    Tensor tensor = device_.pool().AcquireTensor(DType::kF32, {1});
    *tensor.data<float>() = value;
    return tensor;
  }
  absl::Status Send(Sender& sender, int64_t sequence, absl::Time deadline = Later()) {
    return courier_->Send(sender, sequence, Holding(static_cast<float>(10 + sequence)), deadline);
  }
  static absl::StatusOr<float> Received(Receiver& receiver, int64_t sequence,
                                        absl::Time deadline = Later()) {
    auto tensor = receiver.Receive({sequence, DType::kF32, {1}}, deadline);
    if (!tensor.ok()) return tensor.status();
    return *tensor->data<float>();
  }

  FakeDevice device_;
  BufferPool pool_{HostMemory()};
  MemoryNetwork network_{{"left", "right"}, {0, 1}};
  std::unique_ptr<Transport> transports_[2] = {network_.MakeTransport(0),
                                               network_.MakeTransport(1)};
  std::deque<Edge> edges_;
  std::unique_ptr<Courier> courier_ = std::make_unique<Courier>(device_);
};

TEST_F(CourierTest, Send_WhileTheDeviceIsBusy_ReturnsAndArrivesWhenItIsDone) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  ASSERT_THAT(Send(*edge.sender, 1), IsOk());
  GiveOthersTime();
  EXPECT_FALSE(edge.receiver->Ready());
  device_.Finish(0);
  EXPECT_THAT(Received(*edge.receiver, 0), IsOkAndHolds(10.0f));
  device_.Finish(1);
  EXPECT_THAT(Received(*edge.receiver, 1), IsOkAndHolds(11.0f));
}

TEST_F(CourierTest, Send_LaterTensorDoneFirst_KeepsTheEdgesOrder) {
  Edge& edge = OpenForward(3);
  for (int m = 0; m < 3; ++m) ASSERT_THAT(Send(*edge.sender, m), IsOk());
  device_.Finish(2);
  device_.Finish(1);
  GiveOthersTime();
  EXPECT_FALSE(edge.receiver->Ready());
  device_.Finish(0);
  for (int m = 0; m < 3; ++m) EXPECT_THAT(Received(*edge.receiver, m), IsOkAndHolds(10.0f + m));
}

TEST_F(CourierTest, Send_OtherEdgeWaits_IsNotHeldUp) {
  Edge& forward = OpenForward(1);
  Edge& other = Open({EdgeKind::kCollective, 0, 1}, 1);
  ASSERT_THAT(Send(*forward.sender, 0), IsOk());
  ASSERT_THAT(Send(*other.sender, 7), IsOk());
  device_.Finish(1);
  EXPECT_THAT(Received(*other.receiver, 7), IsOkAndHolds(17.0f));
  EXPECT_FALSE(forward.receiver->Ready());
}

TEST_F(CourierTest, Send_WindowFull_BlocksBeforeTheDeviceIsAskedForMore) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  ASSERT_THAT(Send(*edge.sender, 1), IsOk());
  EXPECT_FALSE(edge.sender->Ready());
  EXPECT_THAT(Send(*edge.sender, 2, Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
  EXPECT_TRUE(courier_->peer_failed());
  EXPECT_EQ(device_.tickets(), 2);
  device_.Finish(0);
  ASSERT_THAT(Received(*edge.receiver, 0), IsOk());
  EXPECT_THAT(Send(*edge.sender, 2), IsOk());
}

TEST_F(CourierTest, Send_NothingToWaitFor_GoesStraightThrough) {
  device_.FinishAll();
  Edge& edge = OpenForward(1);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  EXPECT_TRUE(edge.receiver->Ready());  // without any other thread
  EXPECT_THAT(courier_->Drain(absl::InfinitePast()), IsOk());
}

TEST_F(CourierTest, SendFromHost_BehindATensorOfTheDevice_KeepsTheOrder) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  ASSERT_THAT(courier_->SendFromHost(*edge.sender, 1, Holding(5.0f), Later()), IsOk());
  GiveOthersTime();
  EXPECT_FALSE(edge.receiver->Ready());
  device_.Finish(0);
  EXPECT_THAT(Received(*edge.receiver, 0), IsOkAndHolds(10.0f));
  EXPECT_THAT(Received(*edge.receiver, 1), IsOkAndHolds(5.0f));
}

TEST_F(CourierTest, DeviceFails_NextSendAndDrainSaySoAndBlameNoPeer) {
  Edge& edge = OpenForward(4);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  ASSERT_THAT(Send(*edge.sender, 1), IsOk());
  device_.Finish(0, absl::InternalError("illegal address"));
  const auto failed =
      StatusIs(absl::StatusCode::kInternal, HasSubstr("message 0: illegal address"));
  EXPECT_THAT(courier_->Drain(Later()), failed);
  EXPECT_FALSE(courier_->peer_failed());
  EXPECT_THAT(Send(*edge.sender, 2), failed);
  EXPECT_FALSE(courier_->peer_failed());
}

TEST_F(CourierTest, DeviceFailsOnOneEdge_OtherEdgesGoOn) {
  Edge& forward = OpenForward(2);
  Edge& other = Open({EdgeKind::kCollective, 0, 1}, 2);
  ASSERT_THAT(Send(*forward.sender, 0), IsOk());
  device_.Finish(0, absl::InternalError("illegal address"));
  EXPECT_THAT(courier_->Drain(Later()), StatusIs(absl::StatusCode::kInternal, ::testing::_));
  ASSERT_THAT(Send(*other.sender, 0), IsOk());
  device_.Finish(1);
  EXPECT_THAT(Received(*other.receiver, 0), IsOkAndHolds(10.0f));
}

TEST_F(CourierTest, DeviceHangs_EndsAtTheDeadlineOfTheMessage) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 3, Soon()), IsOk());
  EXPECT_THAT(courier_->Drain(Later()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("message 3")));
  EXPECT_GT(device_.pool().stats().bytes_in_use, 0);
  device_.Finish(0);  // late
  EXPECT_TRUE(Eventually([&] { return device_.pool().stats().bytes_in_use == 0; }));
}

TEST_F(CourierTest, TransportFailsMeanwhile_NextSendSaysSoAndBlamesThePeer) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  network_.Disconnect(1);
  device_.Finish(0);
  EXPECT_THAT(courier_->Drain(Later()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("right")));
  EXPECT_TRUE(courier_->peer_failed());
  EXPECT_THAT(Send(*edge.sender, 1), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("right")));
}

TEST_F(CourierTest, Drain_WaitsUntilAllIsHandedOver) {
  Edge& edge = OpenForward(3);
  for (int m = 0; m < 3; ++m) ASSERT_THAT(Send(*edge.sender, m), IsOk());
  EXPECT_THAT(courier_->Drain(Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("3 tensors")));
  std::thread device([&] {
    for (int m = 0; m < 3; ++m) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      device_.Finish(m);
    }
  });
  EXPECT_THAT(courier_->Drain(Later()), IsOk());
  EXPECT_EQ(edge.sender->messages_sent(), 3);
  device.join();
}

TEST_F(CourierTest, Cancel_WhileDraining_ReturnsTheFirstReason) {
  Edge& edge = OpenForward(1);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  std::thread canceller([&] {
    GiveOthersTime();
    courier_->Cancel(absl::AbortedError("the user said stop"));
    courier_->Cancel(absl::AbortedError("too late"));
  });
  EXPECT_THAT(courier_->Drain(Later()), StatusIs(absl::StatusCode::kAborted, "the user said stop"));
  canceller.join();
  EXPECT_THAT(Send(*edge.sender, 1), StatusIs(absl::StatusCode::kAborted, "the user said stop"));
  EXPECT_THAT(Received(*edge.receiver, 0, Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
}

// ------------------------------------------------------------------- what is given up while it runs

TEST_F(CourierTest, Destruction_WithTensorsUnderWay_WaitsForTheDeviceAndDropsThem) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  ASSERT_THAT(Send(*edge.sender, 1), IsOk());
  std::thread device([&] {
    for (int m = 0; m < 2; ++m) {
      GiveOthersTime();
      EXPECT_GT(device_.pool().stats().bytes_in_use, 0);
      device_.Finish(m);
    }
  });
  courier_.reset();
  EXPECT_EQ(device_.pool().stats().bytes_in_use, 0);
  EXPECT_EQ(device_.tickets_out(), 0);
  EXPECT_FALSE(edge.receiver->Ready());
  device.join();
}

TEST_F(CourierTest, Cancel_WhileCopiesRun_KeepsTheirMemoryUntilTheyAreDone) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  ASSERT_THAT(Send(*edge.sender, 1), IsOk());
  const int64_t in_use = device_.pool().stats().bytes_in_use;
  courier_->Cancel(absl::AbortedError("the user said stop"));
  GiveOthersTime();
  EXPECT_EQ(device_.pool().stats().bytes_in_use, in_use);
  device_.Finish(1);
  EXPECT_TRUE(Eventually([&] { return device_.pool().stats().bytes_in_use == in_use / 2; }));
  device_.Finish(0);
  EXPECT_TRUE(Eventually([&] { return device_.pool().stats().bytes_in_use == 0; }));
  EXPECT_EQ(device_.tickets_out(), 0);
  EXPECT_FALSE(edge.receiver->Ready());
}

TEST_F(CourierTest, DeviceFails_MessagesBehindKeepTheirMemoryUntilTheirCopiesAreDone) {
  Edge& edge = OpenForward(2);
  ASSERT_THAT(Send(*edge.sender, 0), IsOk());
  ASSERT_THAT(Send(*edge.sender, 1), IsOk());
  device_.Finish(0, absl::InternalError("illegal address"));
  EXPECT_THAT(courier_->Drain(Later()), StatusIs(absl::StatusCode::kInternal, ::testing::_));
  EXPECT_GT(device_.pool().stats().bytes_in_use, 0);
  device_.Finish(1);
  EXPECT_TRUE(Eventually([&] { return device_.pool().stats().bytes_in_use == 0; }));
  EXPECT_EQ(device_.tickets_out(), 0);
}

TEST_F(CourierTest, SteadyState_ManyMessages_TakesNoNewMemory) {
  Edge& edge = OpenForward(2);
  const auto exchange = [&](int64_t m) {
    ASSERT_THAT(Send(*edge.sender, m), IsOk());
    device_.Finish(m);
    ASSERT_THAT(Received(*edge.receiver, m), IsOkAndHolds(10.0f + static_cast<float>(m)));
    ASSERT_TRUE(Eventually([&] { return device_.pool().stats().bytes_in_use == 0; }));
  };
  for (int64_t m = 0; m < 3; ++m) exchange(m);
  const int64_t allocations = device_.pool().stats().allocations;
  for (int64_t m = 3; m < 50; ++m) exchange(m);
  EXPECT_EQ(device_.pool().stats().allocations, allocations);
}

// ------------------------------------------------------------------------------------ exported tensors

// Writes down what the courier does with edges that export.
struct ExportingLog {
  Mutex mutex;
  std::vector<int64_t> exported ABSL_GUARDED_BY(mutex);
  int released ABSL_GUARDED_BY(mutex) = 0;

  std::vector<int64_t> Exported() {
    MutexLock lock(mutex);
    return exported;
  }
  int Released() {
    MutexLock lock(mutex);
    return released;
  }
};

class ExportingSender : public Sender {
 public:
  explicit ExportingSender(ExportingLog& log) : log_(log) {}
  absl::Status Reserve(int64_t, const Tensor&, absl::Time) override { return absl::OkStatus(); }
  absl::Status Put(int64_t, const Tensor&) override { return absl::InternalError("not exported"); }
  absl::StatusOr<ShareBytes> Describe(const Tensor&) override {
    if (while_describing) while_describing();
    if (!describes.ok()) return describes;
    return ShareBytes::From(int64_t{1});
  }
  absl::Status Export(int64_t sequence, const Tensor&, const ShareBytes&) override {
    MutexLock lock(log_.mutex);
    log_.exported.push_back(sequence);
    return absl::OkStatus();
  }
  bool exports() const override { return true; }
  bool Ready() const override { return true; }
  int64_t bytes_sent() const override { return 0; }
  int64_t messages_sent() const override { return 0; }

  // To be set before the courier has a tensor.
  absl::Status describes;
  std::function<void()> while_describing;

 private:
  ExportingLog& log_;
};

class ImportingReceiver : public Receiver {
 public:
  ImportingReceiver(ExportingLog& log, FakeDevice& device) : log_(log), device_(device) {}
  absl::StatusOr<Arrival> Take(const TensorExpectation& expected, absl::Time) override {
    return Arrival{.sequence = expected.sequence,
                   .tensor = {Buffer(), expected.dtype, expected.shape},
                   .exported = ShareBytes::From(int64_t{1})};
  }
  absl::StatusOr<Importer::Fetched> Fetch(const Arrival& exported) override {
    if (!fetches.ok()) return fetches;
    return Importer::Fetched{
        .tensor = device_.pool().AcquireTensor(exported.tensor.dtype, exported.tensor.shape),
        .ticket = device_.NextTicket()};
  }
  void Release() override {
    MutexLock lock(log_.mutex);
    ++log_.released;
  }
  bool Ready() const override { return true; }
  std::optional<Waiting> FirstWaiting() const override { return std::nullopt; }
  void RingOnArrival(Doorbell* /*bell*/) override {}

  absl::Status fetches;

 private:
  ExportingLog& log_;
  FakeDevice& device_;
};

TEST_F(CourierTest, ExportingEdge_TensorIsExportedWhenTheDeviceHasWrittenIt) {
  ExportingLog log;
  ExportingSender sender(log);
  ASSERT_THAT(Send(sender, 4), IsOk());
  ASSERT_THAT(Send(sender, 5), IsOk());
  GiveOthersTime();
  EXPECT_THAT(log.Exported(), IsEmpty());
  device_.Finish(1);
  device_.Finish(0);
  ASSERT_THAT(courier_->Drain(Later()), IsOk());
  EXPECT_THAT(log.Exported(), ElementsAre(4, 5));
}

TEST_F(CourierTest, ExportingEdge_TensorCannotBeNamed_BlamesNoPeer) {
  ExportingLog log;
  ExportingSender sender(log);
  sender.describes = absl::UnavailableError("no handle");
  ASSERT_THAT(Send(sender, 0), IsOk());
  device_.Finish(0);
  const auto failed = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no handle"));
  EXPECT_THAT(courier_->Drain(Later()), failed);
  EXPECT_FALSE(courier_->peer_failed());
  EXPECT_THAT(Send(sender, 1), failed);
  EXPECT_FALSE(courier_->peer_failed());
}

TEST_F(CourierTest, ExportingEdge_TensorIsBeingNamed_NobodyElseWaits) {
  ExportingLog log;
  ExportingSender sender(log);
  std::promise<void> described;
  sender.while_describing = [may_go_on = described.get_future().share()] { may_go_on.wait(); };
  Edge& other = Open({EdgeKind::kCollective, 0, 1}, 2);
  ASSERT_THAT(Send(sender, 0), IsOk());
  device_.Finish(0);
  GiveOthersTime();
  // Behind it on its edge, and on another edge: both calls return.
  ASSERT_THAT(Send(sender, 1), IsOk());
  ASSERT_THAT(Send(*other.sender, 7), IsOk());
  device_.Finish(1);
  device_.Finish(2);
  EXPECT_THAT(courier_->Drain(Soon()), StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
  EXPECT_THAT(log.Exported(), IsEmpty());
  described.set_value();
  ASSERT_THAT(courier_->Drain(Later()), IsOk());
  EXPECT_THAT(log.Exported(), ElementsAre(0, 1));
}

TEST_F(CourierTest, Destruction_DeviceHangs_EndsAndTheMemoryIsNotGivenOutAgain) {
  courier_ = std::make_unique<Courier>(device_, absl::Milliseconds(20));
  ExportingLog log;
  ExportingSender sender(log);
  const Tensor tensor = Holding(1.0f);
  ASSERT_THAT(courier_->Send(sender, 0, tensor, Later()), IsOk());
  courier_.reset();
  EXPECT_TRUE(tensor.buffer.shared());
  // The lost reference is dropped here after all, for leak checkers.
  void* block = Buffer(tensor.buffer).Detach();
  Buffer::Attach(block);
  Buffer::Attach(block);
  EXPECT_FALSE(tensor.buffer.shared());
}

TEST_F(CourierTest, ImportingEdge_FetchFails_BlamesWhoseErrorItIs) {
  ExportingLog log;
  for (const auto& [error, peer] : {std::pair(absl::InvalidArgumentError("not a descriptor"), true),
                                    std::pair(absl::UnavailableError("cannot be opened"), true),
                                    std::pair(absl::ResourceExhaustedError("no memory"), false),
                                    std::pair(absl::InternalError("illegal address"), false)}) {
    ImportingReceiver receiver(log, device_);
    receiver.fetches = error;
    EXPECT_EQ(courier_->Receive(receiver, {0, DType::kF32, {1}}, Later()).status(), error);
    EXPECT_EQ(courier_->peer_failed(), peer) << error;
  }
}

TEST_F(CourierTest, ImportingEdge_CancelledWhileTheCopyRuns_UsesTheTicketUpAndReleasesNothing) {
  ExportingLog log;
  ImportingReceiver receiver(log, device_);
  ASSERT_THAT(courier_->Receive(receiver, {0, DType::kF32, {1}}, Later()), IsOk());
  courier_->Cancel(absl::AbortedError("the user said stop"));
  device_.Finish(0);
  EXPECT_TRUE(Eventually([&] { return device_.tickets_out() == 0; }));
  EXPECT_EQ(log.Released(), 0);
}

TEST_F(CourierTest, ImportingEdge_ExporterHearsWhenTheCopyIsDone) {
  ExportingLog log;
  ImportingReceiver receiver(log, device_);
  EXPECT_THAT(courier_->Receive(receiver, {0, DType::kF32, {1}}, Later()), IsOk());
  GiveOthersTime();
  EXPECT_EQ(log.Released(), 0);
  device_.Finish(0);
  ASSERT_THAT(courier_->Drain(Later()), IsOk());
  EXPECT_EQ(log.Released(), 1);
}

TEST_F(CourierTest, ImportingEdge_CopyDoneAtOnce_ReleasesAtOnce) {
  device_.FinishAll();
  ExportingLog log;
  ImportingReceiver receiver(log, device_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Courier::Received received,
                                courier_->Receive(receiver, {0, DType::kF32, {1}}, Later()));
  EXPECT_TRUE(received.fetched);  // so it counts as no copy from the host
  EXPECT_EQ(log.Released(), 1);
}

TEST_F(CourierTest, Receive_FromHostMemory_IsNotFetched) {
  Edge& edge = Open({EdgeKind::kGradient, 1, 0}, 1);
  ASSERT_THAT(edge.sender->Send(0, Holding(7.0f), Later()), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Courier::Received received,
                                courier_->Receive(*edge.receiver, {0, DType::kF32, {1}}, Later()));
  EXPECT_FALSE(received.fetched);
  EXPECT_EQ(*received.tensor.data<float>(), 7.0f);
}

TEST_F(CourierTest, ImportingEdge_CopyFails_NextReceiveSaysSo) {
  ExportingLog log;
  ImportingReceiver receiver(log, device_);
  ASSERT_THAT(courier_->Receive(receiver, {0, DType::kF32, {1}}, Later()), IsOk());
  device_.Finish(0, absl::InternalError("illegal address"));
  EXPECT_THAT(courier_->Drain(Later()), StatusIs(absl::StatusCode::kInternal, ::testing::_));
  EXPECT_THAT(courier_->Receive(receiver, {1, DType::kF32, {1}}, Later()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("illegal address")));
  EXPECT_EQ(log.Released(), 0);
}

}  // namespace
}  // namespace penstock
