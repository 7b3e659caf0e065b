// CheckHealth against servers that serve, do not, hang, or are not there.
#include "services/rpc/health_check.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "services/rpc/server.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

TEST(HealthCheckTest, Server_SaysWhetherItServes) {
  RpcServer server({.listen = {"127.0.0.1", 0}});
  ASSERT_THAT(server.Start(), IsOk());
  EXPECT_THAT(CheckHealth(server.address(), kTimeout),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("says NOT_SERVING")));
  server.SetServing(true);
  EXPECT_THAT(CheckHealth(server.address(), kTimeout), IsOk());
  server.SetServing(false);
  EXPECT_THAT(CheckHealth(server.address(), kTimeout),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("says NOT_SERVING")));
}

TEST(HealthCheckTest, PartOfAServer_HasAHealthOfItsOwn) {
  RpcServer server({.listen = {"127.0.0.1", 0}});
  ASSERT_THAT(server.Start(), IsOk());
  server.SetServing(true);
  const auto check = [&] { return CheckHealth(server.address(), kTimeout, "part"); };
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no health of part")));
  server.SetPartServing("part", true);
  EXPECT_THAT(check(), IsOk());
  server.SetPartServing("part", false);
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("says NOT_SERVING")));
  EXPECT_THAT(CheckHealth(server.address(), kTimeout), IsOk()) << "the whole serves";
}

TEST(HealthCheckTest, Nobody_IsUnavailable) {
  RpcServer server({.listen = {"127.0.0.1", 0}});
  ASSERT_THAT(server.Start(), IsOk());
  const HostPort address = server.address();
  server.Shutdown();
  EXPECT_THAT(CheckHealth(address, kTimeout),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address.ToString())));
}

TEST(HealthCheckTest, ServerThatNeverAnswers_IsGivenUpAtTheDeadline) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, generic, size), 0);
  ASSERT_EQ(listen(listener, 1), 0);  // connects, and says nothing
  ASSERT_EQ(getsockname(listener, generic, &size), 0);
  EXPECT_THAT(CheckHealth({"127.0.0.1", ntohs(address.sin_port)}, absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  close(listener);
}

}  // namespace
}  // namespace penstock
