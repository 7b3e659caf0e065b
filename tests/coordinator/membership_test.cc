#include "coordinator/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "coordinator/effects.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::RegisterWorkerRequest Worker(const std::string& name, uint64_t incarnation,
                                 const std::string& address = "host:1") {
  v1::RegisterWorkerRequest request;
  request.set_name(name);
  request.set_address(address);
  request.set_incarnation(incarnation);
  request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  return request;
}

int64_t Ms(int64_t ms) { return ms * kNsPerMs; }

TEST(Membership, Register_NewWorker_IsAlive) {
  Membership membership({});
  EXPECT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOkAndHolds(std::nullopt));
  ASSERT_NE(membership.Find("a"), nullptr);
  EXPECT_TRUE(membership.Find("a")->alive);
  EXPECT_THAT(membership.Heartbeat("a", 1, Ms(100)), IsOk());
}

TEST(Membership, Register_Again_ChangesNothing) {
  Membership membership({});
  ASSERT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  EXPECT_THAT(membership.Register(Worker("a", 1), Ms(5)), IsOkAndHolds(std::nullopt));
  EXPECT_EQ(membership.Available().size(), 1u);
}

TEST(Membership, Register_LongText_IsRefusedByItsName) {
  Membership membership({});
  v1::RegisterWorkerRequest worker = Worker("a", 1);
  worker.set_device(std::string(301, 'x'));
  EXPECT_THAT(membership.Register(worker, Ms(0)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("worker a: its device has 301 bytes; at most 300")));
  EXPECT_EQ(membership.Find("a"), nullptr);
}

TEST(Membership, Register_NewIncarnation_EndsTheOld) {
  Membership membership({});
  ASSERT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto departure, membership.Register(Worker("a", 2), Ms(5)));
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->worker, "a");
  EXPECT_EQ(departure->incarnation, 1u);
  EXPECT_THAT(
      membership.Heartbeat("a", 1, Ms(6)),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("another incarnation; register again")));
}

TEST(Membership, Register_NameTakenElsewhere_IsRefusedUntilThatOneIsLost) {
  Membership membership({});
  ASSERT_THAT(membership.Register(Worker("a", 1, "x:1"), Ms(0)), IsOk());
  EXPECT_THAT(membership.Register(Worker("a", 2, "y:1"), Ms(1)),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("x:1"), HasSubstr("y:1"), HasSubstr("--name"))));
  EXPECT_EQ(membership.Expire(Ms(3000)).size(), 1u);
  EXPECT_THAT(membership.Register(Worker("a", 2, "y:1"), Ms(3001)), IsOkAndHolds(std::nullopt));
}

TEST(Membership, NameTakenElsewhere_TheOtherIsTriedAndIsLostIfNobodyIsThere) {
  Membership membership({});
  EXPECT_EQ(membership.Doubt("a", Ms(0)), std::nullopt) << "nobody has this name";
  ASSERT_THAT(membership.Register(Worker("a", 1, "x:1"), Ms(0)), IsOk());
  ASSERT_EQ(membership.Doubt("a", Ms(1)), 0) << "it has no stream";
  EXPECT_EQ(membership.Doubt("a", Ms(500)), std::nullopt) << "it is being tried";
  EXPECT_FALSE(membership.OnProbed("a", 0, absl::OkStatus(), Ms(501)).has_value());
  ASSERT_EQ(membership.Doubt("a", Ms(1001)), 0);
  const auto departure =
      membership.OnProbed("a", 0, absl::UnavailableError("nobody listens at x:1"), Ms(1003));
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->reason, "nobody listens at x:1");
  EXPECT_EQ(departure->detection_ns, Ms(2));
  EXPECT_THAT(membership.Register(Worker("a", 2, "y:1"), Ms(1004)), IsOkAndHolds(std::nullopt));
  EXPECT_EQ(membership.Doubt("a", Ms(1005)), 0);
  ASSERT_THAT(membership.Attach("a", 2, Ms(1006)), IsOk());
  EXPECT_FALSE(membership.OnProbed("a", 0, absl::UnavailableError(""), Ms(1007)).has_value())
      << "it is attached since";
}

