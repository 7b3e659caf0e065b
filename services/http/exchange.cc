#include "services/http/exchange.h"

#include <arpa/inet.h>
#include <httplib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

// Nothing from elsewhere, nothing embedded elsewhere, nothing kept.
const httplib::Headers& SecurityHeaders() {
  static const auto* const headers =
      new httplib::Headers{{"Content-Security-Policy",
                            "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
                            "'self'; connect-src 'self'; "
                            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "no-referrer"},
                           {"Cross-Origin-Resource-Policy", "same-origin"},
                           {"Cross-Origin-Opener-Policy", "same-origin"},
                           {"Cache-Control", "no-store"}};
  return *headers;
}

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

// A request that lies in memory, and an answer that is collected there.
class MemoryStream final : public httplib::Stream {
 public:
  explicit MemoryStream(absl::string_view input) : input_(input) {}

  bool is_readable() const override { return !input_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* bytes, size_t size) override {
    const size_t taken = std::min(size, input_.size());
    std::memcpy(bytes, input_.data(), taken);
    input_.remove_prefix(taken);
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* bytes, size_t size) override {
    output_.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

  std::string TakeOutput() { return std::move(output_); }

 private:
  absl::string_view input_;
  std::string output_;
};

// The library's server without its sockets and threads.
class Grammar final : public httplib::Server {
 public:
  using httplib::Server::process_request;
};

void SetError(httplib::Response& response, int status, absl::string_view message) {
  response.status = status;
  response.set_content(absl::StrCat(message, "\n"), kText);
}

// "[::1]:7071" -> "::1", "localhost:7071" -> "localhost".
std::string HostWithoutPort(const std::string& host) {
  if (absl::StartsWith(host, "[")) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

bool NamesThisMachine(const std::string& host_header) {
  const std::string host = absl::AsciiStrToLower(HostWithoutPort(host_header));
  in6_addr address;
  return host == "localhost" || inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

const HttpRoute* FindRoute(const HttpService& service, const std::string& path) {
  const HttpRoute* found = nullptr;
  for (const HttpRoute& route : service.routes) {
    const bool below = route.path.size() > 1 && absl::EndsWith(route.path, "/");
    if ((below ? absl::StartsWith(path, route.path) : path == route.path) &&
        (found == nullptr || route.path.size() > found->path.size())) {
      found = &route;
    }
  }
  return found;
}

// Asks the handler, or says why it is not asked.
absl::StatusOr<HttpContent> Ask(const HttpService& service, const HttpRequest& request) {
  if (service.authorize != nullptr) {
    const absl::Status allowed = service.authorize(request);
    if (!allowed.ok()) return allowed;
  }
  const HttpRoute* const route = FindRoute(service, request.path);
  if (route == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is nothing at ", request.path));
  }
  return route->handler(request);
}

void Respond(const HttpService& service, const httplib::Request& request,
             std::shared_ptr<X509> peer, httplib::Response& response) {
  if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    return SetError(response, 405, "only GET and HEAD are answered here");
  }
  if (request.has_header("Transfer-Encoding") ||
      request.get_header_value_count("Content-Length") > 1 ||
      (request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0")) {
    return SetError(response, 413, "a GET or HEAD has no body");
  }
  if (request.headers.size() > static_cast<size_t>(service.limits.headers_max)) {
    return SetError(response, 431,
                    absl::StrCat("more than ", service.limits.headers_max, " headers"));
  }
  if (service.local_host_only && !NamesThisMachine(request.get_header_value("Host"))) {
    return SetError(
        response, 403,
        "this server answers on its own machine only: ask for localhost or its address");
  }
  HttpRequest asked{.path = request.path,
                    .authorization = request.get_header_value("Authorization"),
                    .peer_certificate = std::move(peer)};
  for (const auto& [name, value] : request.params) asked.query.emplace(name, value);
  absl::StatusOr<HttpContent> content = Ask(service, asked);
  if (!content.ok()) {
    if (absl::IsUnauthenticated(content.status())) {
      // Browsers ask for the token by the first, tools may send it by either. A line for each: Chromium
      // takes both in one line for a malformed Basic, and shows the refusal without asking.
      response.set_header("WWW-Authenticate", "Basic realm=\"penstock\"");
      response.set_header("WWW-Authenticate", "Bearer");
    }
    return SetError(response, HttpStatusOf(content.status().code()), content.status().message());
  }
  response.status = 200;
  response.body = std::move(content->body);
  response.set_header("Content-Type", content->type);
}

// After these the bytes that follow cannot be told from a body.
bool EndsConnection(int status) { return status == 400 || status >= 405; }

}  // namespace

HttpAnswer AnswerRequest(const HttpService& service, const std::string& head,
                         std::shared_ptr<X509> peer) {
  Grammar grammar;
  grammar.set_default_headers(SecurityHeaders());
  grammar.set_pre_routing_handler(
      [&](const httplib::Request& request, httplib::Response& response) {
        Respond(service, request, peer, response);
        return httplib::Server::HandlerResponse::Handled;
      });
  // Refusals by the library itself have no text.
  grammar.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) {
      SetError(response, response.status, "this is not a request of HTTP/1.1");
    }
  });
  HttpAnswer answer;
  grammar.set_post_routing_handler([&](const httplib::Request&, httplib::Response& response) {
    response.headers.erase("Keep-Alive");  // the library's limits, which are not ours
    if (EndsConnection(response.status)) {
      response.headers.erase("Connection");
      response.set_header("Connection", "close");
      answer.close = true;
    }
  });
  MemoryStream stream(head);
  bool closed = false;
  const bool answered = grammar.process_request(stream, /*close_connection=*/false, closed,
                                                [](httplib::Request& request) {
                                                  request.ranges.clear();
                                                  request.headers.erase("Accept-Encoding");
                                                  request.headers.erase("Expect");
                                                });
  answer.close = answer.close || closed || !answered;
  answer.bytes = stream.TakeOutput();
  return answer;
}

HttpAnswer AnswerOversizedHead(const HttpService& service) {
  const std::string body = absl::StrCat("a request of more than ", service.limits.head_bytes_max,
                                        " bytes is not read\n");
  return {absl::StrCat("HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: ", kText,
                       "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body),
          /*close=*/true};
}

}  // namespace penstock
