#include "services/http/guard.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/status.h"
#include "services/security/certificate.h"
#include "services/security/credential_directory.h"
#include "services/security/openssl.h"

namespace penstock {
namespace {

using Context = std::shared_ptr<SSL_CTX>;

constexpr absl::Duration kLookInterval = absl::Seconds(1);
constexpr int64_t kTokenBytesMax = 4096;

// Returns a text that changes when the files change.
std::string StampOf(const std::vector<std::string>& paths) {
  std::string stamp;
  for (const std::string& path : paths) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) info = {};
    absl::StrAppend(&stamp, info.st_dev, ":", info.st_ino, ":", info.st_size, ":",
                    info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "\n");
  }
  return stamp;
}

std::vector<std::string> FilesOf(const std::string& directory) {
  const CredentialPaths paths = CredentialPathsIn(directory);
  return {paths.authorities, paths.certificate, paths.key};
}

// A value that is read from files, and again when one has changed.
template <typename Value>
class Watched {
 public:
  using Read = std::function<absl::StatusOr<Value>()>;
  using Trouble = std::function<void(const absl::Status&)>;
  // `keeps`: what cannot be read leaves the value from before in force.
  Watched(std::vector<std::string> paths, Read read, bool keeps, Trouble on_trouble)
      : paths_(std::move(paths)),
        read_(std::move(read)),
        keeps_(keeps),
        on_trouble_(std::move(on_trouble)) {}

  // The first time. Errors: those of reading.
  absl::Status Load() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    looked_ = absl::Now();
    stamp_ = StampOf(paths_);
    PENSTOCK_ASSIGN_OR_RETURN(value_, read_());
    return absl::OkStatus();
  }

  // Nothing if there is none that is in force.
  std::optional<Value> Get() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::Status trouble;
    std::optional<Value> value;
    {
      MutexLock lock(mutex_);
      trouble = Look();
      value = value_;
    }
    if (!trouble.ok() && on_trouble_ != nullptr) on_trouble_(trouble);
    return value;
  }

 private:
  // Checks files that have changed, once they have not changed for one more look: they may be looked at between
  // two writes of their replacement.
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time now = absl::Now();
    if (now - looked_ < kLookInterval) return absl::OkStatus();
    looked_ = now;
    std::string stamp = StampOf(paths_);
    if (stamp == stamp_) return absl::OkStatus();
    absl::StatusOr<Value> read = read_();
    if (read.ok()) {
      value_ = *std::move(read);
      stamp_ = std::move(stamp);
      return absl::OkStatus();
    }
    if (std::exchange(seen_, stamp) != stamp) return absl::OkStatus();
    stamp_ = std::move(stamp);
    if (!keeps_) value_.reset();
    return read.status();
  }

  const std::vector<std::string> paths_;
  const Read read_;
  const bool keeps_;
  const Trouble on_trouble_;
  Mutex mutex_;
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_ ABSL_GUARDED_BY(mutex_);  // of what was taken up, or given up
  std::string seen_ ABSL_GUARDED_BY(mutex_);   // of what could not be used at the last look
  std::optional<Value> value_ ABSL_GUARDED_BY(mutex_);
};

// Shows the directory's certificate; clients may show one, which its authorities must vouch for.
absl::StatusOr<Context> MakeContext(const std::string& directory) {
  PENSTOCK_RETURN_IF_ERROR(CheckCredentials(directory, absl::Now()).status());
  PENSTOCK_ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(directory));
  PENSTOCK_ASSIGN_OR_RETURN(auto chain, ParseCertificates(credentials.own.certificate));
  PENSTOCK_ASSIGN_OR_RETURN(const auto key, ParseKey(credentials.own.key));
  PENSTOCK_ASSIGN_OR_RETURN(const auto authorities, ParseCertificates(credentials.authorities));
  Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  bool made = context != nullptr &&
              SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1 &&
              SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1 &&
              SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1;
  for (size_t i = 1; made && i < chain.size(); ++i) {
    made = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  for (const auto& authority : authorities) {
    // The names in a request for a certificate, by which browsers choose one.
    made = made &&
           X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get()) == 1 &&
           SSL_CTX_add_client_CA(context.get(), authority.get()) == 1;
  }
  if (!made) return openssl::Error(absl::StatusCode::kInternal, "cannot set up TLS");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  // Each connection is checked again, so that an authority that is dropped is out.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  return context;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  absl::StatusOr<std::string> text = RealFiles().Read(path, kTokenBytesMax);
  PENSTOCK_RETURN_IF_ERROR(Annotate(text.status(), "token"));
  const std::string token(absl::StripAsciiWhitespace(*text));
  if (token.size() < HttpGuard::kTokenLettersMin ||
      std::any_of(token.begin(), token.end(), [](char c) { return !absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(absl::StrCat("token: ", path, " must hold at least ",
                                                   HttpGuard::kTokenLettersMin,
                                                   " printable letters without blanks"));
  }
  return token;
}

// In a time that says nothing of the token.
bool IsToken(absl::string_view given, const std::string& token) {
  const std::string a = Sha256Hex(given);
  const std::string b = Sha256Hex(token);
  return CRYPTO_memcmp(a.data(), b.data(), b.size()) == 0;
}

// The token that a request brings, or nothing.
std::string TokenIn(absl::string_view authorization) {
  std::string scheme(authorization.substr(0, authorization.find(' ')));
  absl::AsciiStrToLower(&scheme);
  const absl::string_view rest = absl::StripAsciiWhitespace(
      authorization.substr(std::min(scheme.size(), authorization.size())));
  if (scheme == "bearer") return std::string(rest);
  std::string decoded;
  if (scheme != "basic" || !absl::Base64Unescape(rest, &decoded)) return "";
  const size_t colon = decoded.find(':');
  return colon == std::string::npos ? "" : decoded.substr(colon + 1);
}

}  // namespace

