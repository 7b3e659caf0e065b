#include "services/http/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

// One kind of server may resume sessions; OpenSSL asks for its name where clients show
// certificates.
constexpr unsigned char kSessionContext[] = "penstock-http";

std::string LastError() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "the connection broke off";
}

// Returns whether `code` means that more bytes from the network are needed.
bool WantsMore(SSL* session, int code) {
  const int error = SSL_get_error(session, code);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ||
         error == SSL_ERROR_ZERO_RETURN;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsSession>> TlsSession::Accept(std::shared_ptr<SSL_CTX> context) {
  std::unique_ptr<SSL, Deleter> session(SSL_new(context.get()));
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (session == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    return absl::InternalError("TLS: out of memory");
  }
  SSL_set_bio(session.get(), in, out);
  SSL_set_session_id_context(session.get(), kSessionContext, sizeof(kSessionContext) - 1);
  SSL_set_options(session.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_set_accept_state(session.get());
  return std::unique_ptr<TlsSession>(new TlsSession(std::move(context), std::move(session)));
}

absl::Status TlsSession::Receive(absl::string_view bytes, std::string& application,
                                 std::string& network) {
  ERR_clear_error();
  BIO_write(SSL_get_rbio(session_.get()), bytes.data(), static_cast<int>(bytes.size()));
  char buffer[4096];
  for (;;) {
    const int got = SSL_read(session_.get(), buffer, sizeof(buffer));  // shakes hands first
    if (got > 0) {
      application.append(buffer, got);
      continue;
    }
    const bool good = WantsMore(session_.get(), got);
    Flush(network);
    if (good) return absl::OkStatus();
    return absl::UnauthenticatedError(absl::StrCat("TLS: ", LastError()));
  }
}

absl::Status TlsSession::Send(absl::string_view bytes, std::string& network) {
  ERR_clear_error();
  size_t written = 0;
  if (SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &written) != 1) {
    return absl::InternalError(absl::StrCat("TLS: ", LastError()));
  }
  Flush(network);
  return absl::OkStatus();
}

void TlsSession::Close(std::string& network) {
  ERR_clear_error();
  if (SSL_is_init_finished(session_.get()) == 1) SSL_shutdown(session_.get());
  Flush(network);
}

std::shared_ptr<X509> TlsSession::peer_certificate() const {
  if (SSL_get_verify_result(session_.get()) != X509_V_OK) return nullptr;
  X509* const certificate = SSL_get1_peer_certificate(session_.get());
  return certificate == nullptr ? nullptr : std::shared_ptr<X509>(certificate, X509_free);
}

void TlsSession::Flush(std::string& network) {
  char buffer[4096];
  int got = 0;
  while ((got = BIO_read(SSL_get_wbio(session_.get()), buffer, sizeof(buffer))) > 0) {
    network.append(buffer, got);
  }
}

}  // namespace penstock
