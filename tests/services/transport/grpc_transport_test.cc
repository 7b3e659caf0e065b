// The gRPC transport between two servers on loopback: the suite all transports pass, and what only a
// network has.
#include "services/transport/grpc_transport.h"

#include <functional>
#include <thread>

#include "base/heartbeat.h"
#include "tests/services/transport/cluster.h"
#include "tests/services/transport/exporting_pair.h"
#include "tests/worker/transport_suite.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class GrpcPair : public TransportPair {
 public:
  Transport& transport(int worker) override { return *cluster_.workers[worker].transport; }
  BufferPool& pool(int worker) override { return cluster_.workers[worker].pool; }
  void Kill(int) override {
    // All connections of the pair have the dead worker at one end.
    for (TestWorker& worker : cluster_.workers) worker.proxy->Cut();
  }
  void Interrupt() override { cluster_.Interrupt(); }

 private:
  TestCluster cluster_;
};

INSTANTIATE_TEST_SUITE_P(Grpc, TransportSuite, ::testing::Values(TransportPairFactory([] {
                           return std::make_unique<GrpcPair>();
                         })));

INSTANTIATE_TEST_SUITE_P(Exporting, TransportSuite, ::testing::Values(TransportPairFactory([] {
                           return std::make_unique<ExportingPair>();
                         })));

constexpr EdgeId kEdge = {EdgeKind::kActivation, 0, 1};
constexpr int64_t kLimit = 1 << 24;

absl::Time Later() { return absl::Now() + absl::Seconds(20); }

Tensor Filled(BufferPool& pool, const Shape& shape, char byte) {
  Tensor tensor = pool.AcquireTensor(DType::kF32, shape);
  std::memset(tensor.data<void>(), byte, tensor.size_bytes());
  return tensor;
}

TEST(GrpcTransport, SenderOpensLongBeforeReceiver_StreamWaits) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'),
                           absl::Now() + absl::Milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("right")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
  EXPECT_THAT(receiver->Receive({0, DType::kF32, {4}}, Later()), IsOk());
}

TEST(GrpcTransport, StreamCutWhileItWaitsForTheReceiver_AnotherOneIsWelcomed) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  absl::SleepFor(absl::Milliseconds(100));
  cluster.Interrupt();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
  EXPECT_THAT(receiver->Receive({0, DType::kF32, {4}}, Later()), IsOk());
}

TEST(GrpcTransport, SenderLeavesAfterItsLastMessage_MessageStillArrives) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 2, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 2, kLimit));
  const Shape large = {1 << 21};
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, large, 'a'), Later()), IsOk());
  EXPECT_THAT(sender->Send(1, Filled(cluster.workers[0].pool, large, 'b'), Later()), IsOk());
  sender.reset();
  cluster.workers[0].transport.reset();
  EXPECT_THAT(receiver->Receive({0, DType::kF32, large}, Later()), IsOk());
  EXPECT_THAT(receiver->Receive({1, DType::kF32, large}, Later()), IsOk());
  EXPECT_THAT(receiver->Receive({2, DType::kF32, large}, Later()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("worker left")));
}

// Connections are made again so that certificates are looked at again; that must not end a run.
TEST(GrpcTransport, ConnectionThatIsTooOldForNewCalls_StreamGoesOn) {
  constexpr absl::Duration kAge = absl::Milliseconds(100);
  TestCluster cluster(/*epoch=*/1, kAge);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  const absl::Time until = absl::Now() + 10 * kAge;
  for (int64_t i = 0; absl::Now() < until; ++i) {
    ASSERT_THAT(sender->Send(i, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
    ASSERT_THAT(receiver->Receive({i, DType::kF32, {4}}, Later()), IsOk());
  }
}

TEST(GrpcTransport, ReceiverLeaves_SendIsAborted) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
  cluster.right().Cancel(absl::InternalError("disk full"));
  EXPECT_THAT(sender->Send(1, Filled(cluster.workers[0].pool, {4}, 'a'), Later()),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("0->1"), HasSubstr("right"), HasSubstr("disk full"))));
}

