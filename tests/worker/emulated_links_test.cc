#include "worker/emulated_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "absl/time/clock.h"
#include "compute/backend.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/memory_transport.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr EdgeId kEdge = {EdgeKind::kActivation, 0, 1};
constexpr int64_t kFloats = 1000;

// Stage 0 on worker 1, and stage 1 on worker 0.
class EmulatedLinksTest : public ::testing::Test {
 protected:
  EmulatedLinksTest() : network_({"left", "right"}, {1, 0}) {}

  void Open(WorkerLinks links, const EdgeId& edge = kEdge) {
    const int from = edge.kind == EdgeKind::kCollective ? edge.source : 1;
    sending_below_ = network_.MakeTransport(from);
    receiving_below_ = network_.MakeTransport(1 - from);
    const std::vector<WorkerId> worker_of = {WorkerId(1), WorkerId(0)};
    sending_ = std::make_unique<EmulatedLinks>(*sending_below_, links, worker_of);
    receiving_ = std::make_unique<EmulatedLinks>(*receiving_below_, links, worker_of);
    sender_ = *sending_->OpenSender(edge, 8, 1 << 20);
    receiver_ = *receiving_->OpenReceiver(edge, 8, 1 << 20, pool_);
  }

  absl::Status Send(int64_t sequence) {
    Tensor tensor = pool_.AcquireTensor(DType::kF32, {kFloats});
    tensor.data<float>()[0] = static_cast<float>(sequence);
    return sender_->Send(sequence, tensor, absl::Now() + absl::Seconds(60));
  }
  absl::StatusOr<Tensor> Receive(int64_t sequence, absl::Duration timeout = absl::Seconds(60)) {
    return receiver_->Receive({sequence, DType::kF32, {kFloats}}, absl::Now() + timeout);
  }
  // Since the test began.
  absl::Duration Elapsed() const { return absl::FromChrono(CondVar::Clock::now() - begin_); }

  BufferPool pool_{HostMemory()};
  MemoryNetwork network_;
  std::unique_ptr<Transport> sending_below_, receiving_below_;
  std::unique_ptr<EmulatedLinks> sending_, receiving_;
  std::unique_ptr<Sender> sender_;
  std::unique_ptr<Receiver> receiver_;
  const CondVar::Clock::time_point begin_ = CondVar::Clock::now();
};

TEST_F(EmulatedLinksTest, Message_IsThereAfterTheLatencyAndNotBefore) {
  Open({.others = {.latency_s = 0.03}});
  EXPECT_FALSE(receiver_->Ready());
  ASSERT_THAT(Send(0), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor tensor, Receive(0));
  EXPECT_GE(Elapsed(), absl::Milliseconds(30));
  EXPECT_EQ(tensor.data<float>()[0], 0.0f);
}

TEST_F(EmulatedLinksTest, Messages_GoOverTheLinkOneAfterTheOther) {
  // 4,000 bytes take 10 ms.
  Open({.others = {.bytes_per_second = 4e5, .latency_s = 0.01}});
  for (int64_t i = 0; i < 4; ++i) ASSERT_THAT(Send(i), IsOk());
  for (int64_t i = 0; i < 4; ++i) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor tensor, Receive(i));
    EXPECT_EQ(tensor.data<float>()[0], static_cast<float>(i));
    EXPECT_GE(Elapsed(), absl::Milliseconds(10 * (i + 1) + 10));
  }
}

TEST_F(EmulatedLinksTest, HeldBackMessage_IsNotReady_AndKeepsItsPlaceInTheWindow) {
  Open({.others = {.latency_s = 1000.0}});
  for (int64_t i = 0; i < 8; ++i) ASSERT_THAT(Send(i), IsOk());
  EXPECT_TRUE(receiver_->FirstWaiting().has_value());
  EXPECT_FALSE(receiver_->Ready());
  EXPECT_FALSE(sender_->Ready()) << "the window has eight";
  EXPECT_THAT(Receive(0, absl::Milliseconds(5)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("emulated link")));
  EXPECT_FALSE(sender_->Ready());
}

TEST_F(EmulatedLinksTest, WithoutAMessage_TheDeadlineHolds) {
  Open({.others = {.latency_s = 0.01}});
  EXPECT_THAT(Receive(0, absl::Milliseconds(5)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no message in time")));
}

TEST_F(EmulatedLinksTest, Cancel_EndsTheWaitForAMessageThatIsHeldBack) {
  Open({.others = {.latency_s = 1000.0}});
  ASSERT_THAT(Send(0), IsOk());
  std::thread canceller([this] { receiving_->Cancel(absl::AbortedError("enough")); });
  EXPECT_THAT(Receive(0, absl::Hours(1)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("enough")));
  canceller.join();
  EXPECT_TRUE(receiver_->Ready()) << "nothing to wait for any more";
}

TEST_F(EmulatedLinksTest, Link_IsThatOfTheWorkersOfTheStages) {
  WorkerLinks links = {.others = {.latency_s = 1000.0}};
  links.pairs[{0, 1}] = {};
  Open(links);
  ASSERT_THAT(Send(0), IsOk());
  EXPECT_TRUE(receiver_->Ready());
  EXPECT_THAT(Receive(0), IsOk());
}

TEST_F(EmulatedLinksTest, Collective_IsBetweenWorkers) {
  WorkerLinks links;
  links.pairs[{0, 1}] = {.latency_s = 1000.0};
  Open(links, {EdgeKind::kCollective, 0, 1});
  ASSERT_THAT(Send(0), IsOk());
  EXPECT_FALSE(receiver_->Ready());
}

}  // namespace
}  // namespace penstock
