#include "coordinator/blame.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr int64_t kGrace = 1000;

TEST(Blame, NothingFailed_HasNoVerdict) {
  const Blame blame(kGrace);
  EXPECT_FALSE(blame.any());
  EXPECT_FALSE(blame.Decide(1'000'000).has_value());
  EXPECT_FALSE(blame.DecideAtNs().has_value());
}

TEST(Blame, OwnFailure_SettlesItAtOnce) {
  Blame blame(kGrace);
  blame.Pointing(0, 1, "lost worker 1", 100);
  EXPECT_FALSE(blame.Decide(100).has_value());
  blame.Own(2, "loss is not finite");
  ASSERT_TRUE(blame.Decide(101).has_value());
  EXPECT_EQ(blame.Decide(101)->worker, 2);
  EXPECT_EQ(blame.Decide(101)->message, "loss is not finite");
}

TEST(Blame, SecondOwnFailure_DoesNotCount) {
  Blame blame(kGrace);
  blame.Own(1, "first");
  blame.Own(2, "second");
  EXPECT_EQ(blame.Decide(0)->worker, 1);
}

TEST(Blame, Best_IsWhatIsKnownSoFar) {
  Blame blame(kGrace);
  blame.Pointing(0, 1, "lost 1", 100);
  EXPECT_FALSE(blame.settled());
  EXPECT_EQ(blame.Best().worker, 1);
  EXPECT_EQ(blame.Best().cause, v1::ATTEMPT_CAUSE_WORKER_LOST);
  blame.Pointing(1, 0, "lost 0", 100);
  EXPECT_EQ(blame.Best().worker, 1);
  EXPECT_EQ(blame.Best().cause, v1::ATTEMPT_CAUSE_UNREACHABLE);
  blame.Own(0, "bad data", v1::ATTEMPT_CAUSE_WOULD_REPEAT);
  EXPECT_TRUE(blame.settled());
  EXPECT_EQ(blame.Best().worker, 0);
  EXPECT_EQ(blame.Best().cause, v1::ATTEMPT_CAUSE_WOULD_REPEAT);
}

TEST(Blame, TwoWorkersThatSayItIsTheJob_AreBelieved) {
  Blame blame(kGrace);
  blame.OwnOfJob(1, "no such file");
  EXPECT_EQ(blame.Best().cause, v1::ATTEMPT_CAUSE_RUN_FAILED);
  blame.OwnOfJob(1, "no such file");
  EXPECT_EQ(blame.Best().cause, v1::ATTEMPT_CAUSE_RUN_FAILED) << "the same worker";
  blame.Own(2, "went wrong");
  EXPECT_EQ(blame.Best().cause, v1::ATTEMPT_CAUSE_RUN_FAILED) << "for a reason of its own";
  blame.OwnOfJob(0, "no such file");
  EXPECT_EQ(blame.Best().cause, v1::ATTEMPT_CAUSE_WOULD_REPEAT);
  EXPECT_EQ(blame.Best().worker, 1) << "the first";
}

// Worker 3 dies; 2 notices and goes; 1 notices that 2 went. The report of 1 comes first.
TEST(Blame, ChainOfPointing_EndsAtTheSilentOne) {
  Blame blame(kGrace);
  blame.Pointing(1, 2, "lost 2", 100);
  blame.Pointing(2, 3, "lost 3", 200);
  EXPECT_EQ(blame.DecideAtNs(), 1100);
  EXPECT_FALSE(blame.Decide(1099).has_value());
  ASSERT_TRUE(blame.Decide(1100).has_value());
  EXPECT_EQ(blame.Decide(1100)->worker, 3);
  EXPECT_EQ(blame.Decide(1100)->message, "went away: lost 2");
}

TEST(Blame, PointingAtEachOther_BlamesOneOfThem) {
  Blame blame(kGrace);
  blame.Pointing(1, 2, "lost 2", 100);
  blame.Pointing(2, 1, "lost 1", 110);
  ASSERT_TRUE(blame.Decide(2000).has_value());
  EXPECT_EQ(blame.Decide(2000)->worker, 2);
}

TEST(Blame, PointingAtNobody_BlamesTheReporter) {
  Blame blame(kGrace);
  blame.Pointing(1, Blame::kNobody, "connection refused", 0);
  ASSERT_TRUE(blame.Decide(1000).has_value());
  EXPECT_EQ(blame.Decide(1000)->worker, 1);
  EXPECT_EQ(blame.Decide(1000)->message, "connection refused");
}

TEST(Blame, PointingAtOneself_Ends) {
  Blame blame(kGrace);
  blame.Pointing(1, 1, "lost myself", 0);
  EXPECT_EQ(blame.Decide(1000)->worker, 1);
}

}  // namespace
}  // namespace penstock
