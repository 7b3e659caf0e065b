// The order of one turn: the loop keeps what is to be kept, then calls workers, then answers.
#include "services/coordinator/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/status.h"
#include "coordinator/job_state.h"
#include "services/coordinator/job_store.h"
#include "services/rpc/status.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/support/manual_clock.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Writes down what it is told, in order. It is slow about what was kept, so that a
// loop that does not wait for that is caught.
class NotingPerformer final : public EffectPerformer {
 public:
  void Perform(const CallWorker& call) override {
    Note(absl::StrCat("calls ", call.worker, ", epoch ", call.epoch));
  }
  void Perform(const ProbeWorker& probe) override { Note("probes " + probe.worker); }
  void Perform(const FindCheckpoint&) override { Note("finds a checkpoint"); }
  void Perform(const CommitStaged&) override { Note("commits"); }
  void Perform(const DiscardStaged&) override { Note("discards what is staged"); }
  void Perform(const GatherTimeline&) override { Note("gathers a timeline"); }
  void Perform(const JudgeCandidates&) override { Note("judges"); }
  void Perform(const GatherPasses&) override { Note("gathers passes"); }
  void OnEventStored(const PublishEvent& event) override {
    absl::SleepFor(absl::Milliseconds(50));
    if (!event.event.has_state_changed()) return;
    Note(absl::StrCat("kept: ", JobStateName(event.event.state_changed().state())));
  }
  void OnStoreWritable(bool) override {}

  std::vector<std::string> Notes() {
    MutexLock lock(mutex_);
    return notes_;
  }

 private:
  void Note(const std::string& note) {
    MutexLock lock(mutex_);
    notes_.push_back(note);
  }

  Mutex mutex_;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
};

absl::Time InTime() { return absl::Now() + kTimeout; }

// Is lost when the test says so.
class TestMandate final : public Mandate {
 public:
  explicit TestMandate(std::atomic<bool>& holds) : holds_(holds) {}
  bool Holds() override { return holds_; }
  void Lose(const std::string&) override { holds_ = false; }

 private:
  std::atomic<bool>& holds_;
};

// A store that does what it is told, and whose answers to that are lost while the test says so.
class ForgetfulStore final : public StateStore {
 public:
  ForgetfulStore(JobStore store, const std::atomic<bool>& loses_answers)
      : store_(std::move(store)), loses_answers_(loses_answers) {}

  std::string name() const override { return store_.name(); }
  std::string remedy() const override { return store_.remedy(); }
  absl::Status Write(absl::Span<const Change> changes) override {
    return Answer(store_.Write(changes));
  }
  absl::Status Touch() override { return Answer(store_.Touch()); }
  absl::StatusOr<std::vector<StoredJob>> Load() override { return store_.Load(); }
  absl::StatusOr<v1::GetJobResponse> ReadRecord(const std::string& job_id) override {
    return store_.ReadRecord(job_id);
  }
  absl::StatusOr<v1::GetTimelineResponse> ReadTimeline(const std::string& job_id) override {
    return store_.ReadTimeline(job_id);
  }
  absl::StatusOr<v1::DeviceProfile> ReadLayerTimes(const std::string& key) override {
    return store_.ReadLayerTimes(key);
  }
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const std::string& job_id,
                                                       int64_t after_sequence,
                                                       int count_max) override {
    return store_.ReadEvents(job_id, after_sequence, count_max);
  }

 private:
  absl::Status Answer(absl::Status status) const {
    return loses_answers_ ? absl::UnavailableError("nobody answers") : status;
  }

  JobStore store_;
  const std::atomic<bool>& loses_answers_;
};

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(""));
    loop_ = std::make_unique<EventLoop>(
        RealClock(), CoordinatorLimits(),
        std::make_unique<ForgetfulStore>(std::move(store), loses_answers_), performer_, nullptr,
        std::make_unique<TestMandate>(holds_));
    ASSERT_THAT(loop_->Start(), IsOk());
  }

  // Submits a job of one stage, with a worker that waits for one.
  absl::StatusOr<std::string> Submit(const v1::JobSpec& spec) {
    return loop_->Ask<std::string>(
        InTime(),
        [spec](Coordinator& coordinator, StateStore& store,
               Now now) -> absl::StatusOr<std::string> {
          v1::RegisterWorkerRequest worker;
          worker.set_name("w0");
          worker.set_address("127.0.0.1:1");
          worker.set_incarnation(1);
          worker.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
          PENSTOCK_RETURN_IF_ERROR(coordinator.RegisterWorker(worker, now).status());
          v1::SubmitJobRequest request;
          *request.mutable_spec() = spec;
          PENSTOCK_ASSIGN_OR_RETURN(const Submission submission,
                                    coordinator.CheckSubmission(request, now));
          const StateStore::Change kept = {.job = &*submission.record};
          PENSTOCK_RETURN_IF_ERROR(store.Write({kept}));
          coordinator.AddJob(*submission.record, now);
          return submission.job_id;
        });
  }
  // What a process that starts now would find.
  absl::StatusOr<v1::GetJobResponse> StoredRecord(const std::string& job_id) {
    return loop_->Ask<v1::GetJobResponse>(InTime(), [job_id](Coordinator&, StateStore& store, Now) {
      return store.ReadRecord(job_id);
    });
  }

  std::atomic<bool> holds_ = true;
  std::atomic<bool> loses_answers_ = false;
  NotingPerformer performer_;
  std::unique_ptr<EventLoop> loop_;
};

