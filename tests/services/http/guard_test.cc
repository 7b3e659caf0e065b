// Who may read over HTTP, over real TLS connections.
#include "services/http/guard.h"

#include <openssl/ssl.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/files.h"
#include "services/security/authority_directory.h"
#include "tests/services/security/credentials.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

// What a server answers: the head and the body, or nothing if it hangs up on us.
struct Answer {
  std::string text;
  std::string serial;  // of the certificate it shows
  bool Is(int status) const { return absl::StartsWith(text, absl::StrCat("HTTP/1.1 ", status)); }
};

// `credentials`: a directory, or empty for none.
Answer Get(const HostPort& address, const std::string& credentials,
           const std::string& authorization = "") {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (!credentials.empty()) {
    const CredentialPaths paths = CredentialPathsIn(credentials);
    EXPECT_EQ(
        SSL_CTX_use_certificate_file(context.get(), paths.certificate.c_str(), SSL_FILETYPE_PEM),
        1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), paths.key.c_str(), SSL_FILETYPE_PEM), 1);
  }
  const openssl::BioPtr connection(BIO_new_ssl_connect(context.get()));
  BIO_set_conn_hostname(connection.get(), address.ToString().c_str());
  Answer answer;
  if (BIO_do_connect(connection.get()) != 1) return answer;
  SSL* ssl = nullptr;
  BIO_get_ssl(connection.get(), &ssl);
  const openssl::CertificatePtr shown(SSL_get1_peer_certificate(ssl));
  const absl::StatusOr<CertificateFacts> facts = FactsOf(*shown);
  if (facts.ok()) answer.serial = facts->serial;
  const std::string request =
      absl::StrCat("GET /here HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                   authorization.empty() ? "" : "Authorization: ", authorization,
                   authorization.empty() ? "" : "\r\n", "\r\n");
  BIO_write(connection.get(), request.data(), static_cast<int>(request.size()));
  char bytes[4096];
  for (int size = 0; (size = BIO_read(connection.get(), bytes, sizeof bytes)) > 0;) {
    answer.text.append(bytes, static_cast<size_t>(size));
  }
  return answer;
}

class GuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    token_file_ = authority_.directory() + "/token";
    ASSERT_THAT(RealFiles().WriteDurably(token_file_, {kToken, "\n"}), IsOk());
    coordinator_ = authority_.Issue(Role::kCoordinator);
    auto security = TransportSecurity::Tls(coordinator_, absl::Now());
    ASSERT_THAT(security, IsOk());
    security_ = *std::move(security);
  }

  std::unique_ptr<HttpServer> Start(const std::string& token_file) {
    auto guard = HttpGuard::Make({.security = security_,
                                  .token_file = token_file,
                                  .on_refused = [this](const absl::Status&) { ++refused_; },
                                  .on_trouble =
                                      [this](const absl::Status& status) {
                                        MutexLock lock(mutex_);
                                        troubles_.emplace_back(status.message());
                                      }});
    EXPECT_THAT(guard, IsOk());
    HttpServerOptions options = {
        .listen = {"127.0.0.1", 0},
        .routes = {{"/here", [](const HttpRequest&) -> absl::StatusOr<HttpContent> {
                      return HttpContent{"text/plain", "the answer"};
                    }}}};
    HttpGuard::Protect(*guard, options);
    auto server = HttpServer::Start(std::move(options));
    EXPECT_THAT(server, IsOk());
    return *std::move(server);
  }

  std::vector<std::string> Troubles() {
    MutexLock lock(mutex_);
    return troubles_;
  }

  std::atomic<int> refused_ = 0;
  Mutex mutex_;
  std::vector<std::string> troubles_ ABSL_GUARDED_BY(mutex_);
  TestAuthority authority_;
  std::string token_file_;
  std::string coordinator_;
  TransportSecurity security_ = TransportSecurity::Plaintext();
};

TEST_F(GuardTest, CertificateOfARoleThatReads_IsAnswered) {
  const auto server = Start("");
  for (const Role role : AllRoles()) {
    const bool reads = role == Role::kClient || role == Role::kMonitor;
    const Answer answer = Get(server->address(), authority_.Issue(role, "a"));
    EXPECT_TRUE(answer.Is(reads ? 200 : 403)) << RoleName(role) << ": " << answer.text;
    EXPECT_EQ(absl::StrContains(answer.text, "the answer"), reads);
  }
}

