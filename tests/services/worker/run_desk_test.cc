#include "services/worker/run_desk.h"

#include "base/seen_epoch.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using DeskWork = RunDesk::Work;

// Does nothing, and remembers why it was stopped.
class IdleRun : public Run {
 public:
  absl::Status Execute() override { return absl::OkStatus(); }
  absl::StatusOr<int64_t> Hold() override { return 42; }
  absl::Status CutAt(int64_t) override { return absl::OkStatus(); }
  void Stop(const std::string& reason) override { stopped = reason; }
  std::string schedule_digest() const override { return "digest"; }
  int64_t memory_bytes() const override { return 1000; }
  int64_t actions_done() const override { return 7; }
  std::vector<v1::StageReport> Reports() const override { return std::vector<v1::StageReport>(2); }
  Timeline RecentTimeline() const override { return {.workers = 3}; }

  std::string stopped;
};

RunRequest RequestOf(const std::string& job_id, int64_t epoch, int64_t first_step = 0) {
  v1::PrepareRunRequest request;
  request.set_job_id(job_id);
  request.set_epoch(epoch);
  request.set_first_step(first_step);
  return request;
}

class RunDeskTest : public ::testing::Test {
 protected:
  // An attempt that was prepared, and started if so.
  RunDesk::AttemptRef Begin(const std::string& job_id, int64_t epoch, bool starts) {
    EXPECT_THAT(desk_.MakeRoom(RequestOf(job_id, epoch)), IsOkAndHolds(nullptr));
    const auto attempt = desk_.TakeUp(RequestOf(job_id, epoch), std::nullopt);
    EXPECT_THAT(attempt, IsOk());
    EXPECT_EQ(desk_.NextWork(), DeskWork::kPrepare);
    desk_.SetPrepared(**attempt, run_);
    if (starts) {
      EXPECT_THAT(desk_.Start(job_id, epoch), IsOk());
      EXPECT_EQ(desk_.NextWork(), DeskWork::kExecute);
    }
    return *attempt;
  }
  void End(RunDesk::Attempt& attempt) {
    desk_.TakeRunAway(attempt, &run_);
    desk_.End(attempt, absl::OkStatus());
  }

  RejectedMessages rejected_;
  RunDesk desk_{rejected_};
  IdleRun run_;
};

TEST_F(RunDeskTest, WholeLife) {
  EXPECT_EQ(desk_.NextWork(), DeskWork::kNone);
  const RunDesk::AttemptRef attempt = Begin("j", 1, /*starts=*/true);
  EXPECT_EQ(RunDesk::AnswerOf(*attempt)->schedule_digest(), "digest");
  EXPECT_THAT(desk_.FindRunning("j", 1), IsOkAndHolds(&run_));
  EXPECT_FALSE(attempt->held);
  EXPECT_THAT(desk_.FindToHold("j", 1), IsOkAndHolds(&run_));
  EXPECT_TRUE(attempt->held);
  EXPECT_TRUE(desk_.IsActive());
  EXPECT_EQ(desk_.NextWork(), DeskWork::kNone);
  End(*attempt);
  EXPECT_FALSE(desk_.IsActive());
  EXPECT_EQ(attempt->actions_done, 7);
  EXPECT_EQ(desk_.RecentTimeline("j")->workers, 3);
  EXPECT_THAT(desk_.FindRunning("j", 1), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(desk_.Start("j", 1), IsOk()) << "the answer to the first call may be lost";
}

TEST_F(RunDeskTest, RepeatedPrepare_IsTheSameAttempt) {
  const RunDesk::AttemptRef attempt = Begin("j", 1, /*starts=*/true);
  EXPECT_THAT(desk_.MakeRoom(RequestOf("j", 1)), IsOkAndHolds(nullptr));
  EXPECT_THAT(desk_.TakeUp(RequestOf("j", 1), std::nullopt), IsOkAndHolds(attempt));
  EXPECT_EQ(run_.stopped, "");
}

TEST_F(RunDeskTest, OtherAttemptOfTheSameEpoch_IsRefusedAndTheRunGoesOn) {
  Begin("j", 1, /*starts=*/true);
  EXPECT_THAT(desk_.MakeRoom(RequestOf("j", 1, 5)), IsOkAndHolds(nullptr));
  const auto other = desk_.TakeUp(RequestOf("j", 1, 5), std::nullopt);
  EXPECT_THAT(other, StatusIs(absl::StatusCode::kAborted, HasSubstr("another attempt")));
  EXPECT_EQ(SeenEpochOf(other.status()), 1);
  EXPECT_EQ(run_.stopped, "");
}

TEST_F(RunDeskTest, NewerEpoch_FirstStopsTheOlderOne) {
  const RunDesk::AttemptRef older = Begin("j", 1, /*starts=*/true);
  EXPECT_THAT(desk_.MakeRoom(RequestOf("j", 2)), IsOkAndHolds(older));
  EXPECT_THAT(run_.stopped, HasSubstr("was given the run of job j, epoch 2"));
  EXPECT_THAT(desk_.TakeUp(RequestOf("j", 2), std::nullopt),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("another run meanwhile")));
  EXPECT_EQ(desk_.NextWork(), DeskWork::kDiscard);
  End(*older);
  EXPECT_THAT(desk_.TakeUp(RequestOf("j", 2), std::nullopt), IsOk());
}

