// TlsSession: the server's side of one TLS connection, between bytes of the network and bytes of the
// application. It never waits and knows no socket.
//
// Thread-compatible.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

class TlsSession {
 public:
  // Errors: Internal (out of memory).
  static absl::StatusOr<std::unique_ptr<TlsSession>> Accept(std::shared_ptr<SSL_CTX> context);

  // Takes bytes from the network: appends to `application` what they say, and to `network` what is to be
  // sent in return. Errors: Unauthenticated (the peer cannot be trusted, or does not speak TLS);
  // `network` then holds the alert that tells it so.
  absl::Status Receive(absl::string_view bytes, std::string& application, std::string& network);

  // Appends to `network` what carries `bytes`. Errors: Internal.
  absl::Status Send(absl::string_view bytes, std::string& network);

  // Appends the end of the stream.
  void Close(std::string& network);

  // The peer's certificate, which the context verified; null if none. REQUIRES: the handshake is done.
  std::shared_ptr<X509> peer_certificate() const;

 private:
  struct Deleter {
    void operator()(SSL* session) const { SSL_free(session); }
  };
  TlsSession(std::shared_ptr<SSL_CTX> context, std::unique_ptr<SSL, Deleter> session)
      : context_(std::move(context)), session_(std::move(session)) {}
  // Appends what OpenSSL wants to send.
  void Flush(std::string& network);

  // Shared by all connections that began while it was in force.
  const std::shared_ptr<SSL_CTX> context_;
  const std::unique_ptr<SSL, Deleter> session_;
};

}  // namespace penstock
