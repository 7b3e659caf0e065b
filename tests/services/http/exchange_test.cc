#include "services/http/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Answers with its own name and what it was asked.
HttpRoute Echo(const std::string& path) {
  return {path, [path](const HttpRequest& request) -> absl::StatusOr<HttpContent> {
            std::string body = path + " <- " + request.path;
            for (const auto& [name, value] : request.query) {
              absl::StrAppend(&body, " ", name, "=", value);
            }
            return HttpContent{"text/plain; charset=utf-8", body};
          }};
}

HttpRoute Failing(const std::string& path, const absl::Status& status) {
  return {path, [status](const HttpRequest&) -> absl::StatusOr<HttpContent> { return status; }};
}

HttpService ServiceOf(std::vector<HttpRoute> routes) { return {.routes = std::move(routes)}; }

HttpAnswer Ask(const HttpService& service, const std::string& line,
               const std::string& headers = "") {
  return AnswerRequest(service, line + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n",
                       nullptr);
}

TEST(AnswerRequest, KnownPath_IsAnsweredWithSecurityHeaders) {
  const HttpAnswer answer = Ask(ServiceOf({Echo("/a")}), "GET /a");
  EXPECT_FALSE(answer.close);
  EXPECT_THAT(answer.bytes,
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\n/a <- /a"),
                    HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"),
                    HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"),
                    HasSubstr("X-Content-Type-Options: nosniff\r\n"),
                    HasSubstr("Referrer-Policy: no-referrer\r\n"),
                    HasSubstr("Cache-Control: no-store\r\n")));
  EXPECT_THAT(answer.bytes, Not(HasSubstr("Access-Control")));
}

TEST(AnswerRequest, Head_HasTheLengthAndNoBody) {
  EXPECT_THAT(Ask(ServiceOf({Echo("/a")}), "HEAD /a").bytes,
              AllOf(HasSubstr("Content-Length: 8\r\n"), EndsWith("\r\n\r\n")));
}

TEST(AnswerRequest, PathAndQuery_AreDecoded) {
  EXPECT_THAT(Ask(ServiceOf({Echo("/a b")}), "GET /a%20b?x=1%262&y=&x=9").bytes,
              EndsWith("/a b <- /a b x=1&2 y="));
}

TEST(AnswerRequest, SeveralRoutes_TheLongestThatFitsAnswers) {
  const HttpService service =
      ServiceOf({Echo("/"), Echo("/jobs"), Echo("/jobs/"), Echo("/jobs/old/")});
  EXPECT_THAT(Ask(service, "GET /").bytes, EndsWith("/ <- /"));
  EXPECT_THAT(Ask(service, "GET /jobs").bytes, EndsWith("/jobs <- /jobs"));
  EXPECT_THAT(Ask(service, "GET /jobs/7").bytes, EndsWith("/jobs/ <- /jobs/7"));
  EXPECT_THAT(Ask(service, "GET /jobs/old/7").bytes, EndsWith("/jobs/old/ <- /jobs/old/7"));
  EXPECT_THAT(Ask(service, "GET /elsewhere").bytes,
              AllOf(StartsWith("HTTP/1.1 404"), EndsWith("there is nothing at /elsewhere\n")));
}

TEST(AnswerRequest, Errors_AreTextWithTheirHttpStatus) {
  EXPECT_THAT(
      Ask(ServiceOf({Failing("/a", absl::UnavailableError("not <b>now</b>"))}), "GET /a").bytes,
      AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Content-Type: text/plain"), HasSubstr("nosniff"),
            EndsWith("not <b>now</b>\n")));
  EXPECT_THAT(Ask(ServiceOf({Failing("/a", absl::InternalError("x"))}), "GET /a").bytes,
              StartsWith("HTTP/1.1 500"));
}