TEST_F(GuardTest, NoCertificate_NeedsTheToken) {
  const auto server = Start(token_file_);
  const HostPort address = server->address();
  EXPECT_TRUE(Get(address, "", absl::StrCat("Bearer ", kToken)).Is(200));
  EXPECT_TRUE(
      Get(address, "", absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat("me:", kToken))))
          .Is(200));
  for (const std::string& authorization :
       {std::string(), std::string("Bearer"), std::string("Bearer "),
        std::string("Bearer 0123456789abcdeF"), std::string("Bearer 0123456789"),
        absl::StrCat("Bearer ", kToken, "0"), std::string("Basic !"), std::string(kToken),
        absl::StrCat("Basic ", absl::Base64Escape(kToken)), absl::StrCat("Digest ", kToken)}) {
    const Answer answer = Get(address, "", authorization);
    EXPECT_TRUE(answer.Is(401)) << authorization << ": " << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("WWW-Authenticate: Basic"));
  }
  EXPECT_TRUE(Get(Start("")->address(), "", absl::StrCat("Bearer ", kToken)).Is(401))
      << "a server without token";
}

TEST_F(GuardTest, CertificateOfAnotherAuthorityOrExpired_IsNotLetIn) {
  const auto server = Start(token_file_);
  const TestAuthority stranger;
  const std::string token = absl::StrCat("Bearer ", kToken);
  EXPECT_EQ(Get(server->address(), stranger.Issue(Role::kClient), token).text, "");
  EXPECT_EQ(
      Get(server->address(),
          authority_.Issue(Role::kClient, "late", absl::Hours(1), absl::Now() - absl::Hours(2)),
          token)
          .text,
      "");
}

TEST_F(GuardTest, RotatedCertificateAndToken_AreTakenUp) {
  const auto server = Start(token_file_);
  const std::string before = Get(server->address(), authority_.Issue(Role::kClient)).serial;
  ASSERT_THAT(authority_.Open().Rotate(absl::Hours(1), absl::Now()), IsOk());
  const std::string fresh(20, 'x');
  ASSERT_THAT(RealFiles().WriteDurably(token_file_, {fresh}), IsOk());
  const auto until = After(absl::Seconds(20));
  bool taken = false;
  while (!taken && CondVar::Clock::now() < until) {
    const Answer answer = Get(server->address(), "", "Bearer " + fresh);
    taken = answer.Is(200) && answer.serial != before;
  }
  EXPECT_TRUE(taken);
  EXPECT_TRUE(Get(server->address(), "", absl::StrCat("Bearer ", kToken)).Is(401));
  EXPECT_TRUE(Get(server->address(), authority_.directory() + "/client").Is(200));
}

TEST_F(GuardTest, TokenThatIsDeleted_IsRefusedFromThenOnAndToldOnce) {
  const auto server = Start(token_file_);
  const std::string bearer = absl::StrCat("Bearer ", kToken);
  ASSERT_TRUE(Get(server->address(), "", bearer).Is(200));
  ASSERT_TRUE(std::filesystem::remove(token_file_));
  const auto until = After(absl::Seconds(20));
  while (Get(server->address(), "", bearer).Is(200) && CondVar::Clock::now() < until) {
  }
  EXPECT_TRUE(Get(server->address(), "", bearer).Is(401));
  EXPECT_THAT(Troubles(), ElementsAre(AllOf(HasSubstr(token_file_), HasSubstr("refused"))));
  ASSERT_THAT(RealFiles().WriteDurably(token_file_, {kToken}), IsOk());
  while (!Get(server->address(), "", bearer).Is(200) && CondVar::Clock::now() < until) {
  }
  EXPECT_TRUE(Get(server->address(), "", bearer).Is(200));
  EXPECT_GT(refused_, 0);
}

TEST_F(GuardTest, KeyThatDoesNotFit_LeavesTheOldOnesInUseAndIsToldOnce) {
  const auto server = Start("");
  const std::string client = authority_.Issue(Role::kClient);
  const std::string before = Get(server->address(), client).serial;
  const CredentialPaths paths = CredentialPathsIn(coordinator_);
  std::filesystem::remove(paths.key);
  std::filesystem::copy_file(CredentialPathsIn(client).key, paths.key);
  const auto until = After(absl::Seconds(20));
  while (Troubles().empty() && CondVar::Clock::now() < until) Get(server->address(), client);
  EXPECT_THAT(Troubles(), ElementsAre(AllOf(HasSubstr("private key"), HasSubstr("stay in use"))));
  EXPECT_EQ(Get(server->address(), client).serial, before);
}

TEST_F(GuardTest, TokenThatIsNone_IsRefusedAtTheStart) {
  for (const char* token : {"", "short", "0123456789 abcdef"}) {
    ASSERT_THAT(RealFiles().WriteDurably(token_file_, {token}), IsOk());
    EXPECT_THAT(HttpGuard::Make({.security = security_, .token_file = token_file_}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("16")));
  }
  EXPECT_THAT(HttpGuard::Make({.token_file = token_file_}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--certificates")));
  EXPECT_THAT(HttpGuard::Make({}), IsOkAndHolds(nullptr));
}

}  // namespace
}  // namespace penstock
