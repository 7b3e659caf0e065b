// Requests to the page and to metrics: every head gets one answer of HTTP/1.1 or the end of its connection, and a handler
// is asked only by a GET or HEAD that the guard lets through.
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/http/exchange.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

constexpr char kFuzzedToken[] = "Bearer a-token-of-the-fuzzer";

// The head of a request as a connection takes it off its bytes: up to the empty line.
std::string HeadOf(absl::string_view bytes) {
  constexpr absl::string_view kEnd = "\r\n\r\n";
  const size_t end = bytes.find(kEnd);
  return end == absl::string_view::npos ? absl::StrCat(bytes, kEnd)
                                        : std::string(bytes.substr(0, end + kEnd.size()));
}

HttpService FuzzedService(bool guarded, int& asked) {
  const auto answer = [&asked](const HttpRequest& request) -> absl::StatusOr<HttpContent> {
    ++asked;
    return HttpContent{"text/plain; charset=utf-8", request.path};
  };
  HttpService service = {.routes = {{"/", answer}, {"/jobs/", answer}}, .local_host_only = guarded};
  if (guarded) {
    service.authorize = [](const HttpRequest& request) {
      return request.authorization == kFuzzedToken ? absl::OkStatus()
                                                   : absl::UnauthenticatedError("show the token");
    };
  }
  return service;
}

void CheckRequest(const std::string& head, bool guarded) {
  int asked = 0;
  const HttpService service = FuzzedService(guarded, asked);
  const HttpAnswer answer = AnswerRequest(service, head, /*peer=*/nullptr);
  PENSTOCK_CHECK(asked <= 1);
  if (asked == 1) {
    FuzzAccepted();
    // A tab may follow as well as a space (RFC 9112, section 3).
    PENSTOCK_CHECK(absl::StrContains(head, "GET") || absl::StrContains(head, "HEAD"));
  }
  if (answer.bytes.empty()) {
    PENSTOCK_CHECK(answer.close);
    return;
  }
  PENSTOCK_CHECK(absl::StartsWith(answer.bytes, "HTTP/1.1 "));
  PENSTOCK_CHECK(absl::StrContains(answer.bytes, "\r\n\r\n"));
  PENSTOCK_CHECK(answer.bytes.size() < 4096 + 2 * head.size());
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(http_request) {
  using namespace penstock;
  const std::string head = HeadOf(FuzzBytes(data, size).rest());
  CheckRequest(head, /*guarded=*/false);
  CheckRequest(head, /*guarded=*/true);
  return 0;
}
