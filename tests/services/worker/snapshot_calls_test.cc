// Snapshots that travel between workers over gRPC.
#include "services/worker/snapshot_calls.h"

#include <gtest/gtest.h>

#include "services/rpc/channel.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

const char* const kPath = "job/1-4/layer-000-any.safetensors";

// A peer with a server, and a worker that calls it.
class SnapshotCallsTest : public ::testing::Test {
 protected:
  SnapshotCallsTest() {
    AddSnapshotService(server_, there_);
    EXPECT_THAT(server_.Start(), IsOk());
    peer_.set_worker("w1");
    peer_.set_address(server_.address().ToString());
  }

  static std::string Content(size_t bytes) {
    std::string content(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i * 31 + i / 251);
    return content;
  }

  SnapshotMemory here_{64 << 20};
  SnapshotMemory there_{8 << 20};
  RpcServer server_{{.listen = {"127.0.0.1", 0}, .security = TransportSecurity()}};
  SnapshotCalls calls_{here_, [](const std::string& address) {
                         return MakeControlChannel(address, grpc::InsecureChannelCredentials());
                       }};
  v1::SnapshotHolder peer_;
  const std::function<absl::Status()> always_ = [] { return absl::OkStatus(); };
};

TEST_F(SnapshotCallsTest, FilesOfAnySize_ArriveAndAreFetchedAgain) {
  const size_t part = kSnapshotPartBytes;
  for (const size_t bytes : {size_t{0}, size_t{1}, part - 1, part, part + 1, 5 * part + 17}) {
    SCOPED_TRACE(bytes);
    const std::string content = Content(bytes);
    ASSERT_THAT(here_.WriteDurably(kPath, {content}), IsOk());
    ASSERT_THAT(calls_.Send(peer_, kPath, always_), IsOk());
    EXPECT_THAT(there_.Read(kPath, 64 << 20), IsOkAndHolds(content));
    EXPECT_THAT(calls_.Fetch(peer_, kPath, bytes, always_), IsOkAndHolds(content));
    there_.Forget("job");
  }
}

TEST_F(SnapshotCallsTest, PeerWithoutRoom_SaysSo) {
  ASSERT_THAT(here_.WriteDurably(kPath, {Content(9 << 20)}), IsOk());
  EXPECT_THAT(calls_.Send(peer_, kPath, always_),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("w1")));
  EXPECT_EQ(there_.bytes(), 0);
}

TEST_F(SnapshotCallsTest, WhatThePeerDoesNotHave_IsNotFound) {
  EXPECT_THAT(calls_.Fetch(peer_, kPath, 10, always_), StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(SnapshotCallsTest, PeerThatIsGone_IsUnavailable) {
  ASSERT_THAT(here_.WriteDurably(kPath, {"abc"}), IsOk());
  server_.Shutdown(absl::ZeroDuration());
  EXPECT_THAT(calls_.Send(peer_, kPath, always_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w1")));
}

TEST_F(SnapshotCallsTest, RunThatIsStopped_EndsBetweenParts) {
  ASSERT_THAT(here_.WriteDurably(kPath, {Content(4 << 20)}), IsOk());
  int asked = 0;
  EXPECT_THAT(
      calls_.Send(peer_, kPath,
                  [&] { return ++asked < 3 ? absl::OkStatus() : absl::AbortedError("stop"); }),
      StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_THAT(there_.Read(kPath, 64 << 20), StatusIs(absl::StatusCode::kNotFound, _))
      << "it is not whole";
}

}  // namespace
}  // namespace penstock
