#include "services/worker/registration_dialogue.h"

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using NextCall = RegistrationDialogue::Call;

absl::StatusOr<v1::RegisterWorkerResponse> Welcome(int64_t interval_ms = 200) {
  v1::RegisterWorkerResponse response;
  response.set_heartbeat_interval_ms(interval_ms);
  return response;
}

v1::HeartbeatRequest Beat(bool leaving = false, const std::string& job_id = "") {
  v1::HeartbeatRequest request;
  request.set_leaving(leaving);
  request.set_job_id(job_id);
  return request;
}

TEST(RegistrationDialogueTest, Registered_BeatsAtTheIntervalAskedFor) {
  RegistrationDialogue dialogue;
  EXPECT_EQ(dialogue.Next(), NextCall::kRegister);
  const auto after = dialogue.OnRegistered(Welcome());
  EXPECT_EQ(after.wait, absl::Milliseconds(200));
  EXPECT_THAT(after.news, ::testing::Optional(IsOk()));
  EXPECT_EQ(dialogue.Next(), NextCall::kHeartbeat);
  EXPECT_EQ(dialogue.OnHeartbeat(Beat(), v1::HeartbeatResponse()).wait, absl::Milliseconds(200));
  // A coordinator with many workers asks for fewer.
  v1::HeartbeatResponse fewer;
  fewer.set_heartbeat_interval_ms(750);
  EXPECT_EQ(dialogue.OnHeartbeat(Beat(), fewer).wait, absl::Milliseconds(750));
  EXPECT_EQ(dialogue.OnHeartbeat(Beat(), v1::HeartbeatResponse()).wait, absl::Milliseconds(750));
}

TEST(RegistrationDialogueTest, AbsurdInterval_IsBounded) {
  RegistrationDialogue dialogue;
  EXPECT_EQ(dialogue.OnRegistered(Welcome(0)).wait, RegistrationDialogue::kIntervalMin);
  EXPECT_EQ(dialogue.OnRegistered(Welcome(1'000'000)).wait, RegistrationDialogue::kIntervalMax);
}

TEST(RegistrationDialogueTest, CoordinatorAway_IsTriedWithAGrowingPauseAndToldOnce) {
  RegistrationDialogue dialogue;
  const auto first = dialogue.OnRegistered(absl::UnavailableError("away"));
  EXPECT_EQ(first.wait, RegistrationDialogue::kBackoffMin);
  EXPECT_TRUE(first.news.has_value());
  const auto second = dialogue.OnRegistered(absl::UnavailableError("away"));
  EXPECT_EQ(second.wait, 2 * RegistrationDialogue::kBackoffMin);
  EXPECT_FALSE(second.news.has_value());
  EXPECT_EQ(dialogue.Next(), NextCall::kRegister);
}

TEST(RegistrationDialogueTest, HeartbeatsThatFail_ComeNoFartherApart) {
  RegistrationDialogue dialogue;
  dialogue.OnRegistered(Welcome());
  for (int i = 0; i < 10; ++i) {
    const auto after = dialogue.OnHeartbeat(Beat(), absl::UnavailableError("away"));
    EXPECT_LE(after.wait, absl::Milliseconds(200));
  }
  EXPECT_EQ(dialogue.Next(), NextCall::kHeartbeat);
}

TEST(RegistrationDialogueTest, Forgotten_RegistersAtOnce) {
  RegistrationDialogue dialogue;
  dialogue.OnRegistered(Welcome());
  EXPECT_EQ(dialogue.OnHeartbeat(Beat(), absl::NotFoundError("who?")).wait, absl::ZeroDuration());
  EXPECT_EQ(dialogue.Next(), NextCall::kRegister);
}

TEST(RegistrationDialogueTest, RefusedForGood_Ends) {
  RegistrationDialogue dialogue;
  EXPECT_TRUE(dialogue.OnRegistered(absl::FailedPreconditionError("other version")).refused);
  EXPECT_EQ(dialogue.Next(), NextCall::kNone);
  EXPECT_TRUE(dialogue.may_leave());
}

TEST(RegistrationDialogueTest, Leaves_WhenItIsLetGo) {
  RegistrationDialogue dialogue;
  dialogue.OnRegistered(Welcome());
  dialogue.Leave();
  for (int i = 0; i < 2 * RegistrationDialogue::kLeavingAttemptsMax; ++i) {
    EXPECT_EQ(dialogue.OnHeartbeat(Beat(true, "j"), absl::UnavailableError("away")).wait,
              RegistrationDialogue::kLeavingInterval);
  }
  EXPECT_FALSE(dialogue.may_leave()) << "it has a run";
  dialogue.OnHeartbeat(Beat(true), absl::NotFoundError("gone"));
  EXPECT_TRUE(dialogue.may_leave());
  EXPECT_EQ(dialogue.Next(), NextCall::kNone);
}

