#include "services/rpc/status.h"

#include "absl/strings/str_cat.h"
#include "base/leader_note.h"
#include "base/seen_epoch.h"
#include "services/rpc/limits.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

TEST(GrpcStatus, EveryCode_SurvivesTheRoundTrip) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_THAT(FromGrpcStatus(grpc::Status::OK, "peer"), IsOk());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what happened");
    EXPECT_THAT(FromGrpcStatus(ToGrpcStatus(status), "worker a"),
                StatusIs(status.code(), "worker a: what happened"));
  }
}

TEST(GrpcStatus, SeenEpoch_SurvivesTheRoundTrip) {
  const absl::Status refusal = WithSeenEpoch(absl::AbortedError("over"), 1'700'000'000'000);
  const absl::Status received = FromGrpcStatus(ToGrpcStatus(refusal), "worker a");
  EXPECT_THAT(received, StatusIs(absl::StatusCode::kAborted, "worker a: over"));
  EXPECT_EQ(SeenEpochOf(received), 1'700'000'000'000);
  EXPECT_EQ(SeenEpochOf(FromGrpcStatus(ToGrpcStatus(absl::AbortedError("over")), "worker a")),
            std::nullopt);
}

TEST(GrpcStatus, DetailsThatAreNoEpoch_AreLeftOut) {
  for (const char* details :
       {"", "seen_epoch=", "seen_epoch=x", "seen_epoch=0", "seen_epoch=-4",
        "seen_epoch=9223372036854775807", "seen_epoch=99999999999999999999", "\x08\x0a\x12\x04"}) {
    const grpc::Status status(grpc::StatusCode::ABORTED, "over", details);
    EXPECT_EQ(SeenEpochOf(FromGrpcStatus(status, "worker a")), std::nullopt) << details;
  }
}

TEST(GrpcStatus, Leader_SurvivesTheRoundTrip) {
  for (const char* leader : {"10.0.0.7:7070", ""}) {
    const absl::Status received = FromGrpcStatus(ToGrpcStatus(NotLeading(leader)), "coordinator a");
    EXPECT_EQ(received.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(LeaderOf(received), leader);
  }
  EXPECT_EQ(LeaderOf(FromGrpcStatus(ToGrpcStatus(absl::UnavailableError("gone")), "a")),
            std::nullopt);
  const grpc::Status long_one(grpc::StatusCode::UNAVAILABLE, "x",
                              "leader=" + std::string(1000, 'a'));
  EXPECT_EQ(LeaderOf(FromGrpcStatus(long_one, "a")), std::nullopt);
}

TEST(GrpcStatus, Refusals_AreToldFromServersThatAreNotReached) {
  const auto received = [](const absl::Status& status) {
    return FromGrpcStatus(ToGrpcStatus(status), "coordinator a");
  };
  const absl::Status not_done = received(absl::UnavailableError(absl::StrCat(kNotDone, "full")));
  const absl::Status perhaps = received(absl::UnavailableError(absl::StrCat(kPerhapsDone, "mute")));
  EXPECT_THAT(not_done,
              StatusIs(absl::StatusCode::kUnavailable, "coordinator a: not done, because full"));
  EXPECT_TRUE(IsNotDone(not_done));
  EXPECT_FALSE(IsPerhapsDone(not_done));
  EXPECT_TRUE(IsPerhapsDone(perhaps));
  EXPECT_FALSE(IsNotDone(perhaps));
  for (const absl::Status& other : {absl::OkStatus(), absl::UnavailableError("connection refused"),
                                    absl::InternalError(absl::StrCat(kNotDone, "full"))}) {
    EXPECT_FALSE(IsNotDone(received(other)) || IsPerhapsDone(received(other))) << other;
  }
}

TEST(GrpcStatus, LongMessage_IsCutToTheLimit) {
  const grpc::Status status = ToGrpcStatus(absl::InternalError(std::string(1 << 20, 'x')));
  EXPECT_EQ(status.error_message().size(), size_t{rpc_limits::kStatusMessageBytesMax});
}

// The text may end up in a message, where anything but UTF-8 could not be read back.
TEST(GrpcStatus, Text_IsUtf8BothWays) {
  const std::string half =
      std::string(rpc_limits::kStatusMessageBytesMax - 4, 'x') + "\u00E9\u00E9\u00E9";
  const std::string cut = ToGrpcStatus(absl::InternalError(half)).error_message();
  EXPECT_EQ(cut, std::string(rpc_limits::kStatusMessageBytesMax - 4, 'x') + "...");
  EXPECT_EQ(ToGrpcStatus(absl::NotFoundError("a\xFF.txt")).error_message(), "a\uFFFD.txt");
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::NOT_FOUND, "a\xFF.txt"), "w"),
              StatusIs(absl::StatusCode::kNotFound, "w: a\uFFFD.txt"));
}

TEST(GrpcStatus, BrokenStream_IsUnavailable) {
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed"), "worker a"),
              StatusIs(absl::StatusCode::kUnavailable, "worker a: Stream removed"));
}

}  // namespace
}  // namespace penstock
