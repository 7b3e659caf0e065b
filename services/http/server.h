// HttpServer: answers GET and HEAD requests, with or without TLS: metrics for Prometheus, the
// coordinator's page and what the page reads.
//
//   one loop thread: accepts, receives, sends ── heads ──▶ a few handler threads: AnswerRequest
//                                             ◀── answers ──
//
// No client holds a thread: what is slow waits in the loop, and every wait has a deadline (limits.h).
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/http/limits.h"
#include "services/http/message.h"
#include "services/rpc/address.h"

namespace penstock {

struct HttpServerOptions {
  HostPort listen;  // port 0: any free one
  std::vector<HttpRoute> routes;
  // Returns the context of a connection's TLS; called for each, so that a new certificate serves the
  // connections after it. The context decides whether clients must show certificates
  // (SSL_CTX_set_verify); sessions are resumed only within one context. Called on the loop's thread, so
  // it must not wait. An error refuses the connection. Null: plaintext.
  std::function<absl::StatusOr<std::shared_ptr<SSL_CTX>>()> tls;
  // Asked before any route, unknown ones included. Null: anybody who can connect may ask.
  HttpAuthorizer authorize;
  HttpLimits limits;
};

class HttpServer {
 public:
  // Listens until destroyed. Objects that the options' functions use must outlive the server.
  // Errors: FailedPrecondition (the address is taken or not ours).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options);
  // Hangs up on everybody. Returns when no handler runs any more.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // With the port that was found.
  HostPort address() const;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  const std::unique_ptr<Loop> loop_;
};

}  // namespace penstock