TEST(RegistrationDialogueTest, LeavesWithARunThatTheCoordinatorDoesNotKnow_RegistersFirst) {
  RegistrationDialogue dialogue;
  dialogue.OnRegistered(Welcome());
  dialogue.Leave();
  for (int i = 0; i < RegistrationDialogue::kLeavingReturnsMax; ++i) {
    EXPECT_EQ(dialogue.OnHeartbeat(Beat(true, "j"), absl::NotFoundError("who?")).wait,
              absl::ZeroDuration());
    EXPECT_EQ(dialogue.Next(), NextCall::kRegister);
    dialogue.OnRegistered(absl::UnavailableError("it is just starting"));
    EXPECT_EQ(dialogue.Next(), NextCall::kRegister);
    EXPECT_EQ(dialogue.OnRegistered(Welcome()).wait, absl::ZeroDuration());
    EXPECT_EQ(dialogue.Next(), NextCall::kHeartbeat) << "which says that it leaves";
  }
  dialogue.OnHeartbeat(Beat(true, "j"), absl::NotFoundError("who?"));
  EXPECT_TRUE(dialogue.may_leave()) << "it is not known whatever it says";
}

TEST(RegistrationDialogueTest, LeavesWithoutARun_IfNobodyAnswers) {
  RegistrationDialogue dialogue;
  dialogue.OnRegistered(Welcome());
  dialogue.Leave();
  for (int i = 0; i < RegistrationDialogue::kLeavingAttemptsMax; ++i) {
    EXPECT_FALSE(dialogue.may_leave());
    dialogue.OnHeartbeat(Beat(true), absl::UnavailableError("away"));
  }
  EXPECT_TRUE(dialogue.may_leave());
}

TEST(RegistrationDialogueTest, LeavesBeforeItIsRegistered_GoesAtOnce) {
  RegistrationDialogue dialogue;
  dialogue.Leave();
  EXPECT_EQ(dialogue.Next(), NextCall::kNone);
  EXPECT_TRUE(dialogue.may_leave());
}

TEST(RegistrationDialogueTest, Stream_IsOpenedOnceRegisteredAndAfterItsEnd) {
  RegistrationDialogue dialogue;
  EXPECT_FALSE(dialogue.MayAttach());
  dialogue.OnRegistered(Welcome());
  EXPECT_TRUE(dialogue.MayAttach());
  EXPECT_TRUE(dialogue.OnStreamEnded(1, absl::Seconds(5), absl::UnavailableError("gone")));
  EXPECT_TRUE(dialogue.MayAttach());
  EXPECT_EQ(dialogue.stream_pause(), absl::ZeroDuration());
  EXPECT_TRUE(dialogue.OnStreamEnded(1, absl::ZeroDuration(), absl::UnavailableError("gone")));
  EXPECT_EQ(dialogue.stream_pause(), RegistrationDialogue::kBackoffMin);
  EXPECT_FALSE(dialogue.OnStreamEnded(1, absl::Minutes(1), absl::DeadlineExceededError("time")))
      << "it was time to open another";
}

TEST(RegistrationDialogueTest, StreamThatWasTriedInVain_IsOpenedAsSoonAsTheCoordinatorIsBack) {
  RegistrationDialogue dialogue;
  dialogue.OnRegistered(Welcome());
  for (int i = 0; i < 5; ++i) {
    dialogue.OnStreamEnded(1, absl::ZeroDuration(), absl::UnavailableError("gone"));
  }
  EXPECT_EQ(dialogue.stream_pause(), 16 * RegistrationDialogue::kBackoffMin);
  dialogue.OnStreamEnded(1, absl::ZeroDuration(), absl::NotFoundError("who?"));
  EXPECT_EQ(dialogue.stream_pause(), RegistrationDialogue::kBackoffMax);
  dialogue.OnRegistered(Welcome());
  EXPECT_EQ(dialogue.stream_pause(), absl::ZeroDuration());
}

TEST(RegistrationDialogueTest, StreamOfAnUnknownWorker_WaitsForTheNextRegistration) {
  RegistrationDialogue dialogue;
  dialogue.OnRegistered(Welcome());
  dialogue.OnStreamEnded(1, absl::ZeroDuration(), absl::NotFoundError("who?"));
  EXPECT_FALSE(dialogue.MayAttach());
  dialogue.OnHeartbeat(Beat(), absl::NotFoundError("who?"));
  dialogue.OnRegistered(Welcome());
  EXPECT_TRUE(dialogue.MayAttach());
}

}  // namespace
}  // namespace penstock