TEST(GrpcTransport, SenderOfAnOlderEpoch_IsTurnedAwayOnBothSides) {
  TestCluster cluster;
  cluster.Join(1, 3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("right"), HasSubstr("epoch 1 is over"))));
  MutexLock lock(cluster.workers[1].mutex);
  EXPECT_THAT(cluster.workers[1].refused,
              StatusIs(absl::StatusCode::kAborted, AllOf(HasSubstr("left"), HasSubstr("epoch 1"))));
}

TEST(GrpcTransport, SenderOfANewerEpoch_WaitsForTheReceiverToJoinIt) {
  TestCluster cluster;
  cluster.Join(0, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  cluster.Join(1, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
}

TEST(GrpcTransport, Join_TwiceOrAnOlderEpoch_IsRefused) {
  TestCluster cluster(5);
  EXPECT_THAT(cluster.workers[0].hub.Join(cluster.Peers(0, 5)),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("epoch 5")));
  EXPECT_THAT(cluster.workers[0].hub.Join(cluster.Peers(0, 4)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 4 is over")));
  cluster.workers[0].transport.reset();
  EXPECT_THAT(cluster.workers[0].hub.Join(cluster.Peers(0, 5)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 5 is over")));
}

TEST(GrpcTransport, Join_PeersThatDoNotFit_IsRefused) {
  TestCluster cluster;
  RunPeers peers = cluster.Peers(0, 2);
  peers.worker_of_stage = {0, 2};
  EXPECT_THAT(cluster.workers[0].hub.Join(peers),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(kTestJob)));
}

TEST(GrpcTransport, EndsWithDifferentWindows_BothHearIt) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 2, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 3, kLimit));
  const auto both_windows = AllOf(HasSubstr("window of 2"), HasSubstr("of 3"));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()),
              StatusIs(absl::StatusCode::kFailedPrecondition, both_windows));
  EXPECT_THAT(receiver->Receive({0, DType::kF32, {4}}, Later()),
              StatusIs(absl::StatusCode::kFailedPrecondition, both_windows));
}

TEST(GrpcTransport, ReceiverRestarted_OldIncarnationIsTurnedAway) {
  TestCluster cluster;
  RunPeers peers = cluster.Peers(1, 2);
  peers.workers[1].incarnation = 23;
  cluster.Join(0, 2);
  cluster.workers[1].transport.reset();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(cluster.workers[1].transport, cluster.workers[1].hub.Join(peers));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("restarted")));
}

TEST(GrpcTransport, NobodyListens_SendIsUnavailableWithTheName) {
  TestCluster cluster;
  cluster.workers[1].proxy->Cut();
  absl::SleepFor(absl::Milliseconds(50));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  EXPECT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker right")));
}

// A worker that is frozen for less than the time after which it counts as lost.
TEST(GrpcTransport, NetworkFrozenForLessThanAWorkerMayBeSilent_StreamGoesOn) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  const Tensor tensor = Filled(cluster.workers[0].pool, {4}, 'a');
  ASSERT_THAT(sender->Send(0, tensor, Later()), IsOk());
  ASSERT_THAT(receiver->Receive({0, DType::kF32, {4}}, Later()), IsOk());
  cluster.workers[1].proxy->Freeze();
  absl::SleepFor(absl::Milliseconds(kHeartbeatTimeoutMs - 200));
  cluster.workers[1].proxy->Thaw();
  ASSERT_THAT(sender->Send(1, tensor, Later()), IsOk());
  EXPECT_THAT(receiver->Receive({1, DType::kF32, {4}}, Later()), IsOk());
}

