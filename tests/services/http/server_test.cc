#include "services/http/server.h"

#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "tests/services/http/certificates.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kHost[] = "127.0.0.1";
const HostPort kAnyPort = {kHost, 0};

HttpRoute Says(const std::string& path, const std::string& body) {
  return {path, [body](const HttpRequest&) -> absl::StatusOr<HttpContent> {
            return HttpContent{"text/plain; charset=utf-8", body};
          }};
}

// A client that says exactly what it is told to.
class RawClient {
 public:
  explicit RawClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  // What comes until `end` or until the server hangs up.
  std::string ReadTo(const std::string& end) {
    std::string got;
    char byte = 0;
    while (got.find(end) == std::string::npos && recv(fd_, &byte, 1, 0) == 1) got.push_back(byte);
    return got;
  }
  std::string ReadAll() {
    std::string got;
    char bytes[4096];
    ssize_t count = 0;
    while ((count = recv(fd_, bytes, sizeof(bytes), 0)) > 0) got.append(bytes, count);
    return got;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

TEST(HttpServer, RequestsOfOneConnection_AreAllAnswered) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto server,
      HttpServer::Start({.listen = kAnyPort, .routes = {Says("/a", "one"), Says("/b", "two")}}));
  ASSERT_GT(server->address().port, 0);
  RawClient client(server->address().port);
  client.Send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.ReadTo("\r\n\r\none"), StartsWith("HTTP/1.1 200"));
  // Two at once, the second in two pieces.
  client.Send("GET /b HTTP/1.1\r\nHost: localhost\r\n\r\nGET /a HTTP/1.1\r\nHost: loc");
  EXPECT_THAT(client.ReadTo("\r\n\r\ntwo"), StartsWith("HTTP/1.1 200"));
  client.Send("alhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\r\n\r\none")));
}

TEST(HttpServer, LargeAnswer_ArrivesWhole) {
  const std::string large(8 << 20, 'x');
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto server, HttpServer::Start({.listen = kAnyPort, .routes = {Says("/", large)}}));
  httplib::Client client(kHost, server->address().port);
  const httplib::Result result = client.Get("/");
  ASSERT_TRUE(result) << httplib::to_string(result.error());
  EXPECT_EQ(result->body.size(), large.size());
}

TEST(HttpServer, SlowClients_KeepNobodyWaitingAndAreCutOff) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto server,
      HttpServer::Start({.listen = kAnyPort,
                         .routes = {Says("/", "here")},
                         .limits = {.request_timeout = absl::Milliseconds(300)}}));
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(std::make_unique<RawClient>(server->address().port));
    slow.back()->Send("GET / HTTP/1.1\r\nHost:");
  }
  httplib::Client client(kHost, server->address().port);
  EXPECT_TRUE(client.Get("/"));
  for (const auto& one : slow) EXPECT_EQ(one->ReadAll(), "");  // hung up, without an answer
}

TEST(HttpServer, MoreClientsThanConnections_TheLongestIdleGoes) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto server,
      HttpServer::Start(
          {.listen = kAnyPort, .routes = {Says("/", "here")}, .limits = {.connections_max = 2}}));
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  RawClient first(server->address().port);
  first.Send(request);
  EXPECT_THAT(first.ReadTo("\r\n\r\nhere"), StartsWith("HTTP/1.1 200"));
  RawClient second(server->address().port);
  second.Send(request);
  EXPECT_THAT(second.ReadTo("\r\n\r\nhere"), StartsWith("HTTP/1.1 200"));
  RawClient third(server->address().port);
  third.Send(request);
  EXPECT_THAT(third.ReadTo("\r\n\r\nhere"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(first.ReadAll(), "");
  second.Send(request);
  EXPECT_THAT(second.ReadTo("\r\n\r\nhere"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, SilentClientsInAllPlaces_GiveWayToOneThatAsks) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto server,
      HttpServer::Start({.listen = kAnyPort,
                         .routes = {Says("/", "here")},
                         .limits = {.connections_max = 3, .request_timeout = absl::Hours(1)}}));
  std::vector<std::unique_ptr<RawClient>> silent;
  silent.reserve(10);
  for (int i = 0; i < 10; ++i) {
    silent.push_back(std::make_unique<RawClient>(server->address().port));
  }
  RawClient client(server->address().port);
  client.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.ReadTo("\r\n\r\nhere"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(silent.front()->ReadAll(), "") << "the oldest was hung up on";
}

TEST(HttpServer, OldConnection_EndsWithItsNextAnswer) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto server, HttpServer::Start({.listen = kAnyPort,
                                            .routes = {Says("/", "here")},
                                            .limits = {.connection_age = absl::ZeroDuration()}}));
  RawClient client(server->address().port);
  client.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("\r\n\r\nhere"));
}

TEST(HttpServer, OversizedHead_IsRefused) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto server, HttpServer::Start({.listen = kAnyPort, .routes = {Says("/", "here")}}));
  RawClient client(server->address().port);
  client.Send("GET / HTTP/1.1\r\nX: " + std::string(HttpLimits().head_bytes_max, 'x'));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 431"));
}