TEST_F(EventLoopTest, AnswersAndCalls_ComeAfterWhatTheyTellIsKept) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string job, Submit(TestJob(5, 1)));
  const std::vector<std::string> at_the_answer = performer_.Notes();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetJobResponse record, StoredRecord(job));
  EXPECT_EQ(record.summary().state(), v1::JOB_STATE_PREPARING);
  ASSERT_GT(record.epoch(), 0);
  EXPECT_THAT(at_the_answer,
              ElementsAre("kept: preparing", absl::StrCat("calls w0, epoch ", record.epoch())));
}

TEST_F(EventLoopTest, AnswerToACancellation_ComesAfterItIsKept) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string job, Submit(TestJob(5, 1)));
  ASSERT_THAT(performer_.Notes(), Not(Contains("kept: cancelled")));
  const auto answer = loop_->Ask<v1::CancelJobResponse>(
      InTime(), [job](Coordinator& coordinator, StateStore&, Now now) {
        return coordinator.CancelJob(job, now);
      });
  const std::vector<std::string> at_the_answer = performer_.Notes();
  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(at_the_answer, Contains("kept: cancelled"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetJobResponse record, StoredRecord(job));
  EXPECT_EQ(record.summary().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(record.summary().reason(), HasSubstr("cancelled by the user"));
}

// Nobody knows whether it is there, so the user is not told that it is not, and what holds is put over it.
TEST_F(EventLoopTest, StoreThatDoesNotAnswer_LeavesNoCancellationThatWasRefused) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string job, Submit(TestJob(5, 1)));
  const auto refused = loop_->Ask<bool>(
      InTime(),
      [this, job](Coordinator& coordinator, StateStore& store, Now) -> absl::StatusOr<bool> {
        PENSTOCK_ASSIGN_OR_RETURN(const std::optional<SaveJob> cancelled,
                                  coordinator.CheckCancel(job));
        loses_answers_ = true;
        const absl::Status kept = loop_->Keep(&cancelled.value());
        loses_answers_ = false;
        EXPECT_NE(store.ReadRecord(job)->cancel_reason(), "");
        PENSTOCK_RETURN_IF_ERROR(kept);
        return true;
      });
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(StartsWith(std::string(kPerhapsDone)), HasSubstr("nobody answers"),
                             HasSubstr("unless it was done"))));
  const absl::Time deadline = InTime();
  while (!StoredRecord(job)->cancel_reason().empty()) {
    ASSERT_LT(absl::Now(), deadline);
    absl::SleepFor(absl::Milliseconds(10));
  }
}

TEST_F(EventLoopTest, WithoutItsMandate_NothingIsDoneOrAnswered) {
  // The mandate is lost in the turn of the submission: after the question, before effects and answers.
  const auto answer = loop_->Ask<bool>(
      InTime(), [this](Coordinator& coordinator, StateStore&, Now now) -> absl::StatusOr<bool> {
        v1::SubmitJobRequest request;
        *request.mutable_spec() = TestJob(5, 1);
        PENSTOCK_ASSIGN_OR_RETURN(const Submission submission,
                                  coordinator.CheckSubmission(request, now));
        coordinator.AddJob(*submission.record, now);
        holds_ = false;
        return true;
      });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_THAT(Submit(TestJob(5, 1)), StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_THAT(performer_.Notes(), Not(Contains(HasSubstr("calls"))));
  holds_ = true;
  EXPECT_THAT(StoredRecord("test-1").status(), StatusIs(absl::StatusCode::kUnavailable, _))
      << "it does not come back";
}

// An owner without threads takes the turns itself, when they are due.
TEST(EventLoopTurns, AreTakenWhenTheyAreDue) {
  ManualClock clock(1'000'000'000);
  NotingPerformer performer;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(""));
  EventLoop loop(clock, CoordinatorLimits(), std::make_unique<JobStore>(std::move(store)),
                 performer, nullptr);
  ASSERT_THAT(loop.Restore(), IsOk());
  EXPECT_EQ(loop.NextTurnNs(), std::nullopt);
  std::vector<std::string> seen;
  loop.PostAfter(absl::Milliseconds(5), [&](Coordinator&, Now) { seen.push_back("timer"); });
  EXPECT_EQ(loop.NextTurnNs(), clock.now_ns + 5'000'000);
  EXPECT_TRUE(loop.TakeTurn());
  EXPECT_THAT(seen, ElementsAre());
  loop.AskThen<int>([&](Coordinator&, StateStore&, Now) { return seen.push_back("asked"), 7; },
                    [&](absl::StatusOr<int> answer) {
                      EXPECT_THAT(answer, IsOkAndHolds(7));
                      seen.push_back("answered");
                    });
  EXPECT_LE(*loop.NextTurnNs(), clock.now_ns);
  clock.now_ns += 5'000'000;
  EXPECT_TRUE(loop.TakeTurn());
  EXPECT_THAT(seen, ElementsAre("asked", "timer", "answered"));
  loop.Stop();
  EXPECT_EQ(loop.NextTurnNs(), std::nullopt);
  loop.AskThen<int>([](Coordinator&, StateStore&, Now) { return 7; },
                    [&](const absl::StatusOr<int>& answer) {
                      EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable, _));
                      seen.push_back("refused");
                    });
  EXPECT_EQ(seen.back(), "refused");
}

}  // namespace
}  // namespace penstock
