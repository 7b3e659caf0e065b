#include "tests/worker/memory_transport.h"

#include "tests/worker/transport_suite.h"

namespace penstock {
namespace {

class MemoryPair : public TransportPair {
 public:
  Transport& transport(int worker) override { return *transports_[worker]; }
  BufferPool& pool(int worker) override { return pools_[worker]; }
  void Kill(int worker) override { network_.Disconnect(worker); }

 private:
  BufferPool pools_[2] = {BufferPool(HostMemory()), BufferPool(HostMemory())};
  MemoryNetwork network_{{"left", "right"}, {0, 1}};
  std::unique_ptr<Transport> transports_[2] = {network_.MakeTransport(0),
                                               network_.MakeTransport(1)};
};

INSTANTIATE_TEST_SUITE_P(Memory, TransportSuite, ::testing::Values(TransportPairFactory([] {
                           return std::make_unique<MemoryPair>();
                         })));

TEST(MemoryTransport, Open_OtherLimitsAtBothEnds_IsRefused) {
  MemoryPair pair;
  const EdgeId edge = {EdgeKind::kCollective, 0, 1};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, pair.transport(0).OpenSender(edge, 2, 100));
  EXPECT_THAT(pair.transport(1).OpenReceiver(edge, 3, 100, pair.pool(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("capacity 2")));
}

TEST(MemoryTransport, Open_AfterThePeerDied_FailsAtTheFirstUse) {
  MemoryPair pair;
  pair.Kill(0);
  const EdgeId edge = {EdgeKind::kActivation, 0, 1};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto receiver,
                                pair.transport(1).OpenReceiver(edge, 1, 100, pair.pool(1)));
  EXPECT_THAT(receiver->Receive({0, DType::kF32, {1}}, absl::Now() + absl::Seconds(20)),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("left")));
}

}  // namespace
}  // namespace penstock
