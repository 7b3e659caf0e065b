// A cluster of processes that sends its spans to a collector in this one.
#include <gmock/gmock.h>
#include <httplib.h>
#include <signal.h>
#include <stdlib.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/services/cli/cluster_fixture.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSubmitter[] = "b7ad6b7169203331";

// Takes OTLP over HTTP, and keeps the spans by their id.
class Collector {
 public:
  // On a port of its own, or that of an earlier one. The first answers have these statuses instead of 200.
  explicit Collector(int port = 0, std::vector<int> answers = {}) : answers_(std::move(answers)) {
    server_.Post("/v1/traces",
                 [this](const httplib::Request& request, httplib::Response& response) {
                   const std::lock_guard<std::mutex> lock(mutex_);
                   ++requests_;
                   if (!answers_.empty()) {
                     response.status = answers_.front();
                     answers_.erase(answers_.begin());
                     return;
                   }
                   Take(Json::parse(request.body));
                   response.set_content("{}", "application/json");
                 });
    port_ = port == 0 ? server_.bind_to_any_port("127.0.0.1") : port;
    if (port != 0) {
      EXPECT_TRUE(server_.bind_to_port("127.0.0.1", port));
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~Collector() {
    server_.stop();
    thread_.join();
  }
  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::map<std::string, Json> spans() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return spans_;
  }
  Json resource() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return resource_;
  }
  int requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }
  // The span of this name, once it is there.
  Json Await(const std::string& name) {
    Json found;
    EXPECT_TRUE(Eventually(
        [&] {
          for (const auto& [id, span] : spans()) {
            if (span["name"] == name) found = span;
          }
          return !found.is_null();
        },
        kMinute))
        << name;
    return found;
  }

 private:
  void Take(const Json& request) {
    for (const Json& resource : request["resourceSpans"]) {
      resource_ = resource["resource"];
      for (const Json& span : resource["scopeSpans"][0]["spans"]) {
        const auto [known, added] = spans_.emplace(span["spanId"], span);
        if (!added) {
          EXPECT_EQ(known->second, span) << "sent again, and not the same";
        }
      }
    }
  }

  httplib::Server server_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<int> answers_;
  int requests_ = 0;
  std::map<std::string, Json> spans_;
  Json resource_;
  std::thread thread_;
};

int64_t Ns(const Json& span, const char* key) { return std::stoll(span[key].get<std::string>()); }

// A variable of the environment that processes are started with.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

class TracingTest : public ClusterFixture {
 protected:
  void SetUp() override {
    const Variable url("OTEL_EXPORTER_OTLP_ENDPOINT", collector_->url());
    ClusterFixture::SetUp();
  }
  void RestartCoordinator() {
    coordinator_->Signal(SIGKILL);
    coordinator_->Wait(kMinute);
    const Variable url("OTEL_EXPORTER_OTLP_ENDPOINT", collector_->url());
    StartCoordinator(address_);
  }
  std::string Submit(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"submit", job_.job(), "--no-wait"});
    const Json submitted = RunJson(flags);
    return submitted["job_id"];
  }

  std::unique_ptr<Collector> collector_ = std::make_unique<Collector>();
};

TEST_F(TracingTest, Job_IsOneTreeBelowItsSubmission) {
  std::string id;
  {
    const Variable parent("TRACEPARENT", std::string("00-") + kTrace + "-" + kSubmitter + "-01");
    id = Submit({"--set", "checkpoint.directory=" + job_.checkpoints(), "--set",
                 "checkpoint.every_steps=3"});
  }
  const Json root = collector_->Await("job");
  const std::map<std::string, Json> spans = collector_->spans();
  EXPECT_EQ(root["parentSpanId"], kSubmitter);
  std::multiset<std::string> names;
  for (const auto& [span_id, span] : spans) {
    names.insert(span["name"]);
    EXPECT_EQ(span["traceId"], kTrace);
    EXPECT_LE(Ns(span, "startTimeUnixNano"), Ns(span, "endTimeUnixNano")) << span;
    EXPECT_GE(Ns(span, "startTimeUnixNano"), Ns(root, "startTimeUnixNano")) << span;
    EXPECT_LE(Ns(span, "endTimeUnixNano"), Ns(root, "endTimeUnixNano")) << span;
    if (span_id == root["spanId"]) continue;
    const auto parent = spans.find(span["parentSpanId"]);
    ASSERT_NE(parent, spans.end()) << span;
    EXPECT_GE(Ns(span, "startTimeUnixNano"), Ns(parent->second, "startTimeUnixNano")) << span;
    EXPECT_LE(Ns(span, "endTimeUnixNano"), Ns(parent->second, "endTimeUnixNano")) << span;
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"job", "queued", "preparing", "training",
                                               "steps 1-3", "validation", "checkpoint", "steps 4-6",
                                               "validation", "checkpoint"}));
  EXPECT_THAT(
      collector_->resource()["attributes"].dump(),
      HasSubstr(R"({"key":"service.name","value":{"stringValue":"penstock-coordinator"}})"));
  EXPECT_EQ(RunJson({"status", id})["trace_id"], kTrace);
  for (const auto& worker : workers_) {
    EXPECT_THAT(worker->err(), HasSubstr(std::string("trace ") + kTrace));
  }
}