TEST(AnswerRequest, Authorizer_IsAskedBeforeAnyRoute) {
  HttpService service = ServiceOf({Echo("/a")});
  service.authorize = [](const HttpRequest& request) {
    if (request.authorization == "Bearer right") return absl::OkStatus();
    return request.authorization.empty() ? absl::UnauthenticatedError("show a token")
                                         : absl::PermissionDeniedError("another token");
  };
  EXPECT_THAT(Ask(service, "GET /a", "Authorization: Bearer right\r\n").bytes,
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(service, "GET /a", "Authorization: Bearer wrong\r\n").bytes,
              AllOf(StartsWith("HTTP/1.1 403"), EndsWith("another token\n")));
  EXPECT_THAT(
      Ask(service, "GET /none").bytes,
      AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Basic realm=\"penstock\"\r\n"),
            HasSubstr("WWW-Authenticate: Bearer\r\n")));
}

TEST(AnswerRequest, OtherMethodsAndBodies_AreRefusedAndEndTheConnection) {
  const HttpService service = ServiceOf({Echo("/a")});
  const HttpAnswer post = Ask(service, "POST /a", "Content-Length: 5\r\n");
  EXPECT_TRUE(post.close);
  EXPECT_THAT(post.bytes, AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD\r\n"),
                                HasSubstr("Connection: close\r\n")));
  for (const char* header : {"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
                             "Content-Length: 0\r\nContent-Length: 5\r\n"}) {
    const HttpAnswer answer = Ask(service, "GET /a", header);
    EXPECT_TRUE(answer.close);
    EXPECT_THAT(answer.bytes, StartsWith("HTTP/1.1 413"));
  }
}

TEST(AnswerRequest, WhatIsNotHttp_Is400) {
  for (const char* line : {"nonsense", "GET", "GET  ", "\x16\x03\x01"}) {
    const HttpAnswer answer =
        AnswerRequest(ServiceOf({Echo("/")}), std::string(line) + "\r\n\r\n", nullptr);
    EXPECT_TRUE(answer.close) << line;
    EXPECT_THAT(answer.bytes, AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("nosniff"),
                                    EndsWith("not a request of HTTP/1.1\n")));
  }
}

TEST(AnswerRequest, ManyHeadersOrALongPath_AreRefused) {
  const HttpService service = ServiceOf({Echo("/a")});
  std::string headers;
  for (int i = 0; i <= service.limits.headers_max; ++i)
    headers += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_THAT(Ask(service, "GET /a", headers).bytes, StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask(service, "GET /" + std::string(9000, 'a')).bytes, StartsWith("HTTP/1.1 414"));
}

TEST(AnswerRequest, RangesAndCompression_AreIgnored) {
  const HttpAnswer answer = Ask(ServiceOf({Echo("/a")}), "GET /a",
                                "Range: bytes=0-1,2-3\r\nAccept-Encoding: gzip, br\r\n");
  EXPECT_THAT(answer.bytes, AllOf(StartsWith("HTTP/1.1 200"), EndsWith("\r\n\r\n/a <- /a"),
                                  Not(HasSubstr("Content-Encoding"))));
}

TEST(AnswerRequest, LocalHostOnly_RefusesNamesOfOthers) {
  HttpService service = ServiceOf({Echo("/a")});
  service.local_host_only = true;
  const auto with_host = [&](const std::string& host) {
    return AnswerRequest(service, "GET /a HTTP/1.1\r\nHost: " + host + "\r\n\r\n", nullptr).bytes;
  };
  for (const char* host :
       {"localhost", "LOCALHOST:7071", "127.0.0.1:7071", "[::1]:7071", "10.0.0.7"}) {
    EXPECT_THAT(with_host(host), StartsWith("HTTP/1.1 200")) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:7071", "localhost.evil.example", "", "["}) {
    EXPECT_THAT(with_host(host), StartsWith("HTTP/1.1 403")) << host;
  }
}

TEST(AnswerRequest, ConnectionClose_IsDone) {
  EXPECT_TRUE(Ask(ServiceOf({Echo("/a")}), "GET /a", "Connection: close\r\n").close);
  EXPECT_TRUE(AnswerRequest(ServiceOf({Echo("/a")}), "GET /a HTTP/1.0\r\n\r\n", nullptr).close);
}

}  // namespace
}  // namespace penstock
