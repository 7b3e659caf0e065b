#include "services/coordinator/election.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "services/coordinator/etcd_store.h"
#include "tests/services/coordinator/fake_etcd.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr char kElectionPrefix[] = "/penstock";
constexpr absl::Duration kPatience = absl::Seconds(30);

class ElectionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Election> Candidate(const std::string& address) {
    return std::make_unique<Election>(ElectionParts{
        .etcd = etcd_, .clock = RealClock(), .prefix = kElectionPrefix, .address = address});
  }
  // Waits until it leads, and returns the term; 0 if it does not come to that.
  static int64_t AwaitTerm(Election& candidate) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      const Election::View view = candidate.AwaitChange(std::nullopt, absl::Milliseconds(50));
      if (view.term.has_value()) return *view.term;
    }
    return 0;
  }
  static bool AwaitEnd(Election& candidate, int64_t term) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      if (candidate.AwaitChange(term, absl::Milliseconds(50)).term != term) return true;
    }
    return false;
  }

  FakeEtcd etcd_{RealClock()};
};

TEST_F(ElectionTest, OneOfTwoLeads_AndTheOtherAfterIt) {
  auto a = Candidate("a:1");
  const int64_t first = AwaitTerm(*a);
  ASSERT_GT(first, 0);
  const std::unique_ptr<Mandate> mandate = a->MandateOf(first);
  EXPECT_TRUE(mandate->Holds());
  auto b = Candidate("b:2");
  const absl::Time deadline = absl::Now() + kPatience;
  while (b->Look().leader != "a:1" && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(b->Look().leader, "a:1");
  EXPECT_EQ(b->Look().term, std::nullopt);
  a->Stop();
  EXPECT_FALSE(mandate->Holds());
  EXPECT_GT(AwaitTerm(*b), first) << "a later term has a larger number";
  EXPECT_EQ(b->Look().leader, "b:2");
}

TEST_F(ElectionTest, LeaderThatEtcdDoesNotAnswer_StopsBeforeAnotherCanLead) {
  auto a = Candidate("a:1");
  const int64_t term = AwaitTerm(*a);
  ASSERT_GT(term, 0);
  etcd_.CutOff(true);
  ASSERT_TRUE(AwaitEnd(*a, term));
  // etcd, which counts from later on, still has the key.
  EXPECT_TRUE(etcd_.All().contains(LeaderKey(kElectionPrefix)));
  EXPECT_FALSE(a->Look().trouble.ok());
  etcd_.CutOff(false);
  EXPECT_GT(AwaitTerm(*a), term) << "and it may lead again, in another term";
}

TEST_F(ElectionTest, KeyThatIsGone_EndsTheTermOfWhoeverIsTold) {
  auto a = Candidate("a:1");
  const int64_t term = AwaitTerm(*a);
  ASSERT_GT(term, 0);
  const std::unique_ptr<Mandate> mandate = a->MandateOf(term);
  mandate->Lose("a write was refused");
  EXPECT_FALSE(mandate->Holds());
  EXPECT_NE(a->Look().term, term);
  EXPECT_GT(AwaitTerm(*a), term);
  EXPECT_FALSE(mandate->Holds()) << "the mandate was of the term before";
}

}  // namespace
}  // namespace penstock
