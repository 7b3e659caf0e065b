#include "services/cli/job_watch.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Writer = grpc::ServerWriter<v1::JobEvent>;

constexpr absl::Duration kReconnect = absl::Milliseconds(500);
constexpr absl::Duration kLong = absl::Seconds(20);

// A coordinator that answers WatchJob by a script: call after call; the last answer is repeated. As if it were away
// it answers GetJob.
class ScriptedCoordinator final : public v1::JobService::Service {
 public:
  using Answer = std::function<grpc::Status(const v1::WatchJobRequest&, Writer&)>;

  explicit ScriptedCoordinator(std::vector<Answer> script) : script_(std::move(script)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest* request,
                        Writer* writer) override {
    const size_t call = calls_++;
    return script_[std::min(call, script_.size() - 1)](*request, *writer);
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*,
                      v1::GetJobResponse*) override {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarts");
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  CoordinatorClient Connect() const {
    return CoordinatorClient::Connect({.address = address(), .security = {.insecure = true}})
        .value();
  }

 private:
  const std::vector<Answer> script_;
  std::atomic<size_t> calls_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

grpc::Status Restarts(const v1::WatchJobRequest&, Writer&) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarts");
}

ScriptedCoordinator::Answer Sends(const std::vector<int64_t>& sequences, const grpc::Status& end) {
  return [sequences, end](const v1::WatchJobRequest&, Writer& writer) {
    for (const int64_t sequence : sequences) {
      v1::JobEvent event;
      event.set_sequence(sequence);
      writer.Write(event);
    }
    return end;
  };
}

int64_t NextSequence(JobWatch& watch) {
  const std::optional<v1::JobEvent> event = watch.Next(kLong);
  return event.has_value() ? event->sequence() : -1;
}

// The status at the end, when no events are left.
absl::Status End(JobWatch& watch) {
  EXPECT_EQ(watch.Next(kLong), std::nullopt);
  EXPECT_TRUE(watch.Done());
  return watch.status();
}

TEST(JobWatchTest, BrokenStream_GoesOnAfterTheLastEvent) {
  std::atomic<int64_t> asked_after = -1;
  ScriptedCoordinator coordinator(
      {Sends({1, 2}, grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarts")),
       [&](const v1::WatchJobRequest& request, Writer& writer) {
         asked_after = request.after_sequence();
         return Sends({3}, grpc::Status::OK)(request, writer);
       }});
  CoordinatorClient client = coordinator.Connect();
  JobWatch watch(client, "job-1", kReconnect);
  for (const int64_t sequence : {1, 2, 3}) EXPECT_EQ(NextSequence(watch), sequence);
  EXPECT_THAT(End(watch), IsOk());
  EXPECT_EQ(asked_after, 2);
}

TEST(JobWatchTest, RestartAfterALongSilence_IsWaitedFor) {
  ScriptedCoordinator coordinator({[](const v1::WatchJobRequest& request, Writer& writer) {
                                     std::this_thread::sleep_for(
                                         absl::ToChronoMilliseconds(2 * kReconnect));
                                     return Restarts(request, writer);
                                   },
                                   Sends({1}, grpc::Status::OK)});
  CoordinatorClient client = coordinator.Connect();
  JobWatch watch(client, "job-1", kReconnect);
  EXPECT_EQ(NextSequence(watch), 1);
  EXPECT_THAT(End(watch), IsOk());
}

TEST(JobWatchTest, CoordinatorThatDoesNotComeBack_EndsTheWatch) {
  ScriptedCoordinator coordinator({Restarts});
  CoordinatorClient client = coordinator.Connect();
  JobWatch watch(client, "job-1", kReconnect);
  EXPECT_THAT(End(watch),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("did not come back within 500ms"),
                             HasSubstr(absl::StrCat("`penstock logs job-1 -f --coordinator ",
                                                    coordinator.address(), " --insecure`")))));
}

TEST(JobWatchTest, CoordinatorAway_IsToldOnce_AndOnceThatItIsBack) {
  std::atomic<bool> back = false;
  ScriptedCoordinator coordinator({[&](const v1::WatchJobRequest& request, Writer& writer) {
    return back ? Sends({1}, grpc::Status::OK)(request, writer) : Restarts(request, writer);
  }});
  CoordinatorClient client = coordinator.Connect();
  JobWatch watch(client, "job-1", kLong);
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoSeconds(kLong);
  std::string news;
  while (news.empty() && std::chrono::steady_clock::now() < deadline) {
    EXPECT_EQ(watch.Next(absl::Milliseconds(10)), std::nullopt);
    news = watch.News();
  }
  EXPECT_THAT(news, HasSubstr("trying again for 20s"));
  EXPECT_EQ(watch.News(), "");
  back = true;
  EXPECT_EQ(NextSequence(watch), 1);
  EXPECT_THAT(End(watch), IsOk());
}

TEST(AwaitJobTest, InterruptedWhileTheCoordinatorIsAway_IsCancelled) {
  ScriptedCoordinator coordinator({Restarts});
  CoordinatorClient client = coordinator.Connect();
  int looks = 0;
  EXPECT_THAT(AwaitJob(
                  client, "job-1", [&] { return ++looks == 2; }, kLong),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("job job-1 is not known")));
  EXPECT_THAT(AwaitJob(
                  client, "job-1", [] { return false; }, absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("restarts")));
}

}  // namespace
}  // namespace penstock
