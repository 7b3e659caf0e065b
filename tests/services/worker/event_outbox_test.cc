#include "services/worker/event_outbox.h"

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
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

// It has them, but only those before `stored_sequence` for good.
absl::StatusOr<v1::ReportRunResponse> HasStored(int64_t next_sequence, int64_t stored_sequence) {
  absl::StatusOr<v1::ReportRunResponse> response = HasUpTo(next_sequence);
  response->set_stored_sequence(stored_sequence);
  return response;
}

v1::RunEvent DoneEvent(int64_t step) {
  v1::RunEvent event;
  event.mutable_run_done()->set_step(step);
  return event;
}

std::vector<int64_t> StepsIn(const v1::ReportRunRequest& batch) {
  std::vector<int64_t> steps;
  for (const v1::RunEvent& event : batch.events()) steps.push_back(event.step_done().step());
  return steps;
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

// ------------------------------------------------- a coordinator that is restarted

TEST_F(EventOutboxTest, HadButNotStored_IsSentAgainToACoordinatorThatLacksIt) {
  for (int64_t step = 1; step <= 4; ++step) outbox_.Add(StepEvent(step));
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(4, 1), absl::ZeroDuration());
  EXPECT_TRUE(outbox_.empty());
  outbox_.AskAgain();
  ASSERT_FALSE(outbox_.empty());
  const v1::ReportRunRequest question = outbox_.NextBatch();
  EXPECT_EQ(question.events_size(), 0);
  EXPECT_EQ(question.first_sequence(), 4);
  EXPECT_EQ(question.kept_from(), 1);
  const auto after = outbox_.OnAnswer(question, HasStored(2, 2), absl::ZeroDuration());
  EXPECT_FALSE(after.given_up.has_value());
  const v1::ReportRunRequest again = outbox_.NextBatch();
  EXPECT_EQ(again.first_sequence(), 2);
  EXPECT_EQ(again.kept_from(), 2);
  EXPECT_THAT(StepsIn(again), ElementsAre(3, 4));
  outbox_.OnAnswer(again, HasStored(4, 4), absl::ZeroDuration());
  EXPECT_TRUE(outbox_.empty());
}

// It takes the worker over before it takes what the worker tells.
TEST_F(EventOutboxTest, NothingTakenYet_WaitsLongerEachTime) {
  for (int64_t step = 1; step <= 2; ++step) outbox_.Add(StepEvent(step));
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(2, 0), absl::ZeroDuration());
  outbox_.AskAgain();
  auto after = outbox_.OnAnswer(outbox_.NextBatch(), HasStored(0, 0), absl::ZeroDuration());
  EXPECT_EQ(after.wait, EventOutbox::kBackoffMin);
  after = outbox_.OnAnswer(outbox_.NextBatch(), HasStored(0, 0), after.wait);
  EXPECT_EQ(after.wait, 2 * EventOutbox::kBackoffMin);
  EXPECT_THAT(StepsIn(outbox_.NextBatch()), ElementsAre(1, 2));
}

TEST_F(EventOutboxTest, CoordinatorOfAnOlderBuild_NothingIsKeptForIt) {
  outbox_.Add(StepEvent(1));
  outbox_.OnAnswer(outbox_.NextBatch(), HasUpTo(1), absl::ZeroDuration());
  outbox_.AskAgain();
  EXPECT_EQ(outbox_.NextBatch().kept_from(), 1);
}

TEST_F(EventOutboxTest, CoordinatorLacksWhatIsGone_SendsWhatThereIs) {
  for (int64_t step = 1; step <= 3; ++step) outbox_.Add(StepEvent(step));
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(3, 2), absl::ZeroDuration());
  outbox_.AskAgain();
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(0, 0), absl::ZeroDuration());
  EXPECT_EQ(outbox_.NextBatch().kept_from(), 2);
  EXPECT_EQ(outbox_.NextBatch().first_sequence(), 2);
}

// Figures for a store that cannot be written for hours.
TEST_F(EventOutboxTest, MuchIsNotStored_TheOldestGo) {
  const auto kept_max = static_cast<int64_t>(EventOutbox::kEventsKeptMax);
  for (int64_t step = 1; step <= kept_max + 100; ++step) {
    ASSERT_FALSE(outbox_.Add(StepEvent(step)).has_value());
    outbox_.OnAnswer(outbox_.NextBatch(), HasStored(step, 0), absl::ZeroDuration());
  }
  outbox_.AskAgain();
  EXPECT_EQ(outbox_.NextBatch().kept_from(), 100);
}

// What waits again was taken once, and is no reason to give the run up.
TEST_F(EventOutboxTest, MuchWaitsAgain_TheRunGoesOn) {
  const auto kept_max = static_cast<int64_t>(EventOutbox::kEventsKeptMax);
  for (int64_t step = 1; step <= kept_max; ++step) {
    outbox_.Add(StepEvent(step));
    outbox_.OnAnswer(outbox_.NextBatch(), HasStored(step, 0), absl::ZeroDuration());
  }
  outbox_.AskAgain();
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(0, 0), absl::ZeroDuration());
  for (int64_t step = 1; step <= 10; ++step) {
    EXPECT_FALSE(outbox_.Add(StepEvent(kept_max + step)).has_value());
  }
  EXPECT_EQ(outbox_.NextBatch().first_sequence(), 0);
}

// The answer is to a question of before.
TEST_F(EventOutboxTest, AskedWhileABatchIsUnderWay_IsStillAsked) {
  outbox_.Add(StepEvent(1));
  const v1::ReportRunRequest batch = outbox_.NextBatch();
  outbox_.AskAgain();
  outbox_.OnAnswer(batch, HasStored(1, 0), absl::ZeroDuration());
  EXPECT_FALSE(outbox_.empty());
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(1, 0), absl::ZeroDuration());
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(EventOutboxTest, LargeEventsAreNotStored_TheOldestGo) {
  v1::RunEvent large;
  large.mutable_cut_reached()->mutable_order()->set_blocks(std::string(1 << 20, 'x'));
  for (int64_t i = 1; i <= 20; ++i) {
    outbox_.Add(large);
    outbox_.OnAnswer(outbox_.NextBatch(), HasStored(i, 0), absl::ZeroDuration());
  }
  outbox_.AskAgain();
  EXPECT_EQ(outbox_.NextBatch().kept_from(),
            5);  // 15 of a little more than a MiB are within the bound
}

TEST_F(EventOutboxTest, RunThatHasEnded_IsAskedForButNotGivenUp) {
  outbox_.Add(DoneEvent(3));
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(1, 0), absl::ZeroDuration());
  outbox_.AskAgain();
  const auto after =
      outbox_.OnAnswer(outbox_.NextBatch(), absl::AbortedError("over"), absl::ZeroDuration());
  EXPECT_FALSE(after.given_up.has_value());
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(EventOutboxTest, RunUnderWayOfWhichAllIsTold_IsGivenUpIfItIsOver) {
  outbox_.Add(StepEvent(1));
  outbox_.OnAnswer(outbox_.NextBatch(), HasStored(1, 0), absl::ZeroDuration());
  outbox_.AskAgain();
  const auto after =
      outbox_.OnAnswer(outbox_.NextBatch(), absl::AbortedError("over"), absl::ZeroDuration());
  EXPECT_TRUE(after.given_up.has_value());
}

TEST_F(EventOutboxTest, WithoutARun_NothingIsAsked) {
  EventOutbox idle("w", 7);
  idle.AskAgain();
  EXPECT_TRUE(idle.empty());
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
