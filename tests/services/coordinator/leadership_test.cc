// Histories of one coordinator that wants to lead, written by hand: what it asks, what is answered, and when.
#include "services/coordinator/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kLease = 70, kTerm = 12;
const std::optional<LeaderEntry> kNobody = std::nullopt;
const std::optional<LeaderEntry> kOther =
    LeaderEntry{.address = "b:7070", .term = 9, .lease = 60, .revision = 10};

absl::Status NoAnswer() { return absl::UnavailableError("no member of etcd answers"); }

class LeadershipTest : public ::testing::Test {
 protected:
  using Step = Leadership::Step;

  // Checks what is to be done next, and when in ms.
  void ExpectNext(Step step, int64_t at_ms) {
    EXPECT_EQ(leadership_.Next().step, step);
    EXPECT_EQ(leadership_.Next().at_ns, at_ms * kMs);
  }
  bool LeadsAt(int64_t ms) { return leadership_.Leads(ms * kMs); }
  void Grant(int64_t asked_ms, int64_t now_ms) {
    leadership_.OnGranted(EtcdCalls::Lease{.id = kLease, .ttl_ms = 2000}, asked_ms * kMs,
                          now_ms * kMs);
  }
  void Win(int64_t now_ms) {
    leadership_.OnCampaigned(
        Leadership::Campaign{
            .won = true,
            .leader = {.address = "a:7070", .term = kTerm, .lease = kLease, .revision = kTerm}},
        now_ms * kMs);
  }
  void Renew(int64_t asked_ms, int64_t now_ms) {
    leadership_.OnRenewed(2000, asked_ms * kMs, now_ms * kMs);
  }
  // Leads from 1030 on, with a lease that was asked for at 1000.
  void BecomeLeader() {
    leadership_.OnLooked(kNobody, 1000 * kMs);
    ExpectNext(Step::kGrant, 1000);
    Grant(1000, 1010);
    ExpectNext(Step::kCampaign, 1010);
    EXPECT_EQ(leadership_.lease(), kLease);
    Win(1030);
    EXPECT_TRUE(LeadsAt(1030));
    EXPECT_EQ(leadership_.term(), kTerm);
  }

  Leadership leadership_{LeadershipLimits()};
};

TEST_F(LeadershipTest, BeginsByLookingAndDoesNotLead) {
  ExpectNext(Step::kLook, 0);
  EXPECT_FALSE(LeadsAt(0));
}

TEST_F(LeadershipTest, Leader_RenewsTwiceASecond) {
  BecomeLeader();
  ExpectNext(Step::kRenew, 1500);
  Renew(1500, 1520);
  ExpectNext(Step::kRenew, 2000);
  EXPECT_TRUE(LeadsAt(3299)) << "1500 + 2000 - 200";
  EXPECT_FALSE(LeadsAt(3300));
}

TEST_F(LeadershipTest, Follower_WaitsForTheLeadersEndAndLooksAgain) {
  leadership_.OnLooked(kOther, 100 * kMs);
  ExpectNext(Step::kAwaitRemoval, 100);
  EXPECT_EQ(leadership_.leader()->address, "b:7070");
  leadership_.OnAwaited(false, 2100 * kMs);
  ExpectNext(Step::kLook, 2100);
  EXPECT_TRUE(leadership_.leader().has_value()) << "it is still named to those who ask";
  leadership_.OnLooked(kOther, 2110 * kMs);
  leadership_.OnAwaited(true, 2200 * kMs);
  ExpectNext(Step::kLook, 2200);
  EXPECT_FALSE(leadership_.leader().has_value());
  EXPECT_FALSE(LeadsAt(2200));
}

TEST_F(LeadershipTest, CampaignThatAnotherWon_GivesTheLeaseBack) {
  leadership_.OnLooked(kNobody, 1000 * kMs);
  Grant(1000, 1010);
  leadership_.OnCampaigned(Leadership::Campaign{.won = false, .leader = *kOther}, 1020 * kMs);
  ExpectNext(Step::kRevoke, 1020);
  EXPECT_FALSE(LeadsAt(1020));
  EXPECT_EQ(leadership_.leader()->address, "b:7070");
  leadership_.OnRevoked(1030 * kMs);
  ExpectNext(Step::kLook, 1030);
  EXPECT_EQ(leadership_.lease(), 0);
}

TEST_F(LeadershipTest, LostRenewals_AreTriedAgainUntilTheLeaseEnds) {
  BecomeLeader();
  leadership_.OnRenewed(NoAnswer(), 1500 * kMs, 2100 * kMs);
  ExpectNext(Step::kRenew, 2200);
  EXPECT_TRUE(LeadsAt(2200));
  Renew(2200, 2300);
  EXPECT_TRUE(LeadsAt(3999));
  EXPECT_FALSE(LeadsAt(4000)) << "2200 + 2000 - 200";
  EXPECT_THAT(leadership_.why_over(), HasSubstr("could not renew its lease in time"));
  ExpectNext(Step::kRevoke, 4000);
}

TEST_F(LeadershipTest, NoRenewalAtAll_EndsTheTermBeforeTheLease) {
  BecomeLeader();
  leadership_.OnRenewed(NoAnswer(), 1500 * kMs, 2100 * kMs);
  leadership_.OnRenewed(NoAnswer(), 2200 * kMs, 2799 * kMs);
  EXPECT_TRUE(LeadsAt(2799));
  EXPECT_FALSE(LeadsAt(2800)) << "1000 + 2000 - 200";
  EXPECT_THAT(leadership_.why_over(), HasSubstr("no member of etcd answers"));
}

