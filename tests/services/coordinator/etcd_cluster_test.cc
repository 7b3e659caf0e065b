// Against a real etcd: the store, its client, the election, and coordinators that are killed.
#include <gmock/gmock.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/coordinator/election.h"
#include "services/coordinator/etcd_rows.h"
#include "services/coordinator/etcd_store.h"
#include "services/etcd/etcd_client.h"
#include "services/rpc/channel.h"
#include "services/rpc/leader_stub.h"
#include "tests/services/cli/process.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/services/coordinator/real_etcd.h"
#include "tests/services/coordinator/state_store_suite.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// One for all tests that do not stop it; each has a prefix of its own.
RealEtcd& SharedEtcd() {
  static RealEtcd etcd;  // its process ends with this one
  return etcd;
}

std::string NewPrefix() {
  static std::atomic<int> last = 0;
  return absl::StrCat("/test/", ++last);
}

// Makes the leader's key again, as the next leader does. Returns its revision.
int64_t MakeLeader(EtcdCalls& etcd, const std::string& prefix, const std::string& address) {
  for (const bool remove : {true, false}) {
    etcdserverpb::TxnRequest request;
    etcdserverpb::RequestOp& operation = *request.add_success();
    if (remove) {
      operation.mutable_request_delete_range()->set_key(LeaderKey(prefix));
    } else {
      operation.mutable_request_put()->set_key(LeaderKey(prefix));
      operation.mutable_request_put()->set_value(address);
    }
    const auto response = etcd.Txn(request, absl::Seconds(10));
    EXPECT_THAT(response, IsOk());
    if (!remove && response.ok()) return response->header().revision();
  }
  return 0;
}

class RealEtcdHost final : public StateStoreHost {
 public:
  absl::StatusOr<std::unique_ptr<StateStore>> Open() override {
    return EtcdStore::Open(*etcd_, prefix_, MakeLeader(*etcd_, prefix_, "a:1"));
  }
  void DamageRecord(const std::string& job_id) override {
    etcdserverpb::RangeRequest request;
    request.set_key(KeyOf(etcd_rows::Job(job_id)));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto found, etcd_->Range(request, absl::Seconds(10)));
    ASSERT_EQ(found.kvs_size(), 1);
    etcdserverpb::TxnRequest damage;
    damage.add_success()->mutable_request_put()->set_key(request.key());
    damage.mutable_success(0)->mutable_request_put()->set_value(found.kvs(0).value() + "x");
    ASSERT_THAT(etcd_->Txn(damage, absl::Seconds(10)), IsOk());
  }
  void RemoveEvent(const std::string& job_id, int64_t sequence) override {
    etcdserverpb::TxnRequest removal;
    removal.add_success()->mutable_request_delete_range()->set_key(
        KeyOf(etcd_rows::Event(job_id, sequence)));
    ASSERT_THAT(etcd_->Txn(removal, absl::Seconds(10)), IsOk());
  }

 private:
  std::string KeyOf(const std::string& row) const { return absl::StrCat(prefix_, "/", row); }

  const std::unique_ptr<EtcdClient> etcd_ = SharedEtcd().NewClient();
  const std::string prefix_ = NewPrefix();
};

INSTANTIATE_TEST_SUITE_P(RealEtcd, StateStoreSuite,
                         ::testing::Values([] { return std::make_unique<RealEtcdHost>(); }));

TEST(RealEtcdStore, WriteOfADeposedLeader_IsRefused) {
  const std::unique_ptr<EtcdClient> etcd = SharedEtcd().NewClient();
  const std::string prefix = NewPrefix();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<EtcdStore> deposed,
                                EtcdStore::Open(*etcd, prefix, MakeLeader(*etcd, prefix, "a:1")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<EtcdStore> leader,
                                EtcdStore::Open(*etcd, prefix, MakeLeader(*etcd, prefix, "b:2")));
  const SaveJob job = StoredJobOf("j", v1::JOB_STATE_QUEUED);
  EXPECT_THAT(deposed->Write({{.job = &job}}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("b:2")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, leader->Load());
  EXPECT_TRUE(jobs.empty());
  EXPECT_THAT(leader->Write({{.job = &job}}), IsOk());
}

TEST(RealEtcdClient, MemberThatIsGone_IsPassedOver) {
  EtcdClient etcd({UnusedAddress(), SharedEtcd().address()}, grpc::InsecureChannelCredentials());
  etcdserverpb::RangeRequest request;
  request.set_key("/nothing");
  EXPECT_THAT(etcd.Range(request, absl::Seconds(10)), IsOk());
  EXPECT_THAT(etcd.GrantLease(2000, absl::Seconds(10)), IsOk());
}

TEST(RealEtcdClient, NobodyAnswers_SaysWhoWasAskedAndWhatToDo) {
  const HostPort gone = UnusedAddress();
  EtcdClient etcd({gone}, grpc::InsecureChannelCredentials());
  etcdserverpb::RangeRequest request;
  request.set_key("/nothing");
  EXPECT_THAT(
      etcd.Range(request, absl::Seconds(1)),
      StatusIs(absl::StatusCode::kUnavailable,
               ::testing::AllOf(HasSubstr(gone.ToString()), HasSubstr("is a majority of"))));
}

TEST(RealEtcdClient, Leases_LiveAndEnd) {
  const std::unique_ptr<EtcdClient> etcd = SharedEtcd().NewClient();
  const absl::Duration timeout = absl::Seconds(10);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const EtcdCalls::Lease lease, etcd->GrantLease(2000, timeout));
  EXPECT_GE(lease.ttl_ms, 2000);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t ttl_ms, etcd->KeepAlive(lease.id, timeout));
  EXPECT_GE(ttl_ms, 2000);
  EXPECT_THAT(etcd->RevokeLease(lease.id, timeout), IsOk());
  EXPECT_THAT(etcd->RevokeLease(lease.id, timeout), IsOk()) << "it has ended already";
  EXPECT_THAT(etcd->KeepAlive(lease.id, timeout), IsOkAndHolds(0));
}

