// OtlpClient against HTTP servers of cpp-httplib, over loopback.
#include "services/tracing/otlp_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "tests/services/security/credentials.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// Answers POSTs as `handler` does, and keeps the last request.
class Collector {
 public:
  using Handler = std::function<void(httplib::Response&)>;
  explicit Collector(
      std::unique_ptr<httplib::Server> server = std::make_unique<httplib::Server>(),
      const Handler& handler = [](httplib::Response&) {})
      : server_(std::move(server)) {
    server_->Post(".*",
                  [this, handler](const httplib::Request& request, httplib::Response& response) {
                    {
                      MutexLock lock(mutex_);
                      last_ = request;
                    }
                    handler(response);
                  });
    port_ = server_->bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }
  ~Collector() {
    server_->stop();
    thread_.join();
  }
  std::string url(const std::string& scheme = "http", const std::string& path = "") const {
    return absl::StrCat(scheme, "://127.0.0.1:", port_, path);
  }
  httplib::Request last() {
    MutexLock lock(mutex_);
    return last_;
  }

 private:
  std::unique_ptr<httplib::Server> server_;
  Mutex mutex_;
  httplib::Request last_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::thread thread_;
};

class OtlpClientTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }
  static std::unique_ptr<OtlpClient> Client(const std::string& url,
                                            const std::string& token_file = "",
                                            const std::string& ca_file = "") {
    absl::StatusOr<std::unique_ptr<OtlpClient>> client = OtlpClient::Make(
        {.endpoint = *ParseOtlpUrl(url), .token_file = token_file, .ca_file = ca_file});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  const TestDirectory own_;
  const std::filesystem::path directory_ = own_.path();
};

TEST_F(OtlpClientTest, Post_IsWhatACollectorExpects) {
  Collector collector;
  const OtlpReply reply = Client(collector.url("http", "/otlp"))->Post("{\"a\":1}");
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.http_status, 200);
  const httplib::Request request = collector.last();
  EXPECT_EQ(request.path, "/otlp/v1/traces");
  EXPECT_EQ(request.body, "{\"a\":1}");
  EXPECT_EQ(request.get_header_value("Content-Type"), "application/json");
  EXPECT_FALSE(request.has_header("Authorization"));
}

TEST_F(OtlpClientTest, Answer_IsPassedOn) {
  Collector collector(std::make_unique<httplib::Server>(), [](httplib::Response& response) {
    response.status = 503;
    response.set_header("Retry-After", "7");
    response.set_content("later", "text/plain");
  });
  const OtlpReply reply = Client(collector.url())->Post("{}");
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.http_status, 503);
  EXPECT_EQ(reply.retry_after, absl::Seconds(7));
  EXPECT_EQ(reply.body, "later");
}

TEST_F(OtlpClientTest, RetryAfterThatIsNoNumber_IsNone) {
  Collector collector(std::make_unique<httplib::Server>(), [](httplib::Response& response) {
    response.status = 503;
    response.set_header("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT");
  });
  EXPECT_EQ(Client(collector.url())->Post("{}").retry_after, std::nullopt);
}

TEST_F(OtlpClientTest, HugeAnswer_IsCutOffAndStillAnAnswer) {
  Collector collector(std::make_unique<httplib::Server>(), [](httplib::Response& response) {
    response.status = 400;
    response.set_content(std::string(64 << 20, 'x'), "text/plain");
  });
  const OtlpReply reply = Client(collector.url())->Post("{}");
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.http_status, 400);
  EXPECT_LE(reply.body.size(), 64u << 10);
}

TEST_F(OtlpClientTest, NobodyListens_IsUnavailableWithTheUrl) {
  std::string url;
  {
    Collector collector;
    url = collector.url();
  }
  const OtlpReply reply = Client(url)->Post("{}");
  EXPECT_TRUE(absl::IsUnavailable(reply.status));
  EXPECT_THAT(std::string(reply.status.message()), HasSubstr(url));
}

TEST_F(OtlpClientTest, Token_IsReadAnewForEveryRequest) {
  Collector collector;
  const std::string file = Write("token", "first\n");
  const auto client = Client(collector.url(), file);
  client->Post("{}");
  EXPECT_EQ(collector.last().get_header_value("Authorization"), "Bearer first");
  Write("token", "second");
  client->Post("{}");
  EXPECT_EQ(collector.last().get_header_value("Authorization"), "Bearer second");
  std::filesystem::remove(file);
  EXPECT_FALSE(client->Post("{}").status.ok());
}

TEST_F(OtlpClientTest, BadFiles_AreRefusedAtOnce) {
  const auto make = [](const std::string& url, const std::string& token, const std::string& ca) {
    return OtlpClient::Make({.endpoint = *ParseOtlpUrl(url), .token_file = token, .ca_file = ca})
        .status();
  };
  const std::string token = Write("token", "abc");
  EXPECT_TRUE(make("https://h:1", token, "").ok());
  EXPECT_TRUE(absl::IsNotFound(make("https://h:1", directory_ / "none", "")));
  EXPECT_TRUE(absl::IsInvalidArgument(make("https://h:1", Write("t", "two words"), "")));
  EXPECT_TRUE(absl::IsInvalidArgument(make("https://h:1", Write("t", "\n"), "")));
  EXPECT_THAT(std::string(make("http://h:1", token, "").message()), HasSubstr("use https://"));
  EXPECT_TRUE(make("http://127.0.0.1:1", token, "").ok());
  EXPECT_TRUE(absl::IsNotFound(make("https://h:1", "", directory_ / "none")));
  EXPECT_THAT(std::string(make("https://h:1", "", token).message()), HasSubstr("authorities"));
}

TEST_F(OtlpClientTest, Https_OnlyOfTheAuthorityThatIsNamed) {
  const TestAuthority authority;
  const std::string credentials = authority.Issue(Role::kCoordinator);
  auto server = std::make_unique<httplib::SSLServer>((credentials + "/tls.crt").c_str(),
                                                     (credentials + "/tls.key").c_str());
  ASSERT_TRUE(server->is_valid());
  Collector collector(std::move(server));
  const OtlpReply trusted = Client(collector.url("https"), "", credentials + "/ca.crt")->Post("{}");
  EXPECT_TRUE(trusted.status.ok()) << trusted.status;
  EXPECT_EQ(trusted.http_status, 200);

  const TestAuthority other;
  const std::string stranger = other.Issue(Role::kCoordinator);
  for (const std::string& ca : {std::string(), stranger + "/ca.crt"}) {
    EXPECT_FALSE(Client(collector.url("https"), "", ca)->Post("{}").status.ok()) << ca;
  }
}

TEST_F(OtlpClientTest, Cancel_EndsARequestThatWaits) {
  std::promise<void> asked, release;
  Collector collector(std::make_unique<httplib::Server>(), [&](httplib::Response&) {
    asked.set_value();
    release.get_future().wait();
  });
  const auto client = Client(collector.url());
  auto reply = std::async(std::launch::async, [&] { return client->Post("{}"); });
  asked.get_future().wait();
  client->Cancel();
  EXPECT_FALSE(reply.get().status.ok());
  release.set_value();
}

}  // namespace
}  // namespace penstock
