#include "services/transport/outbound_edge.h"

#include "compute/buffer_pool.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr int kPlaces = 3;

class OutboundEdgeTest : public ::testing::Test {
 protected:
  absl::Status Put(int64_t sequence, bool exported = false) {
    Message message = {.sequence = sequence, .tensor = pool_.AcquireTensor(DType::kF32, {16})};
    if (exported) message.exported = ShareBytes::From(sequence);
    const absl::Status reserved = edge_.Reserve(sequence, absl::Now());
    return reserved.ok() ? edge_.Put(std::move(message)) : reserved;
  }
  int64_t TensorsHeld() {
    return pool_.stats().bytes_in_use / BufferPool::BlockBytes(16 * sizeof(float));
  }
  void ExpectNext(int64_t sequence) {
    const OutboundEdge::Next next = edge_.FindNext();
    ASSERT_NE(next.message, nullptr);
    EXPECT_EQ(next.message->sequence, sequence);
    edge_.MarkSent();
  }

  BufferPool pool_{HostMemory()};
  OutboundEdge edge_{"worker right", kPlaces};
};

TEST_F(OutboundEdgeTest, TensorStays_UntilTheReceiverHasIt) {
  ASSERT_THAT(edge_.Open({}), IsOkAndHolds(0));
  for (const int64_t sequence : {10, 20, 30}) ASSERT_THAT(Put(sequence), IsOk());
  EXPECT_THAT(Put(40), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("worker right")));
  for (const int64_t sequence : {10, 20, 30}) ExpectNext(sequence);
  EXPECT_EQ(TensorsHeld(), 3);
  EXPECT_THAT(edge_.Hear({.received = 2, .released = 0}), IsOkAndHolds(1));
  EXPECT_EQ(TensorsHeld(), 1);
  EXPECT_EQ(edge_.messages_waiting(), 3) << "none was taken";
  EXPECT_FALSE(edge_.Ready());
  EXPECT_THAT(edge_.Hear({.received = 2, .released = 2}), IsOkAndHolds(1));
  EXPECT_TRUE(edge_.Ready());
}

TEST_F(OutboundEdgeTest, ExportedTensorStays_UntilItIsReleased) {
  ASSERT_THAT(edge_.Open({}), IsOkAndHolds(0));
  ASSERT_THAT(Put(1, /*exported=*/true), IsOk());
  ASSERT_THAT(Put(2), IsOk());
  ExpectNext(1);
  ExpectNext(2);
  EXPECT_THAT(edge_.Hear({.received = 2, .released = 0}), IsOkAndHolds(0));
  EXPECT_EQ(TensorsHeld(), 1);
  EXPECT_THAT(edge_.Hear({.received = 2, .released = 1}), IsOkAndHolds(0));
  EXPECT_EQ(TensorsHeld(), 0);
}

TEST_F(OutboundEdgeTest, AnotherStream_BringsAgainWhatDidNotCome) {
  ASSERT_THAT(edge_.Open({}), IsOkAndHolds(0));
  for (const int64_t sequence : {10, 20, 30}) ASSERT_THAT(Put(sequence), IsOk());
  for (const int64_t sequence : {10, 20, 30}) ExpectNext(sequence);
  EXPECT_EQ(edge_.NextStream(), 0);
  EXPECT_EQ(edge_.NextStream(), 1);
  ASSERT_THAT(edge_.Open({.received = 1, .released = 1}), IsOkAndHolds(2));
  ASSERT_THAT(Put(40), IsOk());
  for (const int64_t sequence : {20, 30}) ExpectNext(sequence);
  EXPECT_EQ(edge_.meter().resent(), 2);
  ASSERT_THAT(edge_.SendAgain({.received = 2, .released = 1}), IsOkAndHolds(2));
  for (const int64_t sequence : {30, 40}) ExpectNext(sequence);
  EXPECT_EQ(edge_.meter().resent(), 3);
  EXPECT_EQ(edge_.messages_sent(), 4) << "each counts once";
}

TEST_F(OutboundEdgeTest, End_InGoodOrder_ComesAfterTheLastMessage) {
  ASSERT_THAT(edge_.Open({}), IsOkAndHolds(0));
  ASSERT_THAT(Put(1), IsOk());
  edge_.End(absl::OkStatus());
  EXPECT_THAT(edge_.Reserve(2, absl::Now()), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_EQ(edge_.FindNext().end, std::nullopt);
  ExpectNext(1);
  EXPECT_EQ(edge_.FindNext().end, absl::OkStatus());
  // On another stream, too.
  ASSERT_THAT(edge_.Open({}), IsOkAndHolds(1));
  ExpectNext(1);
  EXPECT_EQ(edge_.FindNext().end, absl::OkStatus());
}

TEST_F(OutboundEdgeTest, End_WithAReason_ComesBeforeWhatIsLeft) {
  ASSERT_THAT(edge_.Open({}), IsOkAndHolds(0));
  ASSERT_THAT(Put(1), IsOk());
  edge_.End(absl::AbortedError("stop"));
  EXPECT_EQ(edge_.FindNext().message, nullptr);
  EXPECT_EQ(edge_.FindNext().end, absl::AbortedError("stop"));
}

TEST_F(OutboundEdgeTest, Fail_EndsWaitsAndDropLetsAllGo) {
  ASSERT_THAT(edge_.Open({}), IsOkAndHolds(0));
  ASSERT_THAT(Put(1), IsOk());
  edge_.Fail(absl::UnavailableError("gone"));
  edge_.Fail(absl::AbortedError("later"));
  edge_.Drop();
  EXPECT_EQ(TensorsHeld(), 0);
  EXPECT_TRUE(edge_.Ready()) << "nobody would wait";
  EXPECT_THAT(edge_.Reserve(2, absl::Now()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
}

}  // namespace
}  // namespace penstock