// etcd has renewed the lease. But this coordinator may have told others already that it does not lead.
TEST_F(LeadershipTest, AnswerThatComesAfterTheEnd_DoesNotBringTheTermBack) {
  BecomeLeader();
  EXPECT_FALSE(LeadsAt(2800));
  Renew(2000, 2810);
  EXPECT_FALSE(LeadsAt(2811));
  ExpectNext(Step::kRevoke, 2800);
}

// Nobody has asked whether it leads between the end and the late answer.
TEST_F(LeadershipTest, AnswerThatComesAfterTheEndNobodyNoticed_DoesNotEither) {
  BecomeLeader();
  Renew(2000, 2900);
  EXPECT_FALSE(LeadsAt(2900));
  ExpectNext(Step::kRevoke, 2900);
}

// The process stood still after it had asked: the lease counts from then, not from when it woke.
TEST_F(LeadershipTest, FrozenProcess_DoesNotLeadWhenItWakes) {
  BecomeLeader();
  Renew(1500, 1510);
  EXPECT_FALSE(LeadsAt(60'000));
  EXPECT_FALSE(LeadsAt(60'001));
}

TEST_F(LeadershipTest, FrozenBetweenLeaseAndCampaign_LeavesTheKeyToOthers) {
  leadership_.OnLooked(kNobody, 1000 * kMs);
  Grant(1000, 1010);
  Win(2800);
  EXPECT_FALSE(LeadsAt(2800));
  ExpectNext(Step::kRevoke, 2800);
}

TEST_F(LeadershipTest, LeaseThatComesTooLate_IsNotUsed) {
  leadership_.OnLooked(kNobody, 1000 * kMs);
  Grant(1000, 2900);
  ExpectNext(Step::kLook, 2900);
  leadership_.OnLooked(kNobody, 2910 * kMs);
  ExpectNext(Step::kGrant, 2910);
}

// The transaction was done and its answer lost: the key has this coordinator's lease.
TEST_F(LeadershipTest, LostAnswerToACampaign_IsFoundByLooking) {
  leadership_.OnLooked(kNobody, 1000 * kMs);
  Grant(1000, 1010);
  leadership_.OnCampaigned(NoAnswer(), 1400 * kMs);
  ExpectNext(Step::kLook, 1500);
  leadership_.OnLooked(std::optional(LeaderEntry{
                           .address = "a:7070", .term = kTerm, .lease = kLease, .revision = 15}),
                       1510 * kMs);
  EXPECT_TRUE(LeadsAt(1510));
  EXPECT_EQ(leadership_.term(), kTerm);
  ExpectNext(Step::kRenew, 1510);
}

TEST_F(LeadershipTest, LostRequestOfACampaign_IsMadeAgainWithTheSameLease) {
  leadership_.OnLooked(kNobody, 1000 * kMs);
  Grant(1000, 1010);
  leadership_.OnCampaigned(NoAnswer(), 1400 * kMs);
  leadership_.OnLooked(kNobody, 1500 * kMs);
  ExpectNext(Step::kCampaign, 1500);
}

// The first member's answer was lost, and the next one says that the key is there.
TEST_F(LeadershipTest, CampaignThatFindsItsOwnKey_HasWon) {
  leadership_.OnLooked(kNobody, 1000 * kMs);
  Grant(1000, 1010);
  leadership_.OnCampaigned(
      Leadership::Campaign{
          .won = false,
          .leader = {.address = "a:7070", .term = kTerm, .lease = kLease, .revision = 14}},
      1020 * kMs);
  EXPECT_TRUE(LeadsAt(1020));
  EXPECT_EQ(leadership_.term(), kTerm);
}

TEST_F(LeadershipTest, LeaseThatEtcdEnded_EndsTheTermAtOnce) {
  BecomeLeader();
  leadership_.OnRenewed(0, 1500 * kMs, 1510 * kMs);
  EXPECT_FALSE(LeadsAt(1510));
  EXPECT_THAT(leadership_.why_over(), HasSubstr("etcd has ended its lease"));
}

TEST_F(LeadershipTest, Retiring_LetsOthersComeFirst) {
  BecomeLeader();
  leadership_.Retire(kTerm - 1, "an earlier term", 1100 * kMs);
  EXPECT_TRUE(LeadsAt(1100));
  leadership_.Retire(kTerm, "the state is damaged", 1100 * kMs);
  EXPECT_FALSE(LeadsAt(1100));
  EXPECT_EQ(leadership_.why_over(), "the state is damaged");
  ExpectNext(Step::kRevoke, 1100);
  leadership_.OnRevoked(1120 * kMs);
  ExpectNext(Step::kLook, 4100);
}

TEST_F(LeadershipTest, Trouble_IsTriedAgainAndKnown) {
  leadership_.OnLooked(NoAnswer(), 100 * kMs);
  ExpectNext(Step::kLook, 200);
  EXPECT_THAT(leadership_.trouble(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no member")));
  leadership_.OnLooked(kNobody, 300 * kMs);
  EXPECT_THAT(leadership_.trouble(), IsOk());
  leadership_.OnGranted(NoAnswer(), 300 * kMs, 900 * kMs);
  ExpectNext(Step::kLook, 1000);
}

}  // namespace
}  // namespace penstock
