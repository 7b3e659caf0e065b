#include "services/worker/event_reporter.h"

#include <algorithm>
#include <map>
#include <memory>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

absl::Time Later() { return absl::Now() + absl::Seconds(20); }

v1::RunEvent Step(int64_t step) {
  v1::RunEvent event;
  event.mutable_step_done()->set_step(step);
  event.mutable_step_done()->set_tokens(10);
  event.mutable_step_done()->set_samples(2);
  return event;
}

// A coordinator that keeps each event once, and can be away, slow, lossy or content with a part of what came.
class Coordinator {
 public:
  absl::StatusOr<v1::ReportRunResponse> Take(const v1::ReportRunRequest& request,
                                             const std::optional<TraceContext>& trace) {
    MutexLock lock(mutex_);
    ++calls_;
    trace_of_job_[request.job_id()] = trace;
    epochs_.push_back(request.epoch());
    changed_.NotifyAll();
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (waits_ && changed_.WaitUntil(mutex_, until)) {
    }
    if (calls_ <= away_calls_) return absl::UnavailableError("away");
    if (over_epoch_ == request.epoch()) return absl::AbortedError("the run is over");
    if (steps_of_epoch_ != request.epoch()) {
      steps_of_epoch_ = request.epoch();
      steps_.clear();
    }
    if (request.first_sequence() > static_cast<int64_t>(steps_.size())) ++gaps_;
    for (int i = 0; i < std::min(request.events_size(), takes_); ++i) {
      const int64_t sequence = request.first_sequence() + i;
      if (sequence == static_cast<int64_t>(steps_.size())) {
        steps_.push_back(request.events(i).step_done().step());
      }
    }
    if (lose_answers_ && calls_ % 2 == 0) return absl::DeadlineExceededError("answer lost");
    v1::ReportRunResponse response;
    response.set_next_sequence(static_cast<int64_t>(steps_.size()));
    return response;
  }

  void SetWaits(bool waits) {
    MutexLock lock(mutex_);
    waits_ = waits;
    changed_.NotifyAll();
  }

  void AwaitCalls(int calls) {
    MutexLock lock(mutex_);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (calls_ < calls && changed_.WaitUntil(mutex_, until)) {
    }
  }

  Mutex mutex_;
  CondVar changed_;
  int calls_ = 0;
  int away_calls_ = 0;
  int64_t over_epoch_ = 0;  // the run of this epoch is over
  bool lose_answers_ = false;
  bool waits_ = false;           // with its answer
  int takes_ = 1 << 30;          // events of a report at most
  int gaps_ = 0;                 // reports that began beyond what it has
  std::vector<int64_t> epochs_;  // of the reports
  int64_t steps_of_epoch_ = 0;
  std::vector<int64_t> steps_;                                       // of the newest epoch
  std::map<std::string, std::optional<TraceContext>> trace_of_job_;  // of its last report
};

class EventReporterTest : public ::testing::Test {
 protected:
  EventReporterTest() { reporter_->Begin("j", 1); }