// Keepalive (1 s + 4 s) notices what no closed socket tells; the generous limit is the test's.
TEST(GrpcTransport, FrozenNetwork_BothEndsAreUnavailable) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  const Tensor tensor = Filled(cluster.workers[0].pool, {4}, 'a');
  ASSERT_THAT(sender->Send(0, tensor, Later()), IsOk());
  ASSERT_THAT(receiver->Receive({0, DType::kF32, {4}}, Later()), IsOk());
  cluster.workers[1].proxy->Freeze();
  EXPECT_THAT(receiver->Receive({1, DType::kF32, {4}}, Later()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker left")));
  absl::Status sent;
  for (int i = 1; sent.ok() && i < 4; ++i) sent = sender->Send(i, tensor, Later());
  EXPECT_THAT(sent, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker right")));
}

// ------------------------------------------------------------------- what a network does, and gets over

// An edge with tensors of a number each, whose network is played with while they travel.
class DisturbedEdge {
 public:
  static constexpr int64_t kElements = 1000;
  static constexpr int kCapacity = 3;

  explicit DisturbedEdge(const StreamLimits& limits = {}, int64_t elements = kElements)
      : elements_(elements), cluster_(/*epoch=*/1, rpc_limits::kConnectionAge, limits) {
    auto receiver = cluster_.right().OpenReceiver(kEdge, kCapacity, kLimit, pool(1));
    auto sender = cluster_.left().OpenSender(kEdge, kCapacity, kLimit);
    EXPECT_THAT(receiver, IsOk());
    EXPECT_THAT(sender, IsOk());
    receiver_ = *std::move(receiver);
    sender_ = *std::move(sender);
  }

  absl::Status Send(int64_t message) {
    Tensor tensor = pool(0).AcquireTensor(DType::kF32, {elements_});
    for (int64_t i = 0; i < elements_; ++i) tensor.data<float>()[i] = Value(message, i);
    return sender_->Send(message, tensor, Later());
  }
  void ExpectArrives(int64_t message) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor tensor,
                                  receiver_->Receive({message, DType::kF32, {elements_}}, Later()));
    for (int64_t i = 0; i < elements_; ++i) ASSERT_EQ(tensor.data<float>()[i], Value(message, i));
  }
  // Sends and receives messages from `first` on, and calls `disturb` when half have arrived.
  void Exchange(int64_t first, int64_t count, const std::function<void(TcpProxy&)>& disturb) {
    std::thread sender([&] {
      for (int64_t m = first; m < first + count; ++m) ASSERT_THAT(Send(m), IsOk()) << m;
    });
    for (int64_t m = first; m < first + count; ++m) {
      if (m == first + count / 2) disturb(*cluster_.workers[1].proxy);
      ExpectArrives(m);
    }
    sender.join();
  }
  LinkTraffic Traffic(int worker) {
    const std::vector<LinkTraffic> traffic = cluster_.workers[worker].hub.Traffic(kTestJob);
    EXPECT_EQ(traffic.size(), 1u);
    return traffic.empty() ? LinkTraffic() : traffic[0];
  }
  std::vector<std::string> Disturbed(int worker) {
    MutexLock lock(cluster_.workers[worker].mutex);
    return cluster_.workers[worker].disturbed;
  }
  BufferPool& pool(int worker) { return cluster_.workers[worker].pool; }
  TestCluster& cluster() { return cluster_; }
  Sender& sender() { return *sender_; }
  void DropSender() {
    sender_.reset();
    cluster_.workers[0].transport.reset();
  }
  absl::Status Receive(int64_t message) {
    return receiver_->Receive({message, DType::kF32, {elements_}}, Later()).status();
  }

 private:
  static float Value(int64_t message, int64_t i) { return float(message * 37 + i % 911); }

  const int64_t elements_;  // of a message
  TestCluster cluster_;
  std::unique_ptr<Receiver> receiver_;
  std::unique_ptr<Sender> sender_;
};

TEST(DisturbedEdge, AllConnectionsCut_GoesOnOverAnother) {
  DisturbedEdge edge;
  edge.Exchange(0, 100, [](TcpProxy& proxy) {
    proxy.Interrupt();
    absl::SleepFor(absl::Milliseconds(50));
    proxy.Thaw();
  });
  EXPECT_GE(edge.Traffic(0).redials, 1);
  EXPECT_GE(edge.Traffic(1).redials, 1);
  EXPECT_EQ(edge.Traffic(0).messages, 100);
  EXPECT_EQ(edge.Traffic(1).messages, 100) << "each counts once";
  EXPECT_THAT(edge.Disturbed(0),
              AllOf(Contains(AllOf(HasSubstr("activation 0->1 to worker right"), HasSubstr("broke"),
                                   HasSubstr("dialled again"))),
                    Contains(HasSubstr("there again"))));
  EXPECT_THAT(edge.Disturbed(1), Contains(AllOf(HasSubstr("activation 0->1 from worker left"),
                                                HasSubstr("there again"))));
}

