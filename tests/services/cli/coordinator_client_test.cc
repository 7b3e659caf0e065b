#include "services/cli/coordinator_client.h"

#include <gmock/gmock.h>

#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "services/rpc/server.h"
#include "tests/services/security/credentials.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Calls a server that has no services: only the way there matters.
class CoordinatorClientTest : public ::testing::Test {
 protected:
  HostPort Serve(const TransportSecurity& security) {
    server_ = std::make_unique<RpcServer>(
        RpcServerOptions{.listen = {"127.0.0.1", 0}, .security = security});
    EXPECT_THAT(server_->Start(), IsOk());
    return server_->address();
  }
  static TransportSecurity Tls(const std::string& directory) {
    return TransportSecurity::Tls(directory, absl::Now()).value();
  }
  static absl::Status List(const HostPort& address, const TransportSecurity& security) {
    return CoordinatorClient::Connect(address.ToString(), security).ListJobs().status();
  }
  static auto Unreached(const std::string& text) {
    return StatusIs(absl::StatusCode::kUnavailable,
                    AllOf(HasSubstr(text), Not(HasSubstr("no coordinator answers"))));
  }

  const TestAuthority authority_;
  const TestAuthority other_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(CoordinatorClientTest, CertificateOfAnotherAuthority_IsNotTrusted) {
  const HostPort address = Serve(Tls(authority_.Issue(Role::kCoordinator)));
  const std::string directory = other_.Issue(Role::kClient);
  EXPECT_THAT(List(address, Tls(directory)), Unreached("is not trusted"));
  EXPECT_THAT(List(address, Tls(directory)), Unreached("not of the authority in " + directory +
                                                       "/ca.crt; name with "
                                                       "--certificates"));
}

TEST_F(CoordinatorClientTest, OtherServers_AreToldFromNone) {
  const TransportSecurity client = Tls(authority_.Issue(Role::kClient));
  EXPECT_THAT(List(Serve(Tls(authority_.Issue(Role::kWorker))), client),
              Unreached("is not a coordinator (the peer is spiffe://penstock/worker"));
  EXPECT_THAT(List(Serve(TransportSecurity::Plaintext()), client),
              Unreached("does not speak TLS as a coordinator does"));
  const HostPort address = Serve(Tls(authority_.Issue(Role::kCoordinator)));
  EXPECT_THAT(List(address, TransportSecurity::Plaintext()),
              Unreached("it wants certificates: give --certificates DIR"));
  server_.reset();
  EXPECT_THAT(List(address, client),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("no coordinator answers at " + address.ToString()),
                             Not(HasSubstr("certificates and yours")))));
}

TEST_F(CoordinatorClientTest, CoordinatorThatCannotDoIt_IsNotTakenForNone) {
  using Jobs = v1::JobService::AsyncService;
  const std::string reason =
      "not done, because the coordinator cannot write its state file: s: full";
  server_ = std::make_unique<RpcServer>(RpcServerOptions{.listen = {"127.0.0.1", 0}});
  Jobs& jobs = server_->AddService<Jobs>();
  server_->Unary(jobs, &Jobs::RequestSubmitJob,
                 [reason](const v1::SubmitJobRequest&,
                          const CallInfo&) -> absl::StatusOr<v1::SubmitJobResponse> {
                   return absl::UnavailableError(reason);
                 });
  server_->Unary(jobs, &Jobs::RequestCancelJob,
                 [reason](const v1::CancelJobRequest&,
                          const CallInfo&) -> absl::StatusOr<v1::CancelJobResponse> {
                   return absl::UnavailableError(reason);
                 });
  ASSERT_THAT(server_->Start(), IsOk());
  const std::string address = server_->address().ToString();
  const auto is_its_own =
      StatusIs(absl::StatusCode::kUnavailable, absl::StrCat("coordinator ", address, ": ", reason));
  for (const std::string& addresses : {address, absl::StrCat(address, ",127.0.0.1:1")}) {
    CoordinatorClient client =
        CoordinatorClient::Connect(addresses, TransportSecurity::Plaintext());
    EXPECT_THAT(client.SubmitJob(v1::JobSpec()), is_its_own);
    EXPECT_THAT(client.CancelJob("gpt-1-kzvpt"), is_its_own);
  }
}

// It trusts the coordinator, which does not trust it.
TEST_F(CoordinatorClientTest, ClientThatIsNotTrusted_HearsThatThisMayBeWhy) {
  const HostPort address = Serve(Tls(authority_.Issue(Role::kCoordinator)));
  const std::string directory = other_.Issue(Role::kClient);
  std::ofstream(directory + "/ca.crt", std::ios::app)
      << std::ifstream(authority_.Issue(Role::kMonitor) + "/ca.crt").rdbuf();
  EXPECT_THAT(List(address, Tls(directory)),
              Unreached("it does not trust the certificate in " + directory));
}

}  // namespace
}  // namespace penstock