class HttpGuard::Impl {
 public:
  explicit Impl(const HttpGuardOptions& options)
      : trust_domain_(options.security.identity().trust_domain),
        context_(
            FilesOf(options.security.directory()),
            [directory = options.security.directory()] { return MakeContext(directory); },
            /*keeps=*/true, Saying("; those from before stay in use", options.on_trouble)),
        on_refused_(options.on_refused) {
    if (options.token_file.empty()) return;
    token_.emplace(
        std::vector<std::string>{options.token_file},
        [path = options.token_file] { return ReadToken(path); },
        /*keeps=*/false, Saying("; tokens are refused until then", options.on_trouble));
  }

  absl::Status Load() {
    PENSTOCK_RETURN_IF_ERROR(context_.Load());
    return token_.has_value() ? token_->Load() : absl::OkStatus();
  }

  Context context() { return *context_.Get(); }

  absl::Status Authorize(const HttpRequest& request) {
    absl::Status allowed = Check(request);
    if (!allowed.ok() && on_refused_ != nullptr) on_refused_(allowed);
    return allowed;
  }

 private:
  using Trouble = std::function<void(const absl::Status&)>;
  static Trouble Saying(const char* consequence, const Trouble& on_trouble) {
    if (on_trouble == nullptr) return nullptr;
    return [consequence, on_trouble](const absl::Status& status) {
      on_trouble(absl::Status(status.code(), absl::StrCat(status.message(), consequence)));
    };
  }

  absl::Status Check(const HttpRequest& request) {
    if (request.peer_certificate != nullptr) return CheckRole(*request.peer_certificate);
    if (token_.has_value()) {
      const std::string given = TokenIn(request.authorization);
      const std::optional<std::string> token = token_->Get();
      if (!given.empty() && token.has_value() && IsToken(given, *token)) return absl::OkStatus();
    }
    return absl::UnauthenticatedError(token_.has_value()
                                          ? "show a certificate (client or monitor), or the token"
                                          : "show a certificate (client or monitor)");
  }

  absl::Status CheckRole(X509& certificate) const {
    const absl::StatusOr<CertificateFacts> facts = FactsOf(certificate);
    if (!facts.ok()) return absl::PermissionDeniedError(facts.status().message());
    const Identity& peer = facts->identity;
    const bool reads = peer.role == Role::kClient || peer.role == Role::kMonitor;
    if (reads && peer.trust_domain == trust_domain_) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(
        peer.ToUri(), " may not read here, clients and monitors of ", trust_domain_, " may"));
  }

  const std::string trust_domain_;
  Watched<Context> context_;
  const std::function<void(const absl::Status&)> on_refused_;
  std::optional<Watched<std::string>> token_;
};

absl::StatusOr<std::shared_ptr<HttpGuard>> HttpGuard::Make(const HttpGuardOptions& options) {
  if (!options.security.encrypted()) {
    if (options.token_file.empty()) return nullptr;
    return absl::InvalidArgumentError(
        "a token for HTTP needs --certificates: in plain text everybody on the way would read it");
  }
  auto impl = std::make_unique<Impl>(options);
  PENSTOCK_RETURN_IF_ERROR(impl->Load());
  return std::shared_ptr<HttpGuard>(new HttpGuard(std::move(impl)));
}

void HttpGuard::Protect(const std::shared_ptr<HttpGuard>& guard, HttpServerOptions& server) {
  if (guard == nullptr) return;
  server.tls = [guard]() -> absl::StatusOr<Context> { return guard->impl_->context(); };
  server.authorize = [guard](const HttpRequest& request) {
    return guard->impl_->Authorize(request);
  };
}

HttpGuard::HttpGuard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpGuard::~HttpGuard() = default;

}  // namespace penstock