TEST(RealEtcdClient, Removal_IsHeardOf) {
  const std::unique_ptr<EtcdClient> etcd = SharedEtcd().NewClient();
  const std::string prefix = NewPrefix();
  const int64_t made = MakeLeader(*etcd, prefix, "a:1");
  StreamCanceller canceller;
  EXPECT_THAT(etcd->AwaitRemoval(LeaderKey(prefix), made + 1, absl::Milliseconds(300), canceller),
              IsOkAndHolds(false));
  MakeLeader(*etcd, prefix, "b:2");  // removes the key first
  EXPECT_THAT(etcd->AwaitRemoval(LeaderKey(prefix), made + 1, absl::Seconds(20), canceller),
              IsOkAndHolds(true))
      << "changes of before the call count, too";
  canceller.Cancel();
  EXPECT_THAT(etcd->AwaitRemoval(LeaderKey(prefix), made + 100'000, absl::Seconds(20), canceller),
              IsOkAndHolds(false));
}

class RealElection : public ::testing::Test {
 protected:
  std::unique_ptr<Election> Candidate(const std::string& address) {
    return std::make_unique<Election>(ElectionParts{
        .etcd = *etcd_, .clock = RealClock(), .prefix = "/penstock", .address = address});
  }
  static int64_t AwaitTerm(Election& candidate) {
    int64_t term = 0;
    EXPECT_TRUE(Eventually(
        [&] {
          term = candidate.Look().term.value_or(0);
          return term > 0;
        },
        std::chrono::seconds(60)));
    return term;
  }

  const RealEtcd real_;  // its own, which it stops
  const std::unique_ptr<EtcdClient> etcd_ = real_.NewClient();
};

TEST_F(RealElection, FrozenEtcd_EndsTheTermAndBringsALaterOne) {
  ASSERT_TRUE(real_.ok());
  auto a = Candidate("a:1");
  const int64_t first = AwaitTerm(*a);
  auto b = Candidate("b:2");
  EXPECT_TRUE(Eventually([&] { return b->Look().leader == "a:1"; }));
  real_.Freeze();
  EXPECT_TRUE(Eventually([&] { return !a->Look().term.has_value(); }));
  EXPECT_FALSE(b->Look().term.has_value());
  real_.Thaw();
  EXPECT_TRUE(Eventually([&] { return a->Look().term.has_value() || b->Look().term.has_value(); },
                         std::chrono::seconds(60)));
  const int64_t second = std::max(a->Look().term.value_or(0), b->Look().term.value_or(0));
  EXPECT_GT(second, first);
  EXPECT_FALSE(a->Look().term.has_value() && b->Look().term.has_value());
}

// The programs, as they are run.
TEST(RealCluster, LeaderThatIsKilled_IsFollowedByAnotherWithItsJobs) {
  ASSERT_TRUE(SharedEtcd().ok());
  const TestDirectory directory;
  const std::string state = absl::StrCat("etcd://", SharedEtcd().address().ToString(), NewPrefix());
  std::vector<HostPort> addresses = {UnusedAddress(), UnusedAddress()};
  std::vector<std::unique_ptr<Process>> coordinators;
  for (const HostPort& address : addresses) {
    coordinators.push_back(std::make_unique<Process>(std::vector<std::string>{
        ProgramPath("penstock-coordinator"), "--insecure", "--metrics=off", "--audit-log=off",
        "--listen", address.ToString(), "--state", state}));
  }
  LeaderStub<v1::JobService> jobs(addresses, [](const std::string& address) {
    return MakeControlChannel(address, grpc::InsecureChannelCredentials());
  });
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(5, 1);
  request.set_idempotency_key("once");
  absl::StatusOr<v1::SubmitJobResponse> submitted = absl::UnknownError("not submitted yet");
  ASSERT_TRUE(Eventually(
      [&] {
        submitted = jobs.Call(&v1::JobService::Stub::SubmitJob, request, absl::Seconds(5));
        return submitted.ok();
      },
      std::chrono::seconds(60)))
      << submitted.status() << coordinators[0]->err() << coordinators[1]->err();

  const size_t leader = absl::StrContains(jobs.peer(), addresses[0].ToString()) ? 0 : 1;
  coordinators[leader]->Signal(SIGKILL);
  absl::StatusOr<v1::ListJobsResponse> list = absl::UnknownError("not asked yet");
  ASSERT_TRUE(Eventually(
      [&] {
        list = jobs.Call(&v1::JobService::Stub::ListJobs, {}, absl::Seconds(5));
        return list.ok();
      },
      std::chrono::seconds(60)))
      << list.status() << coordinators[1 - leader]->err();
  ASSERT_EQ(list->jobs_size(), 1);
  EXPECT_EQ(list->jobs(0).job_id(), submitted->job_id());
  EXPECT_THAT(coordinators[1 - leader]->err(), HasSubstr("leads the cluster now"));
  // The same submission again is the same job.
  const auto again = jobs.Call(&v1::JobService::Stub::SubmitJob, request, absl::Seconds(10));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->job_id(), submitted->job_id());
}

}  // namespace
}  // namespace penstock
