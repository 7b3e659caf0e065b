// What the page reads, of a coordinator with workers that only act.
#include "services/coordinator/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/coordinator/coordinator_server.h"
#include "services/http/exchange.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "tests/services/coordinator/acting_worker.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class StatusPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(server_, CoordinatorServer::Start({}, RealClock(), RealFiles()));
    service_.routes = StatusPageRoutes(*server_);
    worker_ = std::make_unique<ActingWorker>(
        ActingWorkerOptions{.coordinator = server_->address().ToString()});
    ASSERT_THAT(worker_->Register(), IsOk());
  }

  // A job of one stage.
  std::string Submit(int64_t steps) {
    v1::SubmitJobRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name("test");
    v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
    gpt.set_layers(1);
    gpt.set_width(8);
    gpt.set_heads(2);
    gpt.set_context(16);
    spec.mutable_data()->mutable_text()->set_path("a.txt");
    spec.mutable_training()->set_steps(steps);
    spec.mutable_training()->set_batch(4);
    spec.mutable_training()->set_microbatches(2);
    spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.01);
    spec.mutable_pipeline()->set_stages(1);
    const auto stub = v1::JobService::NewStub(
        MakeControlChannel(server_->address().ToString(), grpc::InsecureChannelCredentials()));
    const auto response =
        Call("coordinator", *stub, &v1::JobService::Stub::SubmitJob, request, absl::Seconds(30));
    EXPECT_THAT(response, IsOk());
    return response.ok() ? response->job_id() : "";
  }

  std::string Get(const std::string& path) {
    return AnswerRequest(service_, "GET " + path + " HTTP/1.1\r\n\r\n", nullptr).bytes;
  }
  Json GetJson(const std::string& path) {
    const std::string answer = Get(path);
    EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("application/json")));
    return Json::parse(answer.substr(answer.find("\r\n\r\n")), nullptr, false);
  }
  // Asks until `good`; what came last.
  Json Await(const std::string& path, const std::function<bool(const Json&)>& good) {
    const absl::Time give_up = absl::Now() + absl::Seconds(30);
    for (;;) {
      Json json = GetJson(path);
      if (good(json)) return json;
      if (absl::Now() > give_up) {
        ADD_FAILURE() << path << ": " << json.dump(2);
        return json;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  Json AwaitState(const std::string& id, const std::string& state) {
    return Await("/api/v1/jobs/" + id, [&](const Json& job) { return job["state"] == state; });
  }

  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<ActingWorker> worker_;
  HttpService service_;
};

TEST_F(StatusPageTest, Files_AreServedWithTheirTypes) {
  EXPECT_THAT(Get("/"), AllOf(HasSubstr("text/html"), HasSubstr("<!DOCTYPE html>")));
  EXPECT_THAT(Get("/page.js"), HasSubstr("text/javascript"));
  EXPECT_THAT(Get("/style.css"), HasSubstr("text/css"));
  EXPECT_THAT(Get("/icon.svg"), HasSubstr("image/svg+xml"));
  EXPECT_THAT(Get("/other.js"), StartsWith("HTTP/1.1 404"));
}

TEST_F(StatusPageTest, JobsAndWorkers_AreListed) {
  EXPECT_EQ(GetJson("/api/v1/jobs"), Json::array());
  EXPECT_EQ(GetJson("/api/v1/workers")[0]["name"], "w0");
  const std::string id = Submit(3);
  AwaitState(id, "succeeded");
  // The lists may be a moment old.
  const Json jobs = Await("/api/v1/jobs", [](const Json& json) {
    return json.size() == 1 && json[0]["state"] == "succeeded";
  });
  EXPECT_EQ(jobs[0]["job_id"], id);
  EXPECT_EQ(jobs[0]["name"], "test");
}

TEST_F(StatusPageTest, Job_HasPlanResultAndAsManyLossesAsAskedFor) {
  const std::string id = Submit(100);
  AwaitState(id, "succeeded");
  const Json all = GetJson("/api/v1/jobs/" + id);
  EXPECT_EQ(all["plan"]["stages"][0]["worker"], "w0");
  ASSERT_EQ(all["result"]["losses"].size(), 100u);
  const Json thinned = GetJson("/api/v1/jobs/" + id + "?losses=10")["result"]["losses"];
  ASSERT_EQ(thinned.size(), 10u);
  EXPECT_EQ(thinned.back(), all["result"]["losses"].back());
  double sum = 0;
  for (int i = 0; i < 11; ++i) sum += all["result"]["losses"][i]["loss"].get<double>();
  EXPECT_NEAR(thinned[0]["loss"], sum / 11, 1e-9);
  EXPECT_EQ(thinned[0]["step"], 11);
  EXPECT_THAT(Get("/api/v1/jobs/" + id + "?losses=many"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("losses=many")));
}

TEST_F(StatusPageTest, Lists_AreMadeOnceForManyWhoLook) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto first, server_->Lists());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto second, server_->Lists());
  EXPECT_EQ(first, second) << "the same lists, not equal ones";
  const auto another = [&] { return *server_->Lists() != first; };
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (!another() && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(another());
}

TEST_F(StatusPageTest, RunningJob_ShowsWhatItsWorkersDo) {
  const std::string id = Submit(1'000'000);
  AwaitState(id, "running");
  const Json live = Await("/api/v1/jobs/" + id + "/live",
                          [](const Json& json) { return !json["timeline"].is_null(); });
  EXPECT_EQ(live["state"], "running");
  EXPECT_EQ(live["timeline"]["columns"],
            Json::parse(R"(["worker", "lane", "action", "stage", "microbatch", "wait",
                            "start_us", "end_us"])"));
  ASSERT_EQ(live["timeline"]["spans"].size(), 1u);
  EXPECT_EQ(live["timeline"]["spans"][0][1], "compute");
  EXPECT_EQ(live["timeline"]["spans"][0][4], 3);
  EXPECT_EQ(live["per_stage"][0]["worker"], "w0");
}

TEST_F(StatusPageTest, EndedJob_ShowsWhatItsWorkersDidLast) {
  const std::string id = Submit(3);
  AwaitState(id, "succeeded");
  const Json live = GetJson("/api/v1/jobs/" + id + "/live");
  EXPECT_EQ(live["timeline"]["spans"].size(), 1u);
}

TEST_F(StatusPageTest, UnknownJob_IsNotFound) {
  for (const char* path : {"/api/v1/jobs/none", "/api/v1/jobs/none/live", "/api/v1/jobs/"}) {
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404")) << path;
  }
}

}  // namespace
}  // namespace penstock