TEST_F(RunDeskTest, OlderEpoch_IsRefusedWithTheOneThatWasSeen) {
  End(*Begin("j", 5, /*starts=*/true));
  for (const absl::Status& refused : {desk_.MakeRoom(RequestOf("j", 4)).status(),
                                      desk_.TakeUp(RequestOf("j", 4), std::nullopt).status(),
                                      desk_.Start("j", 4), desk_.FindRunning("j", 4).status()}) {
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 5")));
    EXPECT_EQ(SeenEpochOf(refused), 5);
  }
}

TEST_F(RunDeskTest, StopBeforeItsPrepareArrives_KeepsItOut) {
  EXPECT_EQ(desk_.Stop("j", 3, "no longer"), nullptr);
  EXPECT_THAT(desk_.MakeRoom(RequestOf("j", 3)), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_THAT(desk_.MakeRoom(RequestOf("j", 4)), IsOk());
}

TEST_F(RunDeskTest, StoppedBeforeItStarted_DoesNotStart) {
  const RunDesk::AttemptRef attempt = Begin("j", 1, /*starts=*/false);
  EXPECT_EQ(desk_.Stop("j", 1, "no longer"), attempt);
  EXPECT_THAT(desk_.Start("j", 1), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_EQ(desk_.NextWork(), DeskWork::kDiscard);
}

TEST_F(RunDeskTest, StopOfAnOlderEpoch_LeavesTheRunAlone) {
  Begin("j", 5, /*starts=*/true);
  EXPECT_EQ(desk_.Stop("j", 4, "no longer"), nullptr);
  EXPECT_EQ(desk_.Stop("k", 9, "no longer"), nullptr);
  EXPECT_EQ(run_.stopped, "");
}

TEST_F(RunDeskTest, PrepareThatFails_GivesItsErrorEachTime) {
  const auto attempt = desk_.TakeUp(RequestOf("j", 1), std::nullopt);
  desk_.TakeRunAway(**attempt, nullptr);
  desk_.End(**attempt, absl::NotFoundError("no data"));
  EXPECT_THAT(RunDesk::AnswerOf(**attempt), StatusIs(absl::StatusCode::kNotFound, "no data"));
  EXPECT_THAT(desk_.TakeUp(RequestOf("j", 1), std::nullopt), IsOkAndHolds(*attempt));
}

TEST_F(RunDeskTest, Closed_StopsTheRunAndRefusesOthers) {
  Begin("j", 1, /*starts=*/true);
  desk_.Close("shutting down");
  EXPECT_EQ(run_.stopped, "shutting down");
  EXPECT_THAT(desk_.MakeRoom(RequestOf("j", 2)),
              StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
}

}  // namespace
}  // namespace penstock
