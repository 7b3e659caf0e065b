// The gRPC transport between two servers on loopback: the suite all transports pass, and what only a
// network has.
#include "services/transport/grpc_transport.h"

#include "base/heartbeat.h"
#include "tests/services/transport/cluster.h"
#include "tests/services/transport/exporting_pair.h"
#include "tests/worker/transport_suite.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GrpcPair : public TransportPair {
 public:
  Transport& transport(int worker) override { return *cluster_.workers[worker].transport; }
  BufferPool& pool(int worker) override { return cluster_.workers[worker].pool; }
  void Kill(int) override {
    // All connections of the pair have the dead worker at one end.
    for (TestWorker& worker : cluster_.workers) worker.proxy->Cut();
  }

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

// Connections are made anew so that certificates are looked at again; that must not end a run.
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

TEST(GrpcTransport, BitFlippedOnTheWay_ReceiveIsDataLossAndNamesTheMessage) {
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
