#include "coordinator/recovery_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "coordinator/effects.h"
#include "tests/job/jobs.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::RecoverySpec Rules() { return SmallJob(10, 1).recovery(); }  // the defaults

TEST(Recovers, ByMode_AndWithoutOneIfTheJobIsSaved) {
  struct Case {
    const char* mode;
    const char* directory;
    bool recovers;
  };
  for (const Case& c :
       {Case{"", "/ckpt", true}, Case{"", "", false}, Case{"auto", "/ckpt", true},
        Case{"auto", "", true}, Case{"off", "/ckpt", false}, Case{"off", "", false}}) {
    v1::JobSpec spec = SmallJob(10, 1);
    spec.mutable_recovery()->set_mode(c.mode);
    spec.mutable_checkpoint()->set_directory(c.directory);
    EXPECT_EQ(Recovers(spec), c.recovers) << c.mode << " " << c.directory;
  }
}

TEST(Causes, WhichAreFailures_AndWhichMayEndOtherwise) {
  struct Case {
    v1::AttemptCause cause;
    bool failure;
    bool may_end_otherwise;
  };
  for (const Case& c :
       {Case{v1::ATTEMPT_CAUSE_WORKER_LOST, true, true},
        Case{v1::ATTEMPT_CAUSE_RUN_FAILED, true, true},
        Case{v1::ATTEMPT_CAUSE_UNREACHABLE, true, true},
        Case{v1::ATTEMPT_CAUSE_STALLED, true, true},
        Case{v1::ATTEMPT_CAUSE_WOULD_REPEAT, true, false},
        Case{v1::ATTEMPT_CAUSE_NOT_SAVED, true, true}, Case{v1::ATTEMPT_CAUSE_LEFT, false, true},
        Case{v1::ATTEMPT_CAUSE_NEW_SPLIT, false, true}, Case{v1::ATTEMPT_CAUSE_GREW, false, true},
        Case{v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED, false, true}}) {
    EXPECT_EQ(IsFailure(c.cause), c.failure) << c.cause;
    EXPECT_EQ(MayEndOtherwise(c.cause), c.may_end_otherwise) << c.cause;
  }
}

struct Past {
  int64_t first;
  int64_t last;
  v1::AttemptCause cause = v1::ATTEMPT_CAUSE_WORKER_LOST;
  int64_t detected_ms = 0;
};

FailedAttempts Count(const std::vector<Past>& past) {
  google::protobuf::RepeatedPtrField<v1::Attempt> attempts;
  for (const Past& one : past) {
    v1::Attempt& attempt = *attempts.Add();
    attempt.set_first_step(one.first);
    attempt.set_last_step(one.last);
    attempt.set_cause(one.cause);
    attempt.set_detected_ms(one.detected_ms);
  }
  return CountFailures(attempts);
}

TEST(CountFailures, ProgressIsAStepThatNoneHasDone) {
  EXPECT_EQ(Count({{0, 12}}).without_progress, 0);
  EXPECT_EQ(Count({{0, 0}}).without_progress, 1) << "it has not trained at all";
  EXPECT_EQ(Count({{40, 40}}).without_progress, 1) << "it began with a checkpoint";
  EXPECT_EQ(Count({{0, 12}, {10, 12}}).without_progress, 1);
  EXPECT_EQ(Count({{0, 12}, {10, 12}, {10, 11}, {10, 12}}).without_progress, 3);
  EXPECT_EQ(Count({{0, 12}, {10, 12}, {10, 13}}).without_progress, 0);
  EXPECT_EQ(Count({{0, 12}, {10, 12}, {10, 13}}).failures, 3);
  EXPECT_EQ(Count({{0, 12}, {10, 11}}).furthest_step, 12);
}

TEST(CountFailures, AttemptsThatDidNotFail_CountNeitherWay) {
  const FailedAttempts failed =
      Count({{0, 12}, {10, 11, v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED}, {10, 12}});
  EXPECT_EQ(failed.failures, 2);
  EXPECT_EQ(failed.without_progress, 1);
  EXPECT_EQ(Count({{0, 12}, {10, 12}, {10, 20, v1::ATTEMPT_CAUSE_LEFT}, {20, 20}}).without_progress,
            1)
      << "that one got on";
}

TEST(AfterFailure, WouldEndInTheSameWay_IsTheEnd) {
  EXPECT_THAT(AfterFailure(Rules(), Count({{0, 12, v1::ATTEMPT_CAUSE_WOULD_REPEAT}})).why_not,
              HasSubstr("in the same way"));
}

