#include "services/rpc/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(ParseHostPorts, Lists_HaveCommas) {
  EXPECT_THAT(ParseHostPorts("a:1"), IsOkAndHolds(std::vector<HostPort>{{"a", 1}}));
  EXPECT_THAT(ParseHostPorts("a:1,[::1]:2"),
              IsOkAndHolds(std::vector<HostPort>{{"a", 1}, {"::1", 2}}));
  for (const char* text : {"", "a:1,", ",a:1", "a:1, b:2x"}) {
    EXPECT_THAT(ParseHostPorts(text),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("HOST:PORT")))
        << text;
  }
}

TEST(ParseHostPort, NamesAndBothKindsOfAddress_Parse) {
  EXPECT_THAT(ParseHostPort("127.0.0.1:7070"), IsOkAndHolds(HostPort{"127.0.0.1", 7070}));
  EXPECT_THAT(ParseHostPort("worker-3.cluster:0"), IsOkAndHolds(HostPort{"worker-3.cluster", 0}));
  EXPECT_THAT(ParseHostPort("[::1]:65535"), IsOkAndHolds(HostPort{"::1", 65535}));
}

TEST(ParseHostPort, WhatItPrints_ParsesBack) {
  for (const HostPort& address : {HostPort{"localhost", 1}, HostPort{"fe80::1", 22}}) {
    EXPECT_THAT(ParseHostPort(address.ToString()), IsOkAndHolds(address));
  }
}

TEST(ParseHostPort, AnythingElse_IsRefusedByName) {
  for (const char* text :
       {"", ":", "host", "host:", ":80", "host:-1", "host:65536", "host:8o", "::1:80", "host: 80",
        "host:99999999999", "[]:80", "a b:80", "[[::1]]:80", "[a:80", "h\xC3\xB6st:80"}) {
    EXPECT_THAT(ParseHostPort(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected HOST:PORT")))
        << text;
  }
}

// The system's resolver would read no further, so that the address would be that of this machine.
TEST(ParseHostPort, ZeroByte_IsRefused) {
  EXPECT_FALSE(ParseHostPort(absl::string_view("127.0.0.1\0.example:80", 21)).ok());
}

TEST(CheckCanListen, AddressOfAnotherMachine_SaysWhy) {
  EXPECT_THAT(CheckCanListen({"192.0.2.1", 7070}),  // reserved for documentation
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("192.0.2.1:7070")));
}

TEST(ProbeListener, SomebodyListens_EvenIfNobodyAccepts) {
  HostPort found;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int listener, OpenListener({"127.0.0.1", 0}, found));
  EXPECT_THAT(ProbeListener(found, absl::Seconds(10)), IsOk());
  close(listener);
}

TEST(ProbeListener, NobodyListens_IsKnownLongBeforeTheTimeout) {
  HostPort found;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int listener, OpenListener({"127.0.0.1", 0}, found));
  close(listener);
  EXPECT_THAT(ProbeListener(found, absl::Hours(1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nobody listens at 127.0.0.1:")));
}

// Something in the way accepts connections for a process that is gone.
TEST(ProbeListener, ConnectionsEndAtOnce_IsNoAnswer) {
  HostPort found;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int listener, OpenListener({"127.0.0.1", 0}, found));
  std::atomic<bool> over = false;
  std::thread closes([&] {
    while (!over) {
      const int connection = accept(listener, nullptr, nullptr);  // does not block
      if (connection >= 0) close(connection);
    }
  });
  EXPECT_THAT(ProbeListener(found, absl::Milliseconds(200)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("did not answer within")));
  over = true;
  closes.join();
  close(listener);
}

}  // namespace
}  // namespace penstock