TEST(HttpServer, End_WaitsForTheHandlerAndHangsUpOnEverybody) {
  std::promise<void> entered, release;
  auto server = HttpServer::Start(
      {.listen = kAnyPort, .routes = {{"/", [&](const HttpRequest&) -> absl::StatusOr<HttpContent> {
                                         entered.set_value();
                                         release.get_future().wait();
                                         return HttpContent{"text/plain", "late"};
                                       }}}});
  ASSERT_THAT(server, IsOk());
  RawClient idle((*server)->address().port);
  RawClient asking((*server)->address().port);
  asking.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  entered.get_future().wait();
  std::thread end([&] { server->reset(); });
  EXPECT_EQ(idle.ReadAll(), "");  // the loop has ended, the handler has not
  release.set_value();
  end.join();
  EXPECT_EQ(asking.ReadAll(), "");
}

TEST(HttpServer, TakenPort_IsNamed) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto server, HttpServer::Start({.listen = kAnyPort}));
  EXPECT_THAT(HttpServer::Start({.listen = server->address()}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(server->address().ToString()), HasSubstr("in use"))));
}

// A server with TLS whose authorizer lets in everyone with a certificate of `authority`.
class HttpServerTls : public ::testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        server_,
        HttpServer::Start(
            {.listen = kAnyPort,
             .routes =
                 {{"/",
                   [](const HttpRequest& request) -> absl::StatusOr<HttpContent> {
                     return HttpContent{"text/plain", CommonName(request.peer_certificate.get())};
                   }}},
             .tls = [this]() -> absl::StatusOr<std::shared_ptr<SSL_CTX>> {
               MutexLock lock(mutex_);
               return context_;
             },
             .authorize =
                 [](const HttpRequest& request) {
                   return request.peer_certificate == nullptr
                              ? absl::UnauthenticatedError("show a certificate")
                              : absl::OkStatus();
                 }}));
  }

  // Shows `identity`, if any, and trusts servers of `trusted`.
  std::unique_ptr<httplib::SSLClient> Client(const TestIdentity* identity,
                                             const TestIdentity& trusted) {
    auto client =
        identity == nullptr
            ? std::make_unique<httplib::SSLClient>(kHost, server_->address().port)
            : std::make_unique<httplib::SSLClient>(
                  kHost, server_->address().port, identity->certificate.get(), identity->key.get());
    X509_STORE* const store = X509_STORE_new();
    X509_STORE_add_cert(store, trusted.certificate.get());
    client->set_ca_cert_store(store);  // the client's from here
    client->enable_server_certificate_verification(true);
    return client;
  }

  const TestIdentity authority_ = MakeIdentity("authority");
  const TestIdentity first_ = MakeIdentity("first server", &authority_);
  Mutex mutex_;
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mutex_) = ServerContext(first_, authority_);
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTls, ClientWithACertificate_IsKnownByItsName) {
  const TestIdentity visitor = MakeIdentity("visitor", &authority_);
  const auto client = Client(&visitor, authority_);
  for (int i = 0; i < 3; ++i) {
    const httplib::Result result = client->Get("/");
    ASSERT_TRUE(result) << httplib::to_string(result.error());
    EXPECT_EQ(result->status, 200);
    EXPECT_EQ(result->body, "visitor");
  }
}

TEST_F(HttpServerTls, ClientWithoutACertificate_IsLeftToTheAuthorizer) {
  const httplib::Result result = Client(nullptr, authority_)->Get("/");
  ASSERT_TRUE(result) << httplib::to_string(result.error());
  EXPECT_EQ(result->status, 401);
  EXPECT_EQ(result->body, "show a certificate\n");
}

TEST_F(HttpServerTls, ClientOfAnotherAuthority_IsRefused) {
  const TestIdentity other = MakeIdentity("authority");
  const TestIdentity stranger = MakeIdentity("visitor", &other);
  EXPECT_FALSE(Client(&stranger, authority_)->Get("/"));
}

TEST_F(HttpServerTls, NewContext_ServesNewConnections) {
  const TestIdentity other = MakeIdentity("other authority");
  const TestIdentity second = MakeIdentity("second server", &other);
  EXPECT_TRUE(Client(nullptr, authority_)->Get("/"));
  EXPECT_FALSE(Client(nullptr, other)->Get("/"));
  {
    MutexLock lock(mutex_);
    context_ = ServerContext(second, authority_);
  }
  EXPECT_TRUE(Client(nullptr, other)->Get("/"));
  EXPECT_FALSE(Client(nullptr, authority_)->Get("/"));
}

TEST_F(HttpServerTls, PlaintextClient_IsHungUpOn) {
  RawClient client(server_->address().port);
  client.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), ::testing::Not(HasSubstr("200")));
}

}  // namespace
}  // namespace penstock