TEST(DisturbedEdge, LinkDownForASecond_GoesOn) {
  DisturbedEdge edge;
  edge.Exchange(0, 20, [](TcpProxy& proxy) {
    proxy.Interrupt();
    absl::SleepFor(absl::Seconds(1));
    proxy.Thaw();
  });
}

TEST(DisturbedEdge, CutAgainAndAgain_EachMessageArrivesOnce) {
  DisturbedEdge edge;
  for (int64_t round = 0; round < 10; ++round) {
    edge.Exchange(20 * round, 20, [](TcpProxy& proxy) {
      proxy.Interrupt();
      absl::SleepFor(absl::Milliseconds(20));
      proxy.Thaw();
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(DisturbedEdge, BitFlipped_TensorIsAskedForAgainOnTheSameStream) {
  DisturbedEdge edge;
  for (int64_t m = 0; m < 4; ++m) {
    if (m == 2) edge.cluster().workers[1].proxy->Play(TcpProxy::Trick::kFlip);
    ASSERT_THAT(edge.Send(m), IsOk());
    edge.ExpectArrives(m);
  }
  EXPECT_EQ(edge.Traffic(1).damaged, 1);
  EXPECT_EQ(edge.Traffic(1).redials, 0);
  EXPECT_EQ(edge.Traffic(0).resent, 1);
  EXPECT_EQ(edge.cluster().workers[1].hub.rejected().count(Rejection::kCorrupt), 1);
  EXPECT_THAT(edge.Disturbed(1),
              Contains(AllOf(HasSubstr("payload checksum"), HasSubstr("asked for again"))));
}

// HTTP/2 loses its place, and waits for what never comes until keepalive ends the connection.
TEST(DisturbedEdge, BytesDroppedOrBroughtTwice_GoesOn) {
  for (const TcpProxy::Trick trick : {TcpProxy::Trick::kDrop, TcpProxy::Trick::kDuplicate}) {
    DisturbedEdge edge;
    edge.Exchange(0, 40, [trick](TcpProxy& proxy) { proxy.Play(trick); });
    EXPECT_TRUE(edge.cluster().workers[1].proxy->has_played());
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// HTTP/2 keeps its place, and nothing follows that would show the loss.
TEST(DisturbedEdge, WholeMessageLost_ArrivesAfterAQuestion) {
  DisturbedEdge edge;
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  edge.cluster().workers[1].proxy->Play(TcpProxy::Trick::kLose);
  ASSERT_THAT(edge.Send(1), IsOk());
  edge.ExpectArrives(1);
  EXPECT_TRUE(edge.cluster().workers[1].proxy->has_played());
  EXPECT_GE(edge.Traffic(0).resent, 1);
  EXPECT_EQ(edge.Traffic(0).redials, 0);
  EXPECT_THAT(edge.Disturbed(1),
              Contains(AllOf(HasSubstr("number 1 of the edge was lost"), HasSubstr("again"))));
}

// Sooner than keepalive would, which the limit of a product's stream leaves to go first.
TEST(DisturbedEdge, MuteStream_IsDialledAgain) {
  StreamLimits limits;
  limits.ask_min = absl::Milliseconds(50);
  limits.silence = absl::Milliseconds(200);
  DisturbedEdge edge(limits);
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  TcpProxy& proxy = *edge.cluster().workers[1].proxy;
  proxy.Freeze();
  ASSERT_THAT(edge.Send(1), IsOk());
  absl::SleepFor(absl::Seconds(1));
  proxy.Thaw();
  edge.ExpectArrives(1);
  EXPECT_GE(edge.Traffic(0).redials, 1);
  EXPECT_THAT(edge.Disturbed(0), Contains(HasSubstr("took and answered nothing for 200ms")));
}

// The connection holds, and nothing comes through it: a peer that reads nothing, or a window that stays closed.
TEST(DisturbedEdge, ConnectionThatTakesNothing_GoesOnOverAnotherLongBeforeKeepalive) {
  DisturbedEdge edge;
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  edge.cluster().workers[1].proxy->StallOpen();
  ASSERT_THAT(edge.Send(1), IsOk());
  edge.ExpectArrives(1);
  EXPECT_GE(edge.Traffic(0).redials, 1);
  EXPECT_THAT(edge.Disturbed(0), Contains(HasSubstr("took and answered nothing for 1s")));
}

TEST(DisturbedEdge, SilentReceiver_IsToldUntilItAnswers) {
  StreamLimits limits;
  limits.ask_min = limits.silence = limits.dial = absl::Milliseconds(50);
  DisturbedEdge edge(limits);
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  EXPECT_EQ(edge.Traffic(0).silent_ns, 0);
  edge.cluster().workers[1].proxy->Freeze();
  ASSERT_THAT(edge.Send(1), IsOk());
  while (edge.Traffic(0).silent_ns < 500'000'000) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GE(edge.Traffic(0).redials, 1) << "it is the silence of all its streams";
  edge.cluster().workers[1].proxy->Thaw();
  edge.ExpectArrives(1);
  while (edge.Traffic(0).silent_ns > 0) absl::SleepFor(absl::Milliseconds(10));
}

// What could not leave comes back when its stream is given up, and says nothing of the receiver.
TEST(DisturbedEdge, WriteThatIsGivenUp_EndsNoSilence) {
  StreamLimits limits;
  limits.ask_min = limits.dial = absl::Milliseconds(50);
  limits.silence = absl::Milliseconds(400);
  DisturbedEdge edge(limits, /*elements=*/4 << 20);
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  edge.cluster().workers[1].proxy->Freeze();
  ASSERT_THAT(edge.Send(1), IsOk());
  while (edge.Traffic(0).redials == 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GE(edge.Traffic(0).silent_ns, absl::ToInt64Nanoseconds(limits.silence));
  edge.cluster().workers[1].proxy->Thaw();
  edge.ExpectArrives(1);
}

// It is busy for long, and the sender asks now and then.
TEST(DisturbedEdge, ReceiverThatTakesNothing_IsNotSilent) {
  StreamLimits limits;
  limits.ask_min = absl::Milliseconds(20);
  limits.silence = absl::Milliseconds(500);
  DisturbedEdge edge(limits);
  for (int m = 0; m < DisturbedEdge::kCapacity; ++m) ASSERT_THAT(edge.Send(m), IsOk());
  absl::SleepFor(absl::Seconds(1));
  for (int m = 0; m < DisturbedEdge::kCapacity; ++m) edge.ExpectArrives(m);
  EXPECT_EQ(edge.Traffic(0).redials, 0);
}

TEST(DisturbedEdge, SenderThatHasLeft_StillBringsWhatDidNotArrive) {
  DisturbedEdge edge;
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  TcpProxy& proxy = *edge.cluster().workers[1].proxy;
  proxy.Interrupt();
  absl::SleepFor(absl::Milliseconds(50));
  ASSERT_THAT(edge.Send(1), IsOk());
  ASSERT_THAT(edge.Send(2), IsOk());
  edge.DropSender();
  proxy.Thaw();
  edge.ExpectArrives(1);
  edge.ExpectArrives(2);
  EXPECT_THAT(edge.Receive(3), StatusIs(absl::StatusCode::kAborted, HasSubstr("worker left")));
}

// The sender has ended the stream when it hears that it must send again.
TEST(DisturbedEdge, LastMessageDamaged_ArrivesThoughTheSenderHasLeft) {
  DisturbedEdge edge;
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  edge.cluster().workers[1].proxy->Play(TcpProxy::Trick::kFlip);
  ASSERT_THAT(edge.Send(1), IsOk());
  edge.DropSender();
  edge.ExpectArrives(1);
  EXPECT_THAT(edge.Receive(2), StatusIs(absl::StatusCode::kAborted, HasSubstr("worker left")));
}

TEST(DisturbedEdge, CancelledWhileBroken_EndsAtOnce) {
  DisturbedEdge edge;
  ASSERT_THAT(edge.Send(0), IsOk());
  edge.ExpectArrives(0);
  edge.cluster().workers[1].proxy->Interrupt();
  absl::SleepFor(absl::Milliseconds(100));
  const absl::Time before = absl::Now();
  edge.cluster().left().Cancel(absl::AbortedError("the user said stop"));
  edge.cluster().right().Cancel(absl::AbortedError("the user said stop"));
  EXPECT_THAT(edge.Send(1), StatusIs(absl::StatusCode::kAborted, HasSubstr("said stop")));
  EXPECT_THAT(edge.Receive(1), StatusIs(absl::StatusCode::kAborted, HasSubstr("said stop")));
  EXPECT_LT(absl::Now() - before, absl::Seconds(1));
}

// What came does not stay with the sender until the receiver's executor takes it.
TEST(DisturbedEdge, SenderKeepsFewOfTheMessagesThatHaveCome) {
  DisturbedEdge edge;
  for (int64_t m = 0; m < DisturbedEdge::kCapacity; ++m) ASSERT_THAT(edge.Send(m), IsOk());
  const int64_t kept_max =
      (ReceivingStream::kUntoldMax - 1) * BufferPool::BlockBytes(4 * DisturbedEdge::kElements);
  bool kept_few = false;
  for (int attempt = 0; attempt < 2000 && !kept_few; ++attempt) {
    absl::SleepFor(absl::Milliseconds(5));
    kept_few = edge.pool(0).stats().bytes_in_use <= kept_max;
  }
  EXPECT_TRUE(kept_few) << edge.pool(0).stats().bytes_in_use << " bytes";
}

TEST(GrpcTransport, PeerThatStaysAway_IsNamedWithTheTimeAndTheLastError) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  ASSERT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
  ASSERT_THAT(receiver->Receive({0, DType::kF32, {4}}, Later()), IsOk());
  cluster.workers[1].proxy->Cut();
  EXPECT_THAT(
      receiver->Receive({1, DType::kF32, {4}}, Later()),
      StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("0->1"), HasSubstr("worker left"),
                                                     HasSubstr("no tensor stream here for 2s"))));
  absl::Status sent;
  for (int i = 1; sent.ok() && i < 3; ++i) {
    sent = sender->Send(i, Filled(cluster.workers[0].pool, {4}, 'a'), Later());
  }
  EXPECT_THAT(sent, StatusIs(absl::StatusCode::kUnavailable,
                             AllOf(HasSubstr("0->1"), HasSubstr("worker right"),
                                   HasSubstr("no stream to it has held"), HasSubstr("dialled"))));
}

TEST(GrpcTransport, BitsFlippedAgainAndAgain_ReceiveIsDataLossAndNamesTheMessage) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  ASSERT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
  ASSERT_THAT(receiver->Receive({0, DType::kF32, {4}}, Later()), IsOk());
  cluster.workers[1].proxy->Corrupt();
  ASSERT_THAT(sender->Send(1, Filled(cluster.workers[0].pool, {1000}, 'Z'), Later()), IsOk());
  const auto names_all =
      AllOf(HasSubstr("message 1"), HasSubstr("[1000]"), HasSubstr("0->1"), HasSubstr("checksum"));
  EXPECT_THAT(receiver->Receive({1, DType::kF32, {1000}}, Later()),
              StatusIs(absl::StatusCode::kDataLoss, names_all));
  EXPECT_THAT(sender->Send(2, Filled(cluster.workers[0].pool, {4}, 'a'), Later()),
              StatusIs(absl::StatusCode::kDataLoss, names_all));
}

TEST(GrpcTransport, ServerShutsDownInMidRun_NothingHangs) {
  TestCluster cluster;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      auto receiver, cluster.right().OpenReceiver(kEdge, 1, kLimit, cluster.workers[1].pool));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster.left().OpenSender(kEdge, 1, kLimit));
  ASSERT_THAT(sender->Send(0, Filled(cluster.workers[0].pool, {4}, 'a'), Later()), IsOk());
  std::thread shutdown([&] { cluster.workers[1].server.Shutdown(absl::Milliseconds(100)); });
  EXPECT_FALSE(sender->Send(1, Filled(cluster.workers[0].pool, {4}, 'a'), Later()).ok());
  shutdown.join();
}

}  // namespace
}  // namespace penstock
