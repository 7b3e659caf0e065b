// Many clients of a coordinator at once, for tests of what they can do to the jobs of others.
//
// usage: client_load ADDRESS cancel|submit|look|JOB_ID CLIENTS SECONDS
//
// Each client has a connection and a thread of its own, and makes one call after the other until the time is over:
//   cancel   cancels a job that does not exist
//   submit   submits a job that waits, since no cluster has workers for it
//   look     lists all jobs, and asks for one that does not exist, by turns
//   JOB_ID   follows that job, and begins again when it has ended
// Prints how many calls ended how, and the time of the slowest: {"NOT_FOUND": 812, "slowest_seconds": 0.8}.
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/client.h"

namespace penstock {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr int kStages = 6;  // more than the clusters of these tests have workers

class Load {
 public:
  Load(std::string address, std::string what, absl::Duration time)
      : address_(std::move(address)), what_(std::move(what)), over_at_(absl::Now() + time) {}

  void RunClient(int number) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    const auto stub = v1::JobService::NewStub(
        grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
    for (int call = 0; absl::Now() < over_at_; ++call) {
      const absl::Time since = absl::Now();
      const absl::Status status = MakeCall(*stub, number, call);
      const absl::Duration took = absl::Now() - since;
      MutexLock lock(mutex_);
      ++ends_[absl::StatusCodeToString(status.code())];
      slowest_ = std::max(slowest_, took);
    }
  }

  void Print() {
    MutexLock lock(mutex_);
    std::string text = "{";
    for (const auto& [end, calls] : ends_) absl::StrAppend(&text, "\"", end, "\": ", calls, ", ");
    std::printf("%s\"slowest_seconds\": %.2f}\n", text.c_str(), absl::ToDoubleSeconds(slowest_));
  }

 private:
  using Stub = v1::JobService::Stub;

  absl::Status MakeCall(Stub& stub, int client, int call) {
    const std::string nobody = absl::StrCat("job-of-nobody-", client, "-", call);
    if (what_ == "cancel") {
      v1::CancelJobRequest request;
      request.set_job_id(nobody);
      return Call("coordinator", stub, &Stub::CancelJob, request, kTimeout).status();
    }
    if (what_ == "submit") {
      v1::SubmitJobRequest request;
      *request.mutable_spec() = WaitingJob();
      request.set_idempotency_key(nobody);
      return Call("coordinator", stub, &Stub::SubmitJob, request, kTimeout).status();
    }
    if (what_ != "look") {
      v1::WatchJobRequest request;
      request.set_job_id(what_);
      StreamCanceller canceller;
      return ReadStream("coordinator", stub, &Stub::WatchJob, request, kTimeout, canceller,
                        [](const v1::JobEvent&) { return true; });
    }
    if (call % 2 == 0) {
      return Call("coordinator", stub, &Stub::ListJobs, v1::ListJobsRequest(), kTimeout).status();
    }
    v1::GetJobRequest request;
    request.set_job_id(nobody);
    return Call("coordinator", stub, &Stub::GetJob, request, kTimeout).status();
  }

  static v1::JobSpec WaitingJob() {
    v1::JobSpec spec;
    spec.set_name("waits");
    v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
    gpt.set_layers(2);
    gpt.set_width(8);
    gpt.set_heads(2);
    gpt.set_context(16);
    spec.mutable_data()->mutable_text()->set_path("/input.txt");
    v1::TrainingSpec& training = *spec.mutable_training();
    training.set_steps(1);
    training.set_batch(8);
    training.set_microbatches(4);
    training.mutable_optimizer()->mutable_adamw()->set_learning_rate(0.01);
    spec.mutable_pipeline()->set_stages(kStages);
    return spec;
  }

  const std::string address_;
  const std::string what_;
  const absl::Time over_at_;
  Mutex mutex_;
  std::map<std::string, int64_t> ends_ ABSL_GUARDED_BY(mutex_);
  absl::Duration slowest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: client_load ADDRESS cancel|submit|look|JOB_ID CLIENTS SECONDS\n", stderr);
    return 2;
  }
  penstock::Load load(argv[1], argv[2], absl::Seconds(std::atof(argv[4])));
  std::vector<std::thread> clients;
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    clients.emplace_back([&load, i] { load.RunClient(i); });
  }
  for (std::thread& client : clients) client.join();
  load.Print();
  return 0;
}