  void ExpectSteps(int64_t count) {
    MutexLock lock(coordinator_.mutex_);
    ASSERT_EQ(coordinator_.steps_.size(), static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(coordinator_.steps_[i], i + 1);
    EXPECT_EQ(coordinator_.gaps_, 0);
  }

  Coordinator coordinator_;
  Mutex mutex_;
  absl::Status given_up_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<EventReporter> reporter_ = std::make_unique<EventReporter>(EventReporter::Parts{
      .worker = "w",
      .incarnation = 5,
      .send =
          [this](const v1::ReportRunRequest& request, const std::optional<TraceContext>& trace) {
            return coordinator_.Take(request, trace);
          },
      .give_up =
          [this](const std::string& job, int64_t epoch, const absl::Status& reason) {
            EXPECT_EQ(job, "j");
            EXPECT_EQ(epoch, 1);
            MutexLock lock(mutex_);
            given_up_ = reason;
          }});
};

TEST_F(EventReporterTest, Events_ArriveInOrderOnce) {
  for (int64_t step = 1; step <= 500; ++step) reporter_->Add(Step(step));
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(500);
  EXPECT_EQ(reporter_->last_step().step(), 500);
  EXPECT_EQ(reporter_->tokens(), 5000);
  EXPECT_EQ(reporter_->samples(), 1000);
}

TEST_F(EventReporterTest, Reports_CarryTheTraceOfTheirRun) {
  reporter_->Add(Step(1));
  EXPECT_TRUE(reporter_->Flush(Later()));
  const TraceContext trace = {.trace_id = {1}, .span_id = {2}};
  reporter_->Begin("traced", 1, trace);
  reporter_->Add(Step(2));
  EXPECT_TRUE(reporter_->Flush(Later()));
  MutexLock lock(coordinator_.mutex_);
  EXPECT_EQ(coordinator_.trace_of_job_["j"], std::nullopt);
  EXPECT_EQ(coordinator_.trace_of_job_["traced"], trace);
}

TEST_F(EventReporterTest, CoordinatorAway_EventsWaitForIt) {
  coordinator_.away_calls_ = 3;
  for (int64_t step = 1; step <= 5; ++step) reporter_->Add(Step(step));
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(5);
}

TEST_F(EventReporterTest, AnswersLost_NothingIsLostOrDoubled) {
  coordinator_.lose_answers_ = true;
  for (int64_t step = 1; step <= 6; ++step) {
    reporter_->Add(Step(step));
    coordinator_.AwaitCalls(static_cast<int>(step));
  }
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(6);
}

// What is acknowledged, not what was sent, is what the coordinator has.
TEST_F(EventReporterTest, CoordinatorTakesAPart_TheRestComesAgain) {
  coordinator_.takes_ = 1;
  for (int64_t step = 1; step <= 4; ++step) reporter_->Add(Step(step));
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(4);
}

TEST_F(EventReporterTest, CoordinatorTakesNothing_EventsAreKept) {
  coordinator_.takes_ = 0;
  for (int64_t step = 1; step <= 3; ++step) reporter_->Add(Step(step));
  coordinator_.AwaitCalls(2);
  EXPECT_FALSE(reporter_->Flush(absl::Now() + absl::Milliseconds(20)));
  {
    MutexLock lock(coordinator_.mutex_);
    coordinator_.takes_ = 2;
  }
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(3);
}

TEST_F(EventReporterTest, UntilTheAnswerComes_EventsAreNotFlushed) {
  coordinator_.SetWaits(true);
  reporter_->Add(Step(1));
  coordinator_.AwaitCalls(1);
  EXPECT_FALSE(reporter_->Flush(absl::Now() + absl::Milliseconds(50)));
  coordinator_.SetWaits(false);
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(1);
}

// It acknowledges as many events as the next attempt has, which has told none of them yet.
TEST_F(EventReporterTest, AnswerToAnEarlierAttempt_AcknowledgesNothingOfTheNext) {
  coordinator_.SetWaits(true);
  for (int64_t step = 71; step <= 73; ++step) reporter_->Add(Step(step));
  coordinator_.AwaitCalls(1);
  reporter_->Begin("j", 2);
  for (int64_t step = 1; step <= 3; ++step) reporter_->Add(Step(step));
  coordinator_.SetWaits(false);
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(3);
  MutexLock lock(coordinator_.mutex_);
  EXPECT_EQ(coordinator_.steps_of_epoch_, 2);
  EXPECT_TRUE(std::is_sorted(coordinator_.epochs_.begin(), coordinator_.epochs_.end()))
      << "nothing of an attempt is told after one of the next";
}

// A refusal that was on its way when the next attempt began is not its own.
TEST_F(EventReporterTest, RefusalOfAnEarlierAttempt_DoesNotEndTheNext) {
  coordinator_.over_epoch_ = 1;
  coordinator_.SetWaits(true);
  reporter_->Add(Step(71));
  coordinator_.AwaitCalls(1);
  reporter_->Begin("j", 2);
  coordinator_.SetWaits(false);
  reporter_->Add(Step(1));
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(1);
  MutexLock lock(mutex_);
  EXPECT_THAT(given_up_, IsOk());
}

TEST_F(EventReporterTest, RunIsOverForTheCoordinator_IsGivenUp) {
  coordinator_.over_epoch_ = 1;
  reporter_->Add(Step(1));
  EXPECT_TRUE(reporter_->Flush(Later()));
  reporter_->Add(Step(2));
  EXPECT_TRUE(reporter_->Flush(Later()));  // dropped
  reporter_.reset();
  MutexLock lock(mutex_);
  EXPECT_THAT(given_up_, StatusIs(absl::StatusCode::kAborted, ::testing::HasSubstr("over")));
}

TEST_F(EventReporterTest, TooManyEventsWait_IsGivenUp) {
  coordinator_.away_calls_ = 1 << 30;
  for (size_t i = 0; i <= EventReporter::kEventsWaitingMax; ++i) reporter_->Add(Step(1));
  MutexLock lock(mutex_);
  EXPECT_THAT(given_up_,
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("65536 events")));
}

TEST_F(EventReporterTest, NextRun_StartsFromZeroAndDropsTheRest) {
  {
    MutexLock lock(coordinator_.mutex_);
    coordinator_.away_calls_ = coordinator_.calls_ + 1;
  }
  reporter_->Add(Step(77));
  coordinator_.AwaitCalls(1);
  reporter_->Begin("j", 2);
  EXPECT_EQ(reporter_->tokens(), 0);
  EXPECT_EQ(reporter_->samples(), 0);
  reporter_->Add(Step(1));
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(1);
}

TEST_F(EventReporterTest, LargeEvents_TravelInSeveralCalls) {
  for (int64_t step = 1; step <= 8; ++step) {
    v1::RunEvent event = Step(step);
    // Unknown fields count as bytes and do not change the meaning.
    event.mutable_step_done()
        ->GetReflection()
        ->MutableUnknownFields(event.mutable_step_done())
        ->AddLengthDelimited(1000, std::string(100'000, 'x'));
    reporter_->Add(std::move(event));
  }
  EXPECT_TRUE(reporter_->Flush(Later()));
  ExpectSteps(8);
  MutexLock lock(coordinator_.mutex_);
  EXPECT_GE(coordinator_.calls_, 4);
}

TEST_F(EventReporterTest, EndWhileCoordinatorIsAway_DoesNotHang) {
  coordinator_.away_calls_ = 1 << 30;
  reporter_->Add(Step(1));
  EXPECT_FALSE(reporter_->Flush(absl::Now() + absl::Milliseconds(50)));
  reporter_.reset();
}

}  // namespace
}  // namespace penstock
