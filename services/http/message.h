// HttpRequest, HttpContent, HttpRoute: what a handler is asked and what it answers.
#pragma once

#include <openssl/x509.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

// A GET or HEAD; the server makes the difference.
struct HttpRequest {
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded; of a name that comes twice the first
  std::string authorization;                 // the header, or empty
  // The certificate that the peer showed and the TLS context verified; null without TLS, or if it
  // showed none. Shared because the connection may end while a handler looks at it.
  std::shared_ptr<X509> peer_certificate;
};

struct HttpContent {
  std::string type;  // "text/html; charset=utf-8"
  std::string body;
};

// Answers a request. Called on any of the server's threads, several at a time; must not wait long,
// and never for a network peer. An error is answered as text, with the HTTP status of its code:
// NotFound is 404, Unauthenticated 401, PermissionDenied 403, InvalidArgument 400,
// FailedPrecondition 409, Unavailable 503, DeadlineExceeded 504, the rest 500.
using HttpHandler = std::function<absl::StatusOr<HttpContent>(const HttpRequest&)>;

// Says whether a request may be answered at all: OK, Unauthenticated or PermissionDenied. Threads
// as HttpHandler's.
using HttpAuthorizer = std::function<absl::Status(const HttpRequest&)>;

// Which paths a handler answers: `path` itself, and, if it ends in a slash and is not "/" alone,
// all below it. The longest that fits is taken.
struct HttpRoute {
  std::string path;
  HttpHandler handler;
};

}  // namespace penstock
