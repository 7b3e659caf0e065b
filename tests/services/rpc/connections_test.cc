// How many connections an RpcServer takes, and for how long.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <thread>
#include <vector>

#include "base/file_tree.h"
#include "base/mutex.h"
#include "tests/services/rpc/server_fixture.h"

namespace penstock {
namespace {

using ::testing::Not;

// TCP connections that say nothing.
std::vector<Descriptor> ConnectSilently(const HostPort& address, int count) {
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(address.port));
  inet_pton(AF_INET, address.host.c_str(), &target.sin_addr);
  std::vector<Descriptor> connections;
  for (int i = 0; i < count; ++i) {
    connections.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(
        connect(connections.back().get(), reinterpret_cast<sockaddr*>(&target), sizeof target), 0);
  }
  return connections;
}

// How many of `connections` the server has hung up.
int HungUp(const std::vector<Descriptor>& connections) {
  std::vector<pollfd> polled;
  polled.reserve(connections.size());
  for (const Descriptor& one : connections)
    polled.push_back({.fd = one.get(), .events = POLLRDHUP});
  poll(polled.data(), polled.size(), 0);
  return static_cast<int>(std::count_if(polled.begin(), polled.end(),
                                        [](const pollfd& one) { return one.revents != 0; }));
}

// Asks until the server can be reached.
grpc::Status GetJobWhenReachable(v1::JobService::Stub& stub) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
  v1::GetJobResponse response;
  return stub.GetJob(&context, v1::GetJobRequest(), &response);
}

TEST_F(ServerTest, Connections_BeyondTheLimitAndSilent_WaitAndTheServerAnswersWhenTheyEnd) {
  constexpr int kLimit = 20;
  StartServer({.connections_max = kLimit});
  auto silent = ConnectSilently(server_->address(), kLimit + 50);
  // All places are theirs, so this one waits in the kernel's queue.
  EXPECT_THAT(GetJob("early", absl::Milliseconds(500)), Not(IsOk()));
  silent.clear();
  EXPECT_TRUE(GetJobWhenReachable(*stub_).ok());
}

TEST_F(ServerTest, Connections_ThatStaySilent_AreHungUpAfterTheHandshakesTime) {
  constexpr int kLimit = 20;
  StartServer({.connections_max = kLimit});
  const auto silent = ConnectSilently(server_->address(), kLimit + 5);
  EXPECT_TRUE(GetJobWhenReachable(*stub_).ok());
  EXPECT_GE(HungUp(silent), 1);
}

TEST_F(ServerTest, Connections_WithoutADescriptorLeft_AreAcceptedWhenThereAreSomeAgain) {
  StartServer();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // The client's own need descriptors too: the server has none left from here on.
  auto silent = ConnectSilently(server_->address(), 30);
  const rlimit none = {static_cast<rlim_t>(silent.back().get()), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THAT(GetJob("early", absl::Milliseconds(500)), Not(IsOk()));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(GetJobWhenReachable(*stub_).ok());
}

TEST_F(ServerTest, OldConnection_TakesNoNewCallsAndEndsNone) {
  Mutex mutex;
  std::string peer;
  get_ = [&](const v1::GetJobRequest&, const CallInfo& call) {
    MutexLock lock(mutex);
    peer = call.peer;
    return v1::GetJobResponse();
  };
  std::promise<Reply<v1::GetTimelineResponse>> asked;
  later_ = [&](const v1::GetTimelineRequest&, Reply<v1::GetTimelineResponse> reply) {
    asked.set_value(std::move(reply));
  };
  StartServer({.connection_age = absl::Milliseconds(200)});
  std::promise<absl::Status> ended;
  std::thread long_call([&] { ended.set_value(GetTimeline().status()); });
  const Reply<v1::GetTimelineResponse> reply = asked.get_future().get();
  const auto peer_now = [&] {
    EXPECT_THAT(GetJob("j"), IsOk());
    MutexLock lock(mutex);
    return peer;
  };
  const std::string first = peer_now();
  const absl::Time until = absl::Now() + kTimeout;
  while (peer_now() == first && absl::Now() < until) {
  }
  EXPECT_NE(peer_now(), first) << "another connection, with another handshake";
  reply(v1::GetTimelineResponse());
  EXPECT_THAT(ended.get_future().get(), IsOk());
  long_call.join();
}

}  // namespace
}  // namespace penstock
