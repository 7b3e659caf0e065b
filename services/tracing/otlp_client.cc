#include "services/tracing/otlp_client.h"

#include <httplib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "services/security/certificate.h"

namespace penstock {
namespace {

constexpr int64_t kFileBytesMax = 1 << 20;
constexpr size_t kTokenBytesMax = 8 << 10;
constexpr size_t kBodyBytesMax = 16 << 10;

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  absl::StatusOr<std::string> text = RealFiles().Read(path, kTokenBytesMax);
  PENSTOCK_RETURN_IF_ERROR(Annotate(text.status(), "token of the collector"));
  const std::string token(absl::StripAsciiWhitespace(*text));
  if (token.empty() || !std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
    return absl::InvalidArgumentError(absl::StrCat("token of the collector: ", path,
                                                   " must hold printable letters without blanks"));
  }
  return token;
}

absl::Status CheckAuthorities(const std::string& path) {
  absl::StatusOr<std::string> pem = RealFiles().Read(path, kFileBytesMax);
  PENSTOCK_RETURN_IF_ERROR(pem.status());
  return Annotate(ParseCertificates(*pem).status(), path);
}

std::unique_ptr<httplib::ClientImpl> MakeHttpClient(const OtlpClientOptions& options) {
  const HostPort& address = options.endpoint.address;
  std::unique_ptr<httplib::ClientImpl> client;
  if (options.endpoint.encrypted) {
    auto tls = std::make_unique<httplib::SSLClient>(address.host, address.port);
    if (!options.ca_file.empty()) tls->set_ca_cert_path(options.ca_file);
    tls->enable_server_certificate_verification(true);
    client = std::move(tls);
  } else {
    client = std::make_unique<httplib::ClientImpl>(address.host, address.port);
  }
  const auto timeout = absl::ToChronoMilliseconds(OtlpClient::kTimeout);
  client->set_connection_timeout(timeout);
  client->set_read_timeout(timeout);
  client->set_write_timeout(timeout);
  client->set_keep_alive(false);  // requests are seconds apart
  client->set_follow_location(false);
  client->set_decompress(false);  // an answer is a few letters
  return client;
}

// Seconds alone; a date would depend on two clocks.
std::optional<absl::Duration> RetryAfter(const httplib::Response& response) {
  int64_t seconds = 0;
  if (!absl::SimpleAtoi(response.get_header_value("Retry-After"), &seconds) || seconds < 0) {
    return std::nullopt;
  }
  return absl::Seconds(seconds);
}

}  // namespace

class OtlpClient::Impl {
 public:
  explicit Impl(OtlpClientOptions options)
      : options_(std::move(options)), http_(MakeHttpClient(options_)) {}

  OtlpReply Post(const std::string& json) {
    OtlpReply reply;
    httplib::Request request;
    request.method = "POST";
    request.path = options_.endpoint.path;
    request.set_header("Content-Type", "application/json");
    request.set_header("User-Agent", "penstock");
    if (!options_.token_file.empty()) {
      const absl::StatusOr<std::string> token = ReadToken(options_.token_file);
      if (!token.ok()) {
        reply.status = token.status();
        return reply;
      }
      request.set_header("Authorization", "Bearer " + *token);
    }
    request.body = json;
    std::optional<absl::Time> deadline;
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      if (!deadline.has_value()) deadline = absl::Now() + kTimeout;
      reply.body.append(data, std::min(size, kBodyBytesMax - reply.body.size()));
      return reply.body.size() < kBodyBytesMax && absl::Now() < *deadline;
    };
    request.response_handler = [&](const httplib::Response& response) {
      reply.http_status = response.status;
      reply.retry_after = RetryAfter(response);
      return true;
    };
    const httplib::Result result = http_->send(request);
    // An answer whose body was cut off is an answer.
    if (!result && reply.http_status == 0) {
      reply.status = absl::UnavailableError(
          absl::StrCat(options_.endpoint.ToString(), ": ", httplib::to_string(result.error())));
    } else if (result) {
      reply.http_status = result->status;
      reply.retry_after = RetryAfter(*result);
    }
    return reply;
  }

  void Cancel() { http_->stop(); }

 private:
  const OtlpClientOptions options_;
  const std::unique_ptr<httplib::ClientImpl> http_;
};

absl::StatusOr<std::unique_ptr<OtlpClient>> OtlpClient::Make(OtlpClientOptions options) {
  if (!options.token_file.empty()) {
    if (!options.endpoint.encrypted && !options.endpoint.address.IsLoopback()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a token for ", options.endpoint.ToString(),
                       " would be read by everybody on the way there; use https://"));
    }
    PENSTOCK_RETURN_IF_ERROR(ReadToken(options.token_file).status());
  }
  if (!options.ca_file.empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(CheckAuthorities(options.ca_file), "authorities of the collector"));
  }
  return std::unique_ptr<OtlpClient>(new OtlpClient(std::make_unique<Impl>(std::move(options))));
}

OtlpClient::OtlpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OtlpClient::~OtlpClient() = default;
OtlpReply OtlpClient::Post(const std::string& json) { return impl_->Post(json); }
void OtlpClient::Cancel() { impl_->Cancel(); }

}  // namespace penstock
