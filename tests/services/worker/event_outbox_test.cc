#include "services/worker/event_outbox.h"

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

v1::RunEvent StepEvent(int64_t step) {
  v1::RunEvent event;
  event.mutable_step_done()->set_step(step);
  event.mutable_step_done()->set_tokens(10);
  return event;
}

absl::StatusOr<v1::ReportRunResponse> HasUpTo(int64_t next_sequence) {
  v1::ReportRunResponse response;
  response.set_next_sequence(next_sequence);
  return response;
}

class EventOutboxTest : public ::testing::Test {
 protected:
  void SetUp() override { outbox_.Begin("j", 3, std::nullopt); }

  EventOutbox outbox_{"w", 7};
};

TEST_F(EventOutboxTest, Batch_NamesTheRunAndItsFirstEvent) {
  EXPECT_FALSE(outbox_.Add(StepEvent(1)).has_value());
  EXPECT_FALSE(outbox_.Add(StepEvent(2)).has_value());
  const v1::ReportRunRequest batch = outbox_.NextBatch();
  EXPECT_EQ(batch.worker(), "w");
  EXPECT_EQ(batch.incarnation(), 7u);
  EXPECT_EQ(batch.job_id(), "j");
  EXPECT_EQ(batch.epoch(), 3);
  EXPECT_EQ(batch.first_sequence(), 0);
  EXPECT_EQ(batch.events_size(), 2);
  EXPECT_EQ(outbox_.tokens(), 20);
}

TEST_F(EventOutboxTest, Acknowledged_IsSentNoMore) {
  outbox_.Add(StepEvent(1));
  const v1::ReportRunRequest batch = outbox_.NextBatch();
  outbox_.Add(StepEvent(2));
  const auto after = outbox_.OnAnswer(batch, HasUpTo(1), absl::ZeroDuration());
  EXPECT_EQ(after.wait, absl::ZeroDuration());
  ASSERT_FALSE(outbox_.empty());
  EXPECT_EQ(outbox_.NextBatch().first_sequence(), 1);
  EXPECT_EQ(outbox_.NextBatch().events(0).step_done().step(), 2);
}

TEST_F(EventOutboxTest, CoordinatorClaimsMoreThanWasSent_LaterEventsStay) {
  outbox_.Add(StepEvent(1));
  const v1::ReportRunRequest batch = outbox_.NextBatch();
  outbox_.Add(StepEvent(2));
  outbox_.OnAnswer(batch, HasUpTo(9), absl::ZeroDuration());
  EXPECT_EQ(outbox_.NextBatch().first_sequence(), 1);
}

TEST_F(EventOutboxTest, CoordinatorAway_WaitsLongerEachTime) {
  outbox_.Add(StepEvent(1));
  const v1::ReportRunRequest batch = outbox_.NextBatch();
  absl::Duration wait = absl::ZeroDuration();
  for (const absl::Duration expected :
       {EventOutbox::kBackoffMin, 2 * EventOutbox::kBackoffMin, 4 * EventOutbox::kBackoffMin}) {
    wait = outbox_.OnAnswer(batch, absl::UnavailableError("away"), wait).wait;
    EXPECT_EQ(wait, expected);
  }
  for (int i = 0; i < 10; ++i) {
    wait = outbox_.OnAnswer(batch, absl::UnavailableError("away"), wait).wait;
  }
  EXPECT_EQ(wait, EventOutbox::kBackoffMax);
  EXPECT_FALSE(outbox_.empty());
}

TEST_F(EventOutboxTest, RunIsOver_IsGivenUpOnceAndLaterEventsGo) {
  outbox_.Add(StepEvent(1));
  const auto after =
      outbox_.OnAnswer(outbox_.NextBatch(), absl::AbortedError("over"), absl::ZeroDuration());
  ASSERT_TRUE(after.given_up.has_value());
  EXPECT_EQ(after.given_up->job_id, "j");
  EXPECT_EQ(after.given_up->epoch, 3);
  EXPECT_THAT(after.given_up->reason, StatusIs(absl::StatusCode::kAborted, "over"));
  EXPECT_TRUE(outbox_.empty());
  EXPECT_FALSE(outbox_.Add(StepEvent(2)).has_value());
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(EventOutboxTest, AnswerOfAnotherRun_ChangesNothing) {
  outbox_.Add(StepEvent(1));
  const v1::ReportRunRequest old = outbox_.NextBatch();
  outbox_.Begin("j", 4, std::nullopt);
  outbox_.Add(StepEvent(1));
  EXPECT_FALSE(
      outbox_.OnAnswer(old, absl::AbortedError("over"), absl::Seconds(1)).given_up.has_value());
  outbox_.OnAnswer(old, HasUpTo(1), absl::ZeroDuration());
  EXPECT_FALSE(outbox_.empty());
}

TEST_F(EventOutboxTest, TooManyEvents_RunIsGivenUp) {
  for (size_t i = 0; i < EventOutbox::kEventsWaitingMax; ++i) {
    ASSERT_FALSE(outbox_.Add(StepEvent(1)).has_value());
  }
  const auto given_up = outbox_.Add(StepEvent(1));
  ASSERT_TRUE(given_up.has_value());
  EXPECT_THAT(std::string(given_up->reason.message()), HasSubstr("has not taken"));
  EXPECT_FALSE(outbox_.Add(StepEvent(1)).has_value());
}

}  // namespace
}  // namespace penstock