TEST(Membership, Register_OtherProtocol_IsRefused) {
  Membership membership({});
  v1::RegisterWorkerRequest request = Worker("a", 1);
  request.set_build("0.0.9");
  request.set_protocol_version(1);
  EXPECT_THAT(
      membership.Register(request, 0),
      StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr("worker a (build 0.0.9) speaks protocol version 1, this coordinator"),
                HasSubstr("version 2: install the coordinator's build"))));
  request.set_protocol_version(99);
  EXPECT_THAT(
      membership.Register(request, 0),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("protocol version 99"),
                     HasSubstr("install the worker's build on the coordinator's machine"))));
  // A long name is cut between two characters: half of one could never be read back.
  request.set_build(std::string(60, 'x') + "\u00e9\u00e9\u00e9");
  EXPECT_THAT(membership.Register(request, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("(build " + std::string(60, 'x') + "...)")));
  EXPECT_TRUE(membership.members().empty());
  EXPECT_THAT(membership.Register(v1::RegisterWorkerRequest(), 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a worker needs a name")));
}

TEST(Membership, Expire_ExactlyAtTheTimeout) {
  Membership membership({.heartbeat_timeout_ms = 3000});
  ASSERT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  ASSERT_THAT(membership.Heartbeat("a", 1, Ms(500)), IsOk());
  EXPECT_EQ(membership.NextExpiryNs(), 0);
  for (int64_t ms = 500; ms < 3500; ms += 500) {
    EXPECT_TRUE(membership.Expire(Ms(ms)).empty()) << ms;
  }
  EXPECT_EQ(membership.NextExpiryNs(), Ms(3500));
  EXPECT_TRUE(membership.Expire(Ms(3500) - 1).empty());
  const std::vector<Departure> departures = membership.Expire(Ms(3500));
  ASSERT_EQ(departures.size(), 1u);
  EXPECT_EQ(departures[0].reason, "no heartbeat for 3.0 s");
  EXPECT_TRUE(membership.Expire(Ms(9000)).empty()) << "a loss is reported once";
  EXPECT_EQ(membership.NextExpiryNs(), std::nullopt);
  EXPECT_THAT(membership.Heartbeat("a", 1, Ms(9000)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("counted as lost")));
}

// The coordinator comes 700 ms late, again and again: heartbeats wait that long to be taken.
TEST(Membership, Expire_LateByLessThanAGap_SubtractsItFromTheSilence) {
  Membership membership{MembershipLimits{}};
  ASSERT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  EXPECT_TRUE(membership.Expire(Ms(0)).empty());
  EXPECT_TRUE(membership.Expire(Ms(1450)).empty());
  EXPECT_TRUE(membership.Expire(Ms(2900)).empty());
  EXPECT_TRUE(membership.Expire(Ms(3650)).empty()) << "it was silent for 2250 ms";
  EXPECT_TRUE(membership.Expire(Ms(4399)).empty());
  EXPECT_THAT(membership.CheckInvariants(), IsOk());
  EXPECT_EQ(membership.Expire(Ms(4400)).size(), 1u);
}

// The coordinator was frozen for 10 s, and so heard of nobody; they are given time to be heard.
TEST(Membership, Expire_AfterAGapOfItsOwn_LosesNobodyAtOnce) {
  Membership membership({.heartbeat_timeout_ms = 3000});
  ASSERT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  ASSERT_THAT(membership.Register(Worker("b", 1), Ms(0)), IsOk());
  EXPECT_TRUE(membership.Expire(Ms(500)).empty());
  EXPECT_EQ(membership.NextExpiryNs(), Ms(500 + 750)) << "called often, so that a gap is noticed";
  EXPECT_TRUE(membership.Expire(Ms(10'500)).empty());
  ASSERT_THAT(membership.Heartbeat("a", 1, Ms(10'600)), IsOk());
  for (int64_t ms = 11'000; ms < 13'500; ms += 500) {
    EXPECT_TRUE(membership.Expire(Ms(ms)).empty()) << ms;
  }
  const std::vector<Departure> departures = membership.Expire(Ms(13'500));
  ASSERT_EQ(departures.size(), 1u);
  EXPECT_EQ(departures[0].worker, "b");
}

absl::Status NobodyListens() { return absl::UnavailableError("nobody listens at host:1"); }
absl::Status NoAnswer() { return absl::DeadlineExceededError("host:1 did not answer"); }

// Returns the stream of a worker "a" that is attached since 10 ms.
int64_t AttachA(Membership& membership) {
  EXPECT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  const absl::StatusOr<int64_t> stream = membership.Attach("a", 1, Ms(10));
  EXPECT_THAT(stream, IsOk());
  return stream.value_or(0);
}

TEST(Membership, Attach_OfAWorkerThatIsNotKnown_IsRefusedAsItsHeartbeat) {
  Membership membership({});
  EXPECT_THAT(membership.Attach("a", 1, Ms(0)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("unknown here; register again")));
  ASSERT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  EXPECT_THAT(membership.Attach("a", 2, Ms(1)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("another incarnation")));
}

TEST(Membership, Detach_AndNobodyListens_IsLostAtOnce) {
  Membership membership({});
  const int64_t stream = AttachA(membership);
  EXPECT_TRUE(membership.Detach("a", stream, Ms(500)));
  EXPECT_TRUE(membership.Find("a")->alive) << "it is only suspected";
  // One that was on its way when the process ended.
  ASSERT_THAT(membership.Heartbeat("a", 1, Ms(501)), IsOk());
  const auto departure = membership.OnProbed("a", stream, NobodyListens(), Ms(503));
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->incarnation, 1u);
  EXPECT_EQ(departure->reason, "its connection closed, and nobody listens at host:1");
  EXPECT_EQ(departure->cause, LossCause::kGone);
  EXPECT_EQ(departure->detection_ns, Ms(3));
  EXPECT_FALSE(membership.Find("a")->alive);
  EXPECT_EQ(membership.OnProbed("a", stream, NobodyListens(), Ms(504)), std::nullopt);
  EXPECT_TRUE(membership.Expire(Ms(9000)).empty()) << "a loss is reported once";
}

TEST(Membership, Detach_AndNoAnswer_IsLostUnlessItWasHeardOfMeanwhile) {
  Membership membership({});
  const int64_t stream = AttachA(membership);
  EXPECT_TRUE(membership.Detach("a", stream, Ms(500)));
  ASSERT_THAT(membership.Heartbeat("a", 1, Ms(900)), IsOk());
  EXPECT_EQ(membership.OnProbed("a", stream, NoAnswer(), Ms(2000)), std::nullopt);
  EXPECT_TRUE(membership.Find("a")->alive);

  Membership other({});
  const int64_t silent = AttachA(other);
  EXPECT_TRUE(other.Detach("a", silent, Ms(500)));
  const auto departure = other.OnProbed("a", silent, NoAnswer(), Ms(2000));
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->cause, LossCause::kUnanswered);
}

// A frozen process, or one whose connection something in between has closed: its heartbeats decide.
TEST(Membership, Detach_AndSomebodyListens_LosesNobody) {
  Membership membership({.heartbeat_timeout_ms = 3000});
  const int64_t stream = AttachA(membership);
  EXPECT_TRUE(membership.Detach("a", stream, Ms(500)));
  EXPECT_EQ(membership.OnProbed("a", stream, absl::OkStatus(), Ms(501)), std::nullopt);
  EXPECT_EQ(
      membership.OnProbed("a", stream, absl::FailedPreconditionError("no such host"), Ms(502)),
      std::nullopt);
  EXPECT_TRUE(membership.Expire(Ms(3009)).empty());
  const std::vector<Departure> departures = membership.Expire(Ms(3010));
  ASSERT_EQ(departures.size(), 1u);
  EXPECT_EQ(departures[0].cause, LossCause::kSilent);
}

TEST(Membership, AttachedAgain_TheOlderStreamSaysNothingAnyMore) {
  Membership membership({});
  const int64_t first = AttachA(membership);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t second, membership.Attach("a", 1, Ms(100)));
  EXPECT_FALSE(membership.Detach("a", first, Ms(101))) << "it was replaced";
  EXPECT_TRUE(membership.Detach("a", second, Ms(200)));
  ASSERT_THAT(membership.Attach("a", 1, Ms(201)), IsOk());
  EXPECT_EQ(membership.OnProbed("a", second, NobodyListens(), Ms(202)), std::nullopt)
      << "it is there again";
  EXPECT_FALSE(membership.Detach("b", second, Ms(203)));
}

TEST(Membership, RestartedProcess_IsNotBlamedForTheStreamOfTheOld) {
  Membership membership({});
  const int64_t stream = AttachA(membership);
  EXPECT_TRUE(membership.Detach("a", stream, Ms(500)));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto departure, membership.Register(Worker("a", 2), Ms(600)));
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->cause, LossCause::kRestarted);
  EXPECT_EQ(departure->detection_ns, Ms(100)) << "since its stream ended";
  EXPECT_EQ(membership.OnProbed("a", stream, NobodyListens(), Ms(601)), std::nullopt);
  EXPECT_FALSE(membership.Detach("a", stream, Ms(602)));
  EXPECT_TRUE(membership.Find("a")->alive);
}

// A thousand heartbeats a second of all together, and four of each worker in its timeout.
TEST(Membership, ManyWorkers_AreAskedForFewerHeartbeats) {
  Membership membership({.heartbeat_interval_ms = 500, .heartbeat_timeout_ms = 3000});
  const auto interval_with = [&](int workers) {
    for (int i = static_cast<int>(membership.Available().size()); i < workers; ++i) {
      EXPECT_THAT(membership.Register(Worker(absl::StrCat("w", i), 1), Ms(0)), IsOk());
    }
    return membership.HeartbeatIntervalMs();
  };
  EXPECT_EQ(interval_with(0), 500);
  EXPECT_EQ(interval_with(500), 500);
  EXPECT_EQ(interval_with(600), 600);
  EXPECT_EQ(interval_with(750), 750);
  EXPECT_EQ(interval_with(1000), 750);
}

TEST(Membership, TooMany_ForgetsTheLongestLost) {
  Membership membership({.heartbeat_timeout_ms = 3000, .workers_max = 2});
  ASSERT_THAT(membership.Register(Worker("a", 1), Ms(0)), IsOk());
  ASSERT_THAT(membership.Register(Worker("b", 1), Ms(1)), IsOk());
  EXPECT_THAT(membership.Register(Worker("c", 1), Ms(2)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 workers alive")));
  membership.Expire(Ms(5000));
  EXPECT_THAT(membership.Register(Worker("c", 1), Ms(5001)), IsOk());
  EXPECT_EQ(membership.Find("a"), nullptr);
  EXPECT_NE(membership.Find("b"), nullptr);
}

TEST(Membership, RandomEvents_KeepTheInvariants) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, 6);
    Membership membership({.heartbeat_timeout_ms = 30, .workers_max = 4});
    int64_t now_ms = 0;
    for (int event = 0; event < 500; ++event) {
      now_ms += static_cast<int64_t>(random.Below(8));
      const std::string name(1, static_cast<char>('a' + random.Below(6)));
      const uint64_t incarnation = random.Below(3);
      const auto stream = static_cast<int64_t>(random.Below(8));
      switch (random.Below(6)) {
        case 0:
          (void)membership.Register(Worker(name, incarnation), Ms(now_ms));
          break;
        case 1:
          membership.Heartbeat(name, incarnation, Ms(now_ms)).IgnoreError();
          break;
        case 2:
          (void)membership.Attach(name, incarnation, Ms(now_ms)).ok();
          break;
        case 3:
          membership.Detach(name, stream, Ms(now_ms));
          break;
        case 4:
          (void)membership.OnProbed(name, stream, NobodyListens(), Ms(now_ms));
          break;
        default:
          membership.Expire(Ms(now_ms));
      }
      ASSERT_THAT(membership.CheckInvariants(), IsOk()) << "seed " << seed << " event " << event;
    }
  }
}

}  // namespace
}  // namespace penstock
