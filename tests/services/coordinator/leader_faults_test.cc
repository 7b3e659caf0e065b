// Two coordinators on an etcd of three members, of which one after the other is killed or frozen while jobs train and clients
// call. Whatever was acknowledged must be there afterwards, and no job may notice.
//
// make test does it a few times. For more, and for figures:
//
//   PENSTOCK_LEADER_KILLS=100 PENSTOCK_LEADER_FREEZES=20 PENSTOCK_ETCD_KILLS=20 services_leader_faults_test
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/leader_stub.h"
#include "tests/services/cli/job_directory.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/services/coordinator/real_etcd.h"

namespace penstock {
namespace {

constexpr int kJobs = 3;
constexpr int kStages = 2;
constexpr int kClients = 50;
constexpr int64_t kSteps = 200;  // of a job, about 15 s
constexpr absl::Duration kPatience = absl::Minutes(1);
// Of one try of a call, after which another coordinator is asked: a frozen leader does not answer.
constexpr absl::Duration kTry = absl::Milliseconds(500);
constexpr absl::Duration kLease = absl::Seconds(2);

int NumberOf(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

using Jobs = LeaderStub<v1::JobService>;

class LeaderFaultsTest : public ::testing::Test {
 protected:
  LeaderFaultsTest() : state_("etcd://") {
    std::vector<std::string> members;
    for (const HostPort& address : etcd_.addresses()) members.push_back(address.ToString());
    absl::StrAppend(&state_, absl::StrJoin(members, ","), "/test");
    // Devices that are slow and compute little, so that the cores are left to the coordinators.
    files_.Write(
        "device.yaml",
        "model: {forward_ms: 10, backward_input_ms: 10, backward_weight_ms: 10, update_ms: 0}\n");
    for (HostPort& address : addresses_) address = UnusedAddress();
    for (size_t i = 0; i < addresses_.size(); ++i) StartCoordinator(i);
    for (int i = 0; i < kJobs * kStages; ++i) StartWorker(i);
  }
  ~LeaderFaultsTest() override {
    over_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  std::unique_ptr<Jobs> NewStub() const {
    return std::make_unique<Jobs>(std::vector<HostPort>(addresses_.begin(), addresses_.end()),
                                  [](const std::string& address) {
                                    return MakeControlChannel(address,
                                                              grpc::InsecureChannelCredentials());
                                  });
  }

  void StartCoordinator(size_t coordinator) {
    coordinators_[coordinator] = std::make_unique<Process>(std::vector<std::string>{
        ProgramPath("penstock-coordinator"), "--insecure", "--metrics=off", "--audit-log=off",
        "--listen", addresses_[coordinator].ToString(), "--state", state_});
  }

  void StartWorker(int number) {
    workers_.push_back(std::make_unique<Process>(std::vector<std::string>{
        ProgramPath("penstock-worker"), "--insecure", "--metrics=off", "--device=cpu",
        "--threads=1", "--coordinator",
        absl::StrCat(addresses_[0].ToString(), ",", addresses_[1].ToString()), "--name",
        absl::StrCat("worker-", number), "--data-root", files_.path(), "--emulate",
        files_.path("device.yaml")}));
  }

  v1::JobSpec Spec(int stages) const {
    v1::JobSpec spec = TestJob(kSteps, stages);
    spec.mutable_data()->mutable_text()->set_path(files_.path("input.txt"));
    spec.mutable_planning()->set_split("estimated");
    return spec;
  }

  // Calls until it is acknowledged, as a client does that wants it. Fails the test if that takes longer than anything
  // should.
  template <typename Request, typename Response>
  Response Insist(Jobs& jobs,
                  grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                  const std::type_identity_t<Request>& request) {
    const absl::Time give_up_at = absl::Now() + kPatience;
    while (true) {
      absl::StatusOr<Response> answer = jobs.Call(method, request, kTry);
      if (answer.ok()) return *std::move(answer);
      if (absl::Now() > give_up_at) {
        ADD_FAILURE() << "not acknowledged within " << kPatience << ": " << answer.status();
        return {};
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  std::string Submit(Jobs& jobs, const v1::JobSpec& spec) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    request.set_idempotency_key(absl::StrCat("key-", ++keys_));
    return Insist(jobs, &v1::JobService::Stub::SubmitJob, request).job_id();
  }

  // Returns nothing if the leader does not know the job.
  std::optional<v1::GetJobResponse> Get(Jobs& jobs, const std::string& job_id) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    const absl::Time give_up_at = absl::Now() + kPatience;
    while (absl::Now() < give_up_at) {
      auto answer = jobs.Call(&v1::JobService::Stub::GetJob, request, kTry);
      if (answer.ok()) return *std::move(answer);
      if (absl::IsNotFound(answer.status())) return std::nullopt;
      absl::SleepFor(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "nobody says how job " << job_id << " gets on";
    return std::nullopt;
  }

  // Trains a job to its end. Returns its weights.
  std::string Train(Jobs& jobs) {
    const std::string id = Submit(jobs, Spec(kStages));
    v1::GetJobResponse job;
    do {
      absl::SleepFor(absl::Milliseconds(200));
      const std::optional<v1::GetJobResponse> answer = Get(jobs, id);
      if (!answer.has_value()) {
        ADD_FAILURE() << "job " << id << " was acknowledged and is lost";
        return "";
      }
      job = *answer;
    } while (job.summary().ended_unix_ms() == 0);
    EXPECT_EQ(job.summary().state(), v1::JOB_STATE_SUCCEEDED) << job.summary().error();
    EXPECT_EQ(job.result().attempts_size(), 1) << job.result().attempts(0).message();
    EXPECT_EQ(job.result().steps_redone(), 0);
    EXPECT_EQ(job.result().losses_size(), kSteps);
    return job.result().weights_sha256();
  }

  // Trains one job after the other, each with the weights of the first.
  void TrainUntilOver() {
    const std::unique_ptr<Jobs> jobs = NewStub();
    while (!over_) {
      EXPECT_EQ(Train(*jobs), weights_);
      ++trained_;
    }
  }

  // Submits jobs, for which there are never workers enough, looks at them, and cancels them.
  void CallUntilOver() {
    const std::unique_ptr<Jobs> jobs = NewStub();
    while (!over_) {
      const std::string id = Submit(*jobs, Spec(kJobs * kStages + 1));
      for (int look = 0; look < 50 && !over_; ++look) {
        EXPECT_TRUE(Get(*jobs, id).has_value()) << "job " << id << " was acknowledged and is lost";
        absl::SleepFor(absl::Milliseconds(200));
      }
      v1::CancelJobRequest request;
      request.set_job_id(id);
      Insist(*jobs, &v1::JobService::Stub::CancelJob, request);
      const std::optional<v1::GetJobResponse> job = Get(*jobs, id);
      EXPECT_TRUE(job.has_value() && job->summary().state() == v1::JOB_STATE_CANCELLED)
          << "its cancellation was acknowledged and is lost";
      acknowledged_ += 2;
    }
  }

  // Which of the two leads, as far as the last answer tells.
  size_t LeaderOf(Jobs& jobs) {
    Insist(jobs, &v1::JobService::Stub::ListJobs, v1::ListJobsRequest());
    return absl::StrContains(jobs.peer(), addresses_[0].ToString()) ? 0 : 1;
  }

  // Waits until a coordinator says that it does not lead.
  void AwaitFollower(size_t coordinator) {
    const auto stub = v1::JobService::NewStub(
        MakeControlChannel(addresses_[coordinator].ToString(), grpc::InsecureChannelCredentials()));
    EXPECT_TRUE(Eventually(
        [&] {
          const auto answer = Call("it", *stub, &v1::JobService::Stub::ListJobs, {}, kTry);
          return penstock::LeaderOf(answer.status()).has_value();
        },
        std::chrono::seconds(60)))
        << coordinators_[coordinator]->err();
  }

  void AwaitMember(size_t member) {
    EXPECT_TRUE(Eventually([&] { return etcd_.Answers(member); }, std::chrono::seconds(60)));
  }

  // The seconds from now until a submission is acknowledged.
  double Unavailable(Jobs& jobs) {
    const absl::Time since = absl::Now();
    v1::CancelJobRequest request;
    request.set_job_id(Submit(jobs, Spec(kJobs * kStages + 1)));
    const double seconds = absl::ToDoubleSeconds(absl::Now() - since);
    Insist(jobs, &v1::JobService::Stub::CancelJob, request);
    return seconds;
  }

  RealEtcd etcd_{3};
  const JobDirectory files_;
  std::string state_;
  std::array<HostPort, 2> addresses_;
  std::array<std::unique_ptr<Process>, 2> coordinators_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::string weights_;  // of a job; constant while threads train
  std::atomic<int> keys_ = 0;
  std::atomic<int> trained_ = 0;
  std::atomic<int> acknowledged_ = 0;
  std::atomic<bool> over_ = false;
  std::vector<std::thread> threads_;
};

TEST_F(LeaderFaultsTest, NothingAcknowledgedIsLost_AndNoJobNotices) {
  ASSERT_TRUE(etcd_.ok());
  const std::unique_ptr<Jobs> jobs = NewStub();
  weights_ = Train(*jobs);
  for (int i = 0; i < kJobs; ++i) threads_.emplace_back([this] { TrainUntilOver(); });
  for (int i = 0; i < kClients; ++i) threads_.emplace_back([this] { CallUntilOver(); });

  std::minstd_rand random(1);
  const auto random_seconds = [&](double least, double most) {
    return absl::Seconds(std::uniform_real_distribution<double>(least, most)(random));
  };
  std::map<std::string, std::vector<double>> seconds;
  const std::map<std::string, std::function<void()>> faults = {
      {"leader killed",
       [&] {
         const size_t leader = LeaderOf(*jobs);
         coordinators_[leader].reset();
         seconds["leader killed"].push_back(Unavailable(*jobs));
         StartCoordinator(leader);
         AwaitFollower(leader);
       }},
      {"leader frozen",
       [&] {
         const size_t leader = LeaderOf(*jobs);
         coordinators_[leader]->Signal(SIGSTOP);
         seconds["leader frozen"].push_back(Unavailable(*jobs));
         absl::SleepFor(random_seconds(0, absl::ToDoubleSeconds(kLease)));
         coordinators_[leader]->Signal(SIGCONT);
         // It was deposed, and must not do what it is asked now.
         const auto stub = v1::JobService::NewStub(
             MakeControlChannel(addresses_[leader].ToString(), grpc::InsecureChannelCredentials()));
         v1::SubmitJobRequest request;
         *request.mutable_spec() = Spec(kJobs * kStages + 1);
         const auto answer = Call("the deposed leader", *stub, &v1::JobService::Stub::SubmitJob,
                                  request, absl::Seconds(5));
         EXPECT_FALSE(answer.ok()) << "a deposed leader has taken job " << answer->job_id();
         AwaitFollower(leader);
       }},
      {"etcd member killed",
       [&] {
         const size_t member = random() % etcd_.size();
         etcd_.Kill(member);
         seconds["etcd member killed"].push_back(Unavailable(*jobs));
         absl::SleepFor(random_seconds(0, 1));
         etcd_.Restart(member);
         AwaitMember(member);
       }},
  };
  std::vector<std::string> drawn;
  drawn.insert(drawn.end(), NumberOf("PENSTOCK_LEADER_KILLS", 2), "leader killed");
  drawn.insert(drawn.end(), NumberOf("PENSTOCK_LEADER_FREEZES", 1), "leader frozen");
  drawn.insert(drawn.end(), NumberOf("PENSTOCK_ETCD_KILLS", 1), "etcd member killed");
  std::shuffle(drawn.begin(), drawn.end(), random);
  for (const std::string& fault : drawn) {
    absl::SleepFor(random_seconds(0.5, 1.5));
    faults.at(fault)();
    if (HasFailure()) break;
  }
  over_ = true;
  for (std::thread& thread : threads_) thread.join();

  for (auto& [fault, each] : seconds) {
    std::sort(each.begin(), each.end());
    std::printf(
        "%s: %zu times; until a submission was acknowledged p50 %.2f s, p99 %.2f s, at most %.2f "
        "s\n",
        fault.c_str(), each.size(), each[each.size() / 2],
        each[std::min(each.size() - 1, each.size() * 99 / 100)], each.back());
  }
  std::printf("%d jobs trained, %d calls of %d clients that changed something\n", trained_.load(),
              acknowledged_.load(), kClients);
}

}  // namespace
}  // namespace penstock