TEST_F(TracingTest, JobWithoutASubmissionThatIsTraced_IsATraceOfItsOwn) {
  const std::string id = Submit({});
  const Json root = collector_->Await("job");
  EXPECT_FALSE(root.contains("parentSpanId"));
  EXPECT_EQ(root["traceId"], RunJson({"status", id})["trace_id"]);
}

TEST_F(TracingTest, TimelineOfAJob_IsSentBelowItsRoot) {
  const std::string id = Submit({});
  const Json root = collector_->Await("job");
  const ProcessResult sent = Run({"timeline", id, "--otlp", collector_->url()});
  ASSERT_EQ(sent.exit_code, 0) << sent.err;
  EXPECT_THAT(sent.err, HasSubstr(root["traceId"].get<std::string>()));
  std::map<std::string, Json> spans = collector_->spans();
  const Json worker = collector_->Await("timeline of worker-0");
  EXPECT_EQ(worker["parentSpanId"], root["spanId"]);
  int linked = 0;
  for (const auto& [span_id, span] : spans) {
    if (!span.contains("links")) continue;
    ++linked;
    const auto from = spans.find(span["links"][0]["spanId"]);
    ASSERT_NE(from, spans.end()) << span;
    EXPECT_LE(Ns(from->second, "endTimeUnixNano"), Ns(span, "startTimeUnixNano")) << span;
  }
  EXPECT_GT(linked, 0);
  const ProcessResult away = Run({"timeline", id, "--otlp", "http://127.0.0.1:1"});
  EXPECT_EQ(away.exit_code, 1);
  EXPECT_THAT(away.err, HasSubstr("--otlp: http://127.0.0.1:1"));
}

TEST_F(TracingTest, CollectorAwayAtFirst_GetsTheSpansOnceItIsThere) {
  const int port = collector_->port();
  collector_.reset();
  Submit({});
  ASSERT_TRUE(Eventually([&] {
    return coordinator_->err().find("spans wait for the collector") != std::string::npos;
  })) << coordinator_->err();
  collector_ = std::make_unique<Collector>(port, std::vector<int>{503, 503});
  collector_->Await("job");
  EXPECT_GE(collector_->requests(), 3);
  EXPECT_TRUE(Eventually([&] {
    return coordinator_->err().find("takes spans again") != std::string::npos;
  })) << coordinator_->err();
}

// What was sent before the restart and is sent after it once more is the same (Collector::Take).
TEST_F(TracingTest, CoordinatorRestarted_GoesOnWithTheSameTrace) {
  const std::string id = Submit({"--steps", "90000", "--set", "validation.every_steps=10"});
  const Json before = collector_->Await("steps 1-10");
  RestartCoordinator();
  EXPECT_EQ(Run({"cancel", id}).exit_code, 0);
  const Json root = collector_->Await("job");
  EXPECT_EQ(before["traceId"], root["traceId"]);
  std::set<std::string> first_steps;
  for (const auto& [span_id, span] : collector_->spans()) {
    EXPECT_EQ(span["traceId"], root["traceId"]);
    if (span["name"] == "queued") {
      EXPECT_EQ(span["parentSpanId"], root["spanId"]);
    }
    if (span["name"] == "steps 1-10") first_steps.insert(span_id);
  }
  EXPECT_EQ(first_steps.size(), 1u);
}

TEST_F(TracingTest, MalformedTraceparent_IsNamed) {
  const Variable parent("TRACEPARENT", "00-nonsense");
  const ProcessResult result = Run({"list"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("TRACEPARENT: \"00-nonsense\""));
}

}  // namespace
}  // namespace penstock
