#include "services/rpc/transport_security.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "services/rpc/access.h"
#include "services/rpc/status.h"
#include "services/security/credential_directory.h"

namespace penstock {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kReadAgainSeconds = 1;
// Under which gRPC's processor of a call's metadata finds the method.
constexpr char kMethodKey[] = ":path";

absl::string_view ToView(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// Looks at a peer's certificate when the handshake is done and its signature was found good.
class PeerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  // `role`: none means any.
  PeerVerifier(std::string trust_domain, std::optional<Role> role)
      : trust_domain_(std::move(trust_domain)), role_(role) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    *status = ToGrpcStatus(Check(*request));
    return true;  // done at once
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  absl::Status Check(const tls::TlsCustomVerificationCheckRequest& request) const {
    const std::vector<grpc::string_ref> uris = request.uri_names();
    if (uris.size() != 1) {
      return absl::UnauthenticatedError(absl::StrCat("the peer's certificate has ", uris.size(),
                                                     " URIs, expected one that says who it is"));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const Identity peer, ParseIdentity(ToView(uris.front())));
    if (peer.trust_domain != trust_domain_ || (role_.has_value() && peer.role != *role_)) {
      return absl::UnauthenticatedError(absl::StrCat("the peer is ", peer.ToUri(),
                                                     ", expected spiffe://", trust_domain_, "/",
                                                     role_.has_value() ? RoleName(*role_) : "..."));
    }
    return absl::OkStatus();
  }

  const std::string trust_domain_;
  const std::optional<Role> role_;
};

std::optional<Identity> IdentityIn(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> uris =
      context.FindPropertyValues(GRPC_PEER_SPIFFE_ID_PROPERTY_NAME);
  if (uris.size() != 1) return std::nullopt;
  absl::StatusOr<Identity> identity = ParseIdentity(ToView(uris.front()));
  if (!identity.ok()) return std::nullopt;
  return *std::move(identity);
}

// Asks the table about each call as soon as its headers are there.
class AccessProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit AccessProcessor(std::function<void(const absl::Status&)> on_refused)
      : on_refused_(std::move(on_refused)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const absl::Status allowed = Check(metadata, *context);
    if (!allowed.ok() && on_refused_ != nullptr) on_refused_(allowed);
    return ToGrpcStatus(allowed);
  }

 private:
  static absl::Status Check(const InputMetadata& metadata, const grpc::AuthContext& context) {
    const auto method = metadata.find(kMethodKey);
    const std::optional<Identity> caller = IdentityIn(context);
    if (method == metadata.end() || !caller.has_value()) {
      return absl::UnauthenticatedError("a call without method or without identity");
    }
    return CheckAccess(ToView(method->second), *caller);
  }

  const std::function<void(const absl::Status&)> on_refused_;
};

}  // namespace

struct TransportSecurity::State {
  std::string directory;
  Identity identity;
  std::shared_ptr<tls::CertificateProviderInterface> certificates;
  // One object for each role, so that channels to one address share their connection.
  std::map<Role, std::shared_ptr<grpc::ChannelCredentials>> channels;
};

TransportSecurity TransportSecurity::Plaintext() { return {}; }

absl::StatusOr<TransportSecurity> TransportSecurity::Tls(const std::string& directory,
                                                         absl::Time now) {
  PENSTOCK_ASSIGN_OR_RETURN(const CertificateFacts facts, CheckCredentials(directory, now));
  const CredentialPaths paths = CredentialPathsIn(directory);
  auto state = std::make_shared<State>();
  state->directory = directory;
  state->identity = facts.identity;
  state->certificates = std::make_shared<tls::FileWatcherCertificateProvider>(
      paths.key, paths.certificate, paths.authorities, kReadAgainSeconds);
  for (const Role role : AllRoles()) {
    tls::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(state->certificates);
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    options.set_certificate_verifier(
        tls::ExternalCertificateVerifier::Create<PeerVerifier>(facts.identity.trust_domain, role));
    options.set_check_call_host(false);  // the verifier looks at the role instead
    state->channels[role] = tls::TlsCredentials(options);
  }
  TransportSecurity security;
  security.state_ = std::move(state);
  return security;
}

const Identity& TransportSecurity::identity() const {
  PENSTOCK_CHECK(encrypted());
  return state_->identity;
}

const std::string& TransportSecurity::directory() const {
  PENSTOCK_CHECK(encrypted());
  return state_->directory;
}

std::shared_ptr<grpc::ServerCredentials> TransportSecurity::ForServer(
    std::function<void(const absl::Status&)> on_refused) const {
  if (!encrypted()) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(state_->certificates);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<PeerVerifier>(
      state_->identity.trust_domain, std::nullopt));
  auto credentials = tls::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<AccessProcessor>(std::move(on_refused)));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> TransportSecurity::ForChannel(Role role) const {
  return encrypted() ? state_->channels.at(role) : grpc::InsecureChannelCredentials();
}

std::optional<Identity> CallerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  return peer == nullptr ? std::nullopt : IdentityIn(*peer);
}

}  // namespace penstock
