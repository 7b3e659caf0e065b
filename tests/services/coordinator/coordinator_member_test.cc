// Several coordinators in one process, with their state in an etcd in memory.
#include "services/coordinator/coordinator_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/leader_note.h"
#include "services/coordinator/etcd_store.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/services/coordinator/fake_etcd.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMemberPrefix[] = "/penstock";

HostPort FreeAddress() {
  HostPort found;
  const absl::StatusOr<int> listener = OpenListener({"127.0.0.1", 0}, found);
  EXPECT_THAT(listener, IsOk());
  if (listener.ok()) close(*listener);
  return found;
}

class CoordinatorMemberTest : public ::testing::Test {
 protected:
  // One of the coordinators, and the calls of a client to it.
  struct One {
    HostPort address;
    std::unique_ptr<CoordinatorMember> member;
    std::unique_ptr<v1::JobService::Stub> stub;

    absl::StatusOr<v1::ListJobsResponse> ListJobs() {
      return Call("coordinator", *stub, &v1::JobService::Stub::ListJobs, {}, absl::Seconds(5));
    }
  };

  One StartOne() {
    One one{.address = FreeAddress()};
    CoordinatorMemberOptions options{.server = {.listen = one.address},
                                     .prefix = kMemberPrefix,
                                     .advertise = one.address.ToString()};
    options.server.log = [this](const std::string& line) {
      MutexLock lock(mutex_);
      lines_.push_back(line);
    };
    auto member = CoordinatorMember::Start(options, etcd_, RealClock(), RealFiles());
    EXPECT_THAT(member, IsOk());
    if (member.ok()) one.member = *std::move(member);
    one.stub = v1::JobService::NewStub(
        MakeControlChannel(one.address.ToString(), grpc::InsecureChannelCredentials()));
    return one;
  }
  std::vector<std::string> Lines() {
    MutexLock lock(mutex_);
    return lines_;
  }
  static bool Await(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + kTimeout;
    while (absl::Now() < deadline) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }

  FakeEtcd etcd_{RealClock()};
  Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(CoordinatorMemberTest, Follower_NamesTheLeader) {
  One a = StartOne();
  ASSERT_TRUE(Await([&] { return a.member->leads(); }));
  One b = StartOne();
  ASSERT_TRUE(Await([&] { return LeaderOf(b.ListJobs().status()) == a.address.ToString(); }));
  EXPECT_FALSE(b.member->leads());
  EXPECT_THAT(b.ListJobs(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(absl::StrCat("ask the one at ", a.address.ToString()))));
  EXPECT_EQ(LeaderOf(b.member->Lists().status()), a.address.ToString());
  EXPECT_THAT(a.ListJobs(), IsOk());
  EXPECT_THAT(b.member->Drain(absl::Seconds(1)), IsOk()) << "there is nothing to drain";
}

TEST_F(CoordinatorMemberTest, LeaderThatEnds_IsFollowedByAnotherWithItsJobs) {
  One a = StartOne();
  ASSERT_TRUE(Await([&] { return a.member->leads(); }));
  One b = StartOne();
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(5, 1);
  const auto submitted =
      Call("coordinator", *a.stub, &v1::JobService::Stub::SubmitJob, request, kTimeout);
  ASSERT_THAT(submitted, IsOk());
  a.member->Shutdown();
  ASSERT_TRUE(Await([&] { return b.member->leads(); }));
  const auto jobs = b.ListJobs();
  ASSERT_THAT(jobs, IsOk());
  ASSERT_EQ(jobs->jobs_size(), 1);
  EXPECT_EQ(jobs->jobs(0).job_id(), submitted->job_id());
  EXPECT_EQ(jobs->jobs(0).state(), v1::JOB_STATE_QUEUED);
}

TEST_F(CoordinatorMemberTest, LeaderWithoutEtcd_AnswersNobodyAndComesBackWithTheState) {
  One a = StartOne();
  ASSERT_TRUE(Await([&] { return a.member->leads(); }));
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(5, 1);
  ASSERT_THAT(Call("coordinator", *a.stub, &v1::JobService::Stub::SubmitJob, request, kTimeout),
              IsOk());
  etcd_.CutOff(true);
  ASSERT_TRUE(Await([&] { return !a.member->leads(); }));
  ASSERT_TRUE(Await([&] { return LeaderOf(a.ListJobs().status()).has_value(); }));
  etcd_.CutOff(false);
  ASSERT_TRUE(Await([&] { return a.member->leads(); }));
  const auto jobs = a.ListJobs();
  ASSERT_THAT(jobs, IsOk());
  EXPECT_EQ(jobs->jobs_size(), 1);
}

// It was frozen, say, and knows nothing of the next leader yet.
TEST_F(CoordinatorMemberTest, LeaderWhoseKeyIsAnothers_TakesNoJobAndStops) {
  One a = StartOne();
  ASSERT_TRUE(Await([&] { return a.member->leads(); }));
  etcd_.Remove(LeaderKey(kMemberPrefix));
  etcd_.Put(LeaderKey(kMemberPrefix), "10.0.0.9:7070");
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(5, 1);
  EXPECT_THAT(Call("coordinator", *a.stub, &v1::JobService::Stub::SubmitJob, request, kTimeout),
              StatusIs(absl::StatusCode::kUnavailable, testing::_));
  for (const auto& [key, value] : etcd_.All()) EXPECT_THAT(key, Not(HasSubstr("/jobs/")));
  EXPECT_TRUE(Await([&] { return LeaderOf(a.ListJobs().status()) == "10.0.0.9:7070"; }));
  EXPECT_FALSE(a.member->leads());
}

TEST_F(CoordinatorMemberTest, StateThatCannotBeRead_IsLeftToOthers) {
  etcd_.Put(absl::StrCat(kMemberPrefix, "/version"), "9");
  One a = StartOne();
  ASSERT_TRUE(Await([&] {
    const std::vector<std::string> lines = Lines();
    return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return absl::StrContains(line, "cannot lead the cluster");
    });
  }));
  EXPECT_THAT(Lines(), Contains(HasSubstr("version 9")));
  EXPECT_FALSE(a.member->leads());
  EXPECT_TRUE(LeaderOf(a.ListJobs().status()).has_value()) << "it still says that it does not lead";
}

TEST_F(CoordinatorMemberTest, AddressThatIsTaken_IsRefusedAtOnce) {
  One a = StartOne();
  // The address is free for a moment when a follower becomes the leader.
  ASSERT_TRUE(Await([&] { return a.member->leads(); }));
  CoordinatorMemberOptions options{
      .server = {.listen = a.address}, .prefix = kMemberPrefix, .advertise = a.address.ToString()};
  EXPECT_THAT(CoordinatorMember::Start(options, etcd_, RealClock(), RealFiles()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
}

}  // namespace
}  // namespace penstock
