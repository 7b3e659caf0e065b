// AnswerRequest: one request of HTTP/1.1 as bytes in, its answer as bytes out. No sockets, no time.
//
// The grammar is cpp-httplib's, and this is the only file that knows it. Its features that make one
// request cost much (ranges, compression) or read more (bodies, uploads) are all off.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/http/limits.h"
#include "services/http/message.h"

namespace penstock {

// The answers to requests, alike on every connection.
struct HttpService {
  std::vector<HttpRoute> routes;
  HttpAuthorizer authorize;  // null: anybody who connects may ask
  // Refuses a Host header that names anything but this machine. For servers that listen on a loopback
  // address without TLS: a web page from elsewhere, whose name is made to point here, must not read
  // through its visitor's browser.
  bool local_host_only = false;
  HttpLimits limits;
};

struct HttpAnswer {
  std::string bytes;
  bool close = false;  // the connection ends with it
};

// `head`: a request's bytes, from its first line to the empty one. `peer`: see HttpRequest.
// Thread safety: from any thread; runs a handler.
HttpAnswer AnswerRequest(const HttpService& service, const std::string& head,
                         std::shared_ptr<X509> peer);

// The answer when a head is larger than allowed.
HttpAnswer AnswerOversizedHead(const HttpService& service);

}  // namespace penstock
