#include "worker/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

#include "compute/buffer_pool.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

absl::Time InAMoment() { return absl::Now() + absl::Milliseconds(20); }
absl::Time InAWhile() { return absl::Now() + absl::Seconds(20); }

absl::Status Push(Mailbox& mailbox, int64_t sequence, absl::Time deadline) {
  const absl::Status reserved = mailbox.Reserve(deadline);
  return reserved.ok() ? mailbox.Push({sequence, {}, {}}) : reserved;
}

TEST(Mailbox, Pop_AfterPushes_KeepsTheOrderAroundTheRing) {
  Mailbox mailbox(3);
  int64_t next = 0;
  for (int64_t m = 0; m < 20; m += 2) {
    ASSERT_THAT(Push(mailbox, m, InAWhile()), IsOk());
    ASSERT_THAT(Push(mailbox, m + 1, InAWhile()), IsOk());
    for (int i = 0; i < 2; ++i) EXPECT_EQ(mailbox.Pop(InAWhile())->sequence, next++);
  }
}

TEST(Mailbox, Push_WhenFull_EndsAtTheDeadline) {
  Mailbox mailbox(1);
  ASSERT_THAT(Push(mailbox, 0, InAWhile()), IsOk());
  EXPECT_FALSE(mailbox.HasRoom());
  EXPECT_THAT(Push(mailbox, 1, InAMoment()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("window")));
}

TEST(Mailbox, Push_WhenFull_GoesOnAfterPop) {
  Mailbox mailbox(1);
  ASSERT_THAT(Push(mailbox, 0, InAWhile()), IsOk());
  std::thread producer([&] { ASSERT_THAT(Push(mailbox, 1, InAWhile()), IsOk()); });
  EXPECT_EQ(mailbox.Pop(InAWhile())->sequence, 0);
  EXPECT_EQ(mailbox.Pop(InAWhile())->sequence, 1);
  producer.join();
}

TEST(Mailbox, Reserve_PlacesNotFilledYet_CountAsFull) {
  Mailbox mailbox(1);
  ASSERT_THAT(mailbox.Reserve(InAWhile()), IsOk());
  EXPECT_FALSE(mailbox.HasRoom());
  EXPECT_THAT(mailbox.Reserve(InAMoment()), StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  ASSERT_THAT(mailbox.Push({0, {}, {}}), IsOk());
  EXPECT_EQ(mailbox.Pop(InAWhile())->sequence, 0);
  EXPECT_TRUE(mailbox.HasRoom());
}

TEST(Mailbox, TryPush_WhenFull_SaysTheSenderExceededItsCredit) {
  Mailbox mailbox(2);
  EXPECT_THAT(mailbox.TryPush({0, {}}), IsOk());
  EXPECT_THAT(mailbox.TryPush({1, {}}), IsOk());
  EXPECT_THAT(mailbox.TryPush({2, {}}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("message 2")));
}

TEST(Mailbox, Close_WithMessages_LetsThemBeTakenFirst) {
  Mailbox mailbox(2);
  ASSERT_THAT(Push(mailbox, 5, InAWhile()), IsOk());
  mailbox.Close(absl::AbortedError("the peer ended"));
  EXPECT_THAT(mailbox.TryPush({6, {}}), StatusIs(absl::StatusCode::kAborted, "the peer ended"));
  EXPECT_EQ(mailbox.Pop(InAWhile())->sequence, 5);
  EXPECT_THAT(mailbox.Pop(InAWhile()), StatusIs(absl::StatusCode::kAborted, "the peer ended"));
}

TEST(Mailbox, Cancel_WithMessages_DropsThemAndTheirMemory) {
  BufferPool pool(HostMemory());
  Mailbox mailbox(2);
  ASSERT_THAT(mailbox.TryPush({0, pool.AcquireTensor(DType::kF32, {8})}), IsOk());
  EXPECT_GT(pool.stats().bytes_in_use, 0);
  mailbox.Cancel(absl::UnavailableError("gone"));
  EXPECT_EQ(pool.stats().bytes_in_use, 0);
  EXPECT_THAT(mailbox.Pop(InAWhile()), StatusIs(absl::StatusCode::kUnavailable, "gone"));
}

TEST(Mailbox, Cancel_Twice_KeepsTheFirstReason) {
  Mailbox mailbox(1);
  mailbox.Cancel(absl::UnavailableError("first"));
  mailbox.Cancel(absl::AbortedError("second"));
  EXPECT_THAT(mailbox.Pop(InAWhile()), StatusIs(absl::StatusCode::kUnavailable, "first"));
}

TEST(Mailbox, Cancel_FromAnotherThread_EndsBothWaits) {
  Mailbox empty(1);
  Mailbox full(1);
  ASSERT_THAT(Push(full, 0, InAWhile()), IsOk());
  std::thread consumer(
      [&] { EXPECT_THAT(empty.Pop(InAWhile()), StatusIs(absl::StatusCode::kAborted, "stop")); });
  std::thread producer([&] {
    EXPECT_THAT(Push(full, 1, InAWhile()), StatusIs(absl::StatusCode::kAborted, "stop"));
  });
  empty.Cancel(absl::AbortedError("stop"));
  full.Cancel(absl::AbortedError("stop"));
  consumer.join();
  producer.join();
}

TEST(Mailbox, Pop_InfiniteDeadline_WaitsForTheMessage) {
  Mailbox mailbox(1);
  std::thread producer([&] { ASSERT_THAT(Push(mailbox, 9, InAWhile()), IsOk()); });
  EXPECT_EQ(mailbox.Pop(absl::InfiniteFuture())->sequence, 9);
  producer.join();
}

TEST(Mailbox, Stress_ManyHandOvers_LoseAndRepeatNothing) {
  Mailbox mailbox(4);
  constexpr int64_t kMessages = 20000;
  std::thread producer([&] {
    for (int64_t m = 0; m < kMessages; ++m) ASSERT_THAT(Push(mailbox, m, InAWhile()), IsOk());
  });
  for (int64_t m = 0; m < kMessages; ++m) {
    auto message = mailbox.Pop(InAWhile());
    ASSERT_THAT(message, IsOk());
    ASSERT_EQ(message->sequence, m);
  }
  producer.join();
}

}  // namespace
}  // namespace penstock