TEST(AfterFailure, Pause_GrowsWhileThereIsNoProgress) {
  v1::RecoverySpec rules = Rules();
  rules.set_no_progress_max(100);
  const int64_t expected_ms[] = {0, 1000, 2000, 4000, 8000, 16'000, 32'000, 60'000, 60'000};
  FailedAttempts failed{.cause = v1::ATTEMPT_CAUSE_RUN_FAILED, .failures = 1};
  for (const int64_t pause_ms : expected_ms) {
    const AfterFailureDecision decision = AfterFailure(rules, failed);
    EXPECT_EQ(decision.why_not, "");
    EXPECT_EQ(decision.pause_ms, pause_ms) << failed.without_progress;
    ++failed.without_progress;
  }
  failed.without_progress = 99;
  EXPECT_EQ(AfterFailure(rules, failed).pause_ms, 60'000);
}

TEST(AfterFailure, NoProgress_EndsAtItsBound) {
  EXPECT_EQ(AfterFailure(Rules(), Count({{0, 12}, {10, 12}, {10, 12}})).why_not, "");
  EXPECT_THAT(AfterFailure(Rules(), Count({{0, 12}, {10, 12}, {10, 12}, {10, 12}})).why_not,
              AllOf(HasSubstr("3 attempts in a row came no further than step 12"),
                    HasSubstr("recovery.no_progress_max is 3")));
}

// A broken link comes back, and pauses between attempts are short at first.
TEST(AfterFailure, NoProgressOverABrokenLink_AlsoHasItsTime) {
  const auto cause = v1::ATTEMPT_CAUSE_UNREACHABLE;
  const auto why_not = [&](int64_t until_ms) {
    return AfterFailure(Rules(), Count({{0, 12, cause, 500},
                                        {10, 12, cause, 1000},
                                        {10, 10, cause, 2500},
                                        {10, 10, cause, until_ms}}))
        .why_not;
  };
  EXPECT_EQ(why_not(20'000), "");
  EXPECT_EQ(why_not(300'999), "");
  EXPECT_THAT(why_not(301'000), HasSubstr("3 attempts in a row"));
  EXPECT_EQ(why_not(0), "") << "a clock that was set back";
  EXPECT_NE(AfterFailure(Rules(), Count({{0, 0, cause, 1}, {0, 0, cause, 2}, {0, 0}})).why_not, "")
      << "the last was lost for another reason";
  EXPECT_EQ(Count({{0, 0, cause, 1000}, {0, 4, cause, 9000}}).without_progress_ms, 0);
}

TEST(AfterFailedSearch, DiskMayComeBack_WhatIsOnItDoesNotChange) {
  const absl::Status away = absl::InternalError("Input/output error");
  EXPECT_EQ(AfterFailedSearch(Rules(), away, {.count = 1}).why_not, "");
  EXPECT_EQ(AfterFailedSearch(Rules(), away, {.count = 1}).pause_ms, 1000);
  EXPECT_EQ(AfterFailedSearch(Rules(), away, {.count = 3, .since_ms = 3000}).pause_ms, 4000);
  EXPECT_EQ(AfterFailedSearch(Rules(), away, {.count = 9, .since_ms = 299'999}).why_not, "");
  EXPECT_THAT(AfterFailedSearch(Rules(), away, {.count = 9, .since_ms = 300'000}).why_not,
              HasSubstr("looked 9 times in 300 s"));
  for (const absl::Status& stays : {absl::DataLossError(""), absl::FailedPreconditionError(""),
                                    absl::InvalidArgumentError("")}) {
    EXPECT_NE(AfterFailedSearch(Rules(), stays, {.count = 1}).why_not, "") << stays;
  }
}

TEST(AfterFailure, Restarts_EndAtTheirBound) {
  v1::RecoverySpec rules = Rules();
  rules.set_restarts_max(2);
  EXPECT_EQ(AfterFailure(rules, Count({{0, 12}, {10, 22}})).why_not, "");
  EXPECT_THAT(AfterFailure(rules, Count({{0, 12}, {10, 22}, {20, 32}})).why_not,
              AllOf(HasSubstr("3 attempts at the job have failed"),
                    HasSubstr("recovery.restarts_max is 2")));
  rules.set_restarts_max(0);
  EXPECT_NE(AfterFailure(rules, Count({{0, 12}})).why_not, "");
}

TEST(ChooseCrew, AsManyAsBefore_ElseItWaitsThenTakesFewerThenEnds) {
  struct Case {
    CrewQuestion question;
    CrewChoice choice;
  };
  const int64_t wait_ms = 300'000;
  for (const Case& c : {
           Case{{.needed = 4, .free = 4}, CrewChoice::kAsMany},
           Case{{.needed = 4, .free = 9, .waited_ms = wait_ms}, CrewChoice::kAsMany},
           Case{{.needed = 4, .free = 3, .fewer_do = true}, CrewChoice::kWait},
           Case{{.needed = 4, .free = 3, .fewer_do = true, .waited_ms = wait_ms - 1},
                CrewChoice::kWait},
           Case{{.needed = 4, .free = 3, .fewer_do = true, .waited_ms = wait_ms},
                CrewChoice::kFewer},
           Case{{.needed = 4, .free = 3, .waited_ms = wait_ms - 1}, CrewChoice::kWait},
           Case{{.needed = 4, .free = 3, .waited_ms = wait_ms}, CrewChoice::kNone},
           Case{{.needed = 1, .free = 0, .waited_ms = wait_ms}, CrewChoice::kNone},
       }) {
    EXPECT_EQ(ChooseCrew(Rules(), c.question), c.choice)
        << c.question.free << " free, waited " << c.question.waited_ms;
  }
  v1::RecoverySpec rules = Rules();
  rules.set_wait_seconds(0);
  EXPECT_EQ(ChooseCrew(rules, {.needed = 2, .free = 1, .fewer_do = true}), CrewChoice::kFewer);
}

TEST(AvoidedWorkers, ToBlameTwice_IsAvoidedForAWhile) {
  constexpr int64_t kMinute = 60'000 * kNsPerMs;
  AvoidedWorkers avoided;
  EXPECT_FALSE(avoided.Has("w0", 0));
  avoided.OnBlamed("w0", 1 * kMinute);
  EXPECT_FALSE(avoided.Has("w0", 1 * kMinute));
  avoided.OnBlamed("w0", 4 * kMinute);
  EXPECT_TRUE(avoided.Has("w0", 4 * kMinute));
  EXPECT_TRUE(avoided.Has("w0", 10 * kMinute));
  EXPECT_FALSE(avoided.Has("w1", 10 * kMinute));
  EXPECT_FALSE(avoided.Has("w0", 11 * kMinute)) << "10 minutes after the first of the last two";
  avoided.OnBlamed("w0", 12 * kMinute);
  EXPECT_TRUE(avoided.Has("w0", 13 * kMinute));
}

}  // namespace
}  // namespace penstock
