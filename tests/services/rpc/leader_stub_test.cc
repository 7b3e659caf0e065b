#include "services/rpc/leader_stub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/server.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// A coordinator that answers ListJobs as the test says, and counts.
class StubbornCoordinator {
 public:
  explicit StubbornCoordinator(std::function<absl::Status()> answer)
      : server_({.listen = {"127.0.0.1", 0}}) {
    using Jobs = v1::JobService::AsyncService;
    Jobs& jobs = server_.AddService<Jobs>(Callers::kUsers);
    server_.Unary(jobs, &Jobs::RequestListJobs,
                  [this, answer](const v1::ListJobsRequest&,
                                 const CallInfo&) -> absl::StatusOr<v1::ListJobsResponse> {
                    ++calls_;
                    const absl::Status status = answer();
                    if (!status.ok()) return status;
                    v1::ListJobsResponse response;
                    response.add_jobs()->set_job_id("j-1");
                    return response;
                  });
    EXPECT_THAT(server_.Start(), IsOk());
  }
  HostPort address() const { return server_.address(); }
  int calls() const { return calls_; }

 private:
  std::atomic<int> calls_ = 0;
  RpcServer server_;
};

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  return MakeControlChannel(address, grpc::InsecureChannelCredentials());
}

absl::StatusOr<v1::ListJobsResponse> ListJobs(LeaderStub<v1::JobService>& stub,
                                              absl::Duration timeout = absl::Seconds(20)) {
  return stub.Call(&v1::JobService::Stub::ListJobs, {}, timeout);
}

TEST(LeaderStub, FollowsWhoIsNamed_AndStaysThere) {
  StubbornCoordinator leader([] { return absl::OkStatus(); });
  StubbornCoordinator other([] { return NotLeading(""); });
  StubbornCoordinator follower([&] { return NotLeading(leader.address().ToString()); });
  LeaderStub<v1::JobService> stub({follower.address(), other.address(), leader.address()}, Dial);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(ListJobs(stub), IsOk());
  EXPECT_EQ(follower.calls(), 1);
  EXPECT_EQ(other.calls(), 0);
  EXPECT_EQ(leader.calls(), 3);
  EXPECT_THAT(stub.peer(), HasSubstr(leader.address().ToString()));
}

TEST(LeaderStub, WaitsWhileNoneLeads) {
  std::atomic<int> asked = 0;
  const auto answer = [&] { return ++asked < 8 ? NotLeading("") : absl::OkStatus(); };
  StubbornCoordinator a(answer), b(answer);
  LeaderStub<v1::JobService> stub({a.address(), b.address()}, Dial);
  EXPECT_THAT(ListJobs(stub), IsOk());
  EXPECT_EQ(asked, 8);
}

TEST(LeaderStub, WhenTheTimeIsOver_TheRefusalIsTheAnswer) {
  StubbornCoordinator a([] { return NotLeading(""); }), b([] { return NotLeading(""); });
  LeaderStub<v1::JobService> stub({a.address(), b.address()}, Dial);
  EXPECT_EQ(LeaderOf(ListJobs(stub, absl::Seconds(1)).status()), "");
}

TEST(LeaderStub, CoordinatorThatIsGone_IsPassedOver) {
  HostPort gone;
  {
    gone = StubbornCoordinator([] { return absl::OkStatus(); }).address();
  }
  StubbornCoordinator leader([] { return absl::OkStatus(); });
  LeaderStub<v1::JobService> stub({gone, leader.address()}, Dial);
  EXPECT_THAT(ListJobs(stub), IsOk());
}

TEST(LeaderStub, OneCoordinator_IsAskedOnce) {
  StubbornCoordinator a([] { return NotLeading("10.0.0.7:7070"); });
  LeaderStub<v1::JobService> stub({a.address()}, Dial);
  EXPECT_THAT(ListJobs(stub),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ask the one at 10.0.0.7:7070")));
  EXPECT_EQ(a.calls(), 1);
}

TEST(LeaderStub, LeaderThatDoesNotDoIt_IsTheAnswer) {
  StubbornCoordinator leader(
      [] { return absl::UnavailableError(absl::StrCat(kNotDone, "the disk is full")); });
  StubbornCoordinator follower([&] { return NotLeading(leader.address().ToString()); });
  LeaderStub<v1::JobService> stub({leader.address(), follower.address()}, Dial);
  EXPECT_THAT(ListJobs(stub),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the disk is full")));
  EXPECT_EQ(leader.calls(), 1);
  EXPECT_EQ(follower.calls(), 0);
}

// Another may lead soon, who knows.
TEST(LeaderStub, LeaderThatDoesNotKnowWhetherItIsDone_IsAskedAgain) {
  const absl::Status mute = absl::UnavailableError(absl::StrCat(kPerhapsDone, "etcd is mute"));
  std::atomic<int> asked = 0;
  std::atomic<int> mute_until = 3;
  StubbornCoordinator leader([&] { return ++asked < mute_until ? mute : absl::OkStatus(); });
  StubbornCoordinator follower([&] { return NotLeading(leader.address().ToString()); });
  LeaderStub<v1::JobService> stub({leader.address(), follower.address()}, Dial);
  EXPECT_THAT(ListJobs(stub), IsOk());
  EXPECT_EQ(asked, 3);
  mute_until = std::numeric_limits<int>::max();
  EXPECT_THAT(ListJobs(stub, absl::Seconds(2)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("etcd is mute")))
      << "the address that was asked last";
}

TEST(LeaderStub, OtherErrors_AreTheAnswer) {
  StubbornCoordinator a([] { return absl::NotFoundError("no job"); });
  StubbornCoordinator b([] { return absl::OkStatus(); });
  LeaderStub<v1::JobService> stub({a.address(), b.address()}, Dial);
  EXPECT_THAT(ListJobs(stub), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no job")));
  EXPECT_EQ(b.calls(), 0);
}

}  // namespace
}  // namespace penstock
