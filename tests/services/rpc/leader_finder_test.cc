#include "services/rpc/leader_finder.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/leader_note.h"
#include "services/rpc/status.h"

namespace penstock {
namespace {

TEST(LeaderFinder, Answers_ChangeNothing) {
  LeaderFinder finder({"a:1", "b:2", "c:3"});
  EXPECT_EQ(finder.current(), 0u);
  EXPECT_FALSE(finder.OnAnswer(0, absl::OkStatus()));
  EXPECT_FALSE(finder.OnAnswer(0, absl::NotFoundError("no job")));
  EXPECT_FALSE(finder.OnAnswer(0, absl::CancelledError("interrupted")));
  EXPECT_EQ(finder.current(), 0u);
}

// Its leader has refused it, and the others would only name the leader.
TEST(LeaderFinder, NotDone_IsFinalAndPerhapsDoneIsNot) {
  LeaderFinder finder({"a:1", "b:2"});
  const auto said = [](absl::string_view beginning) {
    return FromGrpcStatus(ToGrpcStatus(absl::UnavailableError(absl::StrCat(beginning, "x"))), "a");
  };
  EXPECT_FALSE(finder.OnAnswer(0, said(kNotDone)));
  EXPECT_EQ(finder.current(), 0u);
  EXPECT_TRUE(finder.OnAnswer(0, said(kPerhapsDone)));
  EXPECT_EQ(finder.current(), 1u);
}

TEST(LeaderFinder, NamedLeader_IsAskedNext) {
  LeaderFinder finder({"a:1", "b:2", "c:3"});
  EXPECT_TRUE(finder.OnAnswer(0, NotLeading("c:3")));
  EXPECT_EQ(finder.current(), 2u);
  EXPECT_TRUE(finder.OnAnswer(2, NotLeading("a:1")));
  EXPECT_EQ(finder.current(), 0u);
}

TEST(LeaderFinder, LeaderThatIsNotKnown_MeansTheNextOne) {
  LeaderFinder finder({"a:1", "b:2", "c:3"});
  EXPECT_TRUE(finder.OnAnswer(0, NotLeading("")));
  EXPECT_EQ(finder.current(), 1u);
  EXPECT_TRUE(finder.OnAnswer(1, NotLeading("evil:9"))) << "it is none of the addresses";
  EXPECT_EQ(finder.current(), 2u);
  EXPECT_TRUE(finder.OnAnswer(2, absl::UnavailableError("connection refused")));
  EXPECT_EQ(finder.current(), 0u);
  EXPECT_TRUE(finder.OnAnswer(0, absl::DeadlineExceededError("no answer")));
  EXPECT_EQ(finder.current(), 1u);
}

// Several calls were on their way to a coordinator that has gone: the first that ends moves on, once.
TEST(LeaderFinder, LateAnswers_DoNotMoveItAgain) {
  LeaderFinder finder({"a:1", "b:2", "c:3"});
  EXPECT_TRUE(finder.OnAnswer(0, absl::UnavailableError("gone")));
  EXPECT_TRUE(finder.OnAnswer(0, absl::UnavailableError("gone")));
  EXPECT_EQ(finder.current(), 1u);
}

TEST(LeaderFinder, OnlyOneAddress_IsNeverAskedAgainAtOnce) {
  LeaderFinder finder({"a:1"});
  EXPECT_FALSE(finder.OnAnswer(0, absl::UnavailableError("gone")));
  EXPECT_FALSE(finder.OnAnswer(0, NotLeading("b:2")));
  EXPECT_EQ(finder.current(), 0u);
}

}  // namespace
}  // namespace penstock
