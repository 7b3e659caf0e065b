// HttpGuard: who may read over HTTP. Connections are TLS with the program's own certificate, and a client shows
// a certificate with one of the roles that may read, or (a browser, a scraper without one) a token:
//
//   Authorization: Bearer TOKEN        or Basic, with any name and TOKEN as the password, as browsers ask for
//
// Certificates and token are looked at again when their files have changed, at most once a second. Certificates that
// cannot be used leave those from before in force; a token that cannot be read, or is gone, is no token any more.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/http/message.h"
#include "services/http/server.h"
#include "services/rpc/transport_security.h"

namespace penstock {

struct HttpGuardOptions {
  TransportSecurity security = TransportSecurity::Plaintext();
  std::string token_file;  // empty: certificates alone
  // Called with every refused request, unless null. Both are called on any of the server's threads.
  std::function<void(const absl::Status&)> on_refused;
  // Called, unless null, when changed files cannot be used, once for each change.
  std::function<void(const absl::Status&)> on_trouble;
};

class HttpGuard {
 public:
  // Fewer letters are guessed.
  static constexpr size_t kTokenLettersMin = 16;

  // Nobody is guarded against in plain text: nothing is returned.
  // Errors: those of ReadCredentials and of reading the token's file, InvalidArgument (a token that is too short
  // or has blanks inside; a token in plain text, where everybody would read it).
  static absl::StatusOr<std::shared_ptr<HttpGuard>> Make(const HttpGuardOptions& options);

  // Makes a server ask this guard. A null guard changes nothing.
  static void Protect(const std::shared_ptr<HttpGuard>& guard, HttpServerOptions& server);

  ~HttpGuard();

 private:
  class Impl;
  explicit HttpGuard(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
