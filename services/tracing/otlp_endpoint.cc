#include "services/tracing/otlp_endpoint.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr absl::string_view kTracesPath = "/v1/traces";
constexpr size_t kUrlBytesMax = 2048;

absl::Status Bad(absl::string_view url, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(url.substr(0, 200)), "\" ", why,
                   "; expected the URL of an OpenTelemetry collector's OTLP over HTTP, as in "
                   "http://127.0.0.1:4318"));
}

// Host and port as a URL has them. Errors: InvalidArgument.
absl::StatusOr<HostPort> ParseAuthority(absl::string_view authority, int default_port) {
  const size_t host_end = authority.find(']');  // IPv6
  const bool has_port = authority.find(':', host_end == absl::string_view::npos ? 0 : host_end) !=
                        absl::string_view::npos;
  PENSTOCK_ASSIGN_OR_RETURN(HostPort address,
                            ParseHostPort(has_port ? std::string(authority)
                                                   : absl::StrCat(authority, ":", default_port)));
  if (address.port == 0 || address.host.empty() ||
      !std::all_of(address.host.begin(), address.host.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':';
      })) {
    return absl::InvalidArgumentError("no host, or no port from 1 to 65535");
  }
  return address;
}

}  // namespace

std::string OtlpEndpoint::ToString() const {
  return absl::StrCat(encrypted ? "https://" : "http://", address.ToString(), path);
}

absl::StatusOr<OtlpEndpoint> ParseOtlpUrl(absl::string_view url) {
  if (url.size() > kUrlBytesMax) return Bad(url, absl::StrCat("has ", url.size(), " letters"));
  absl::string_view rest = url;
  OtlpEndpoint endpoint;
  endpoint.encrypted = absl::ConsumePrefix(&rest, "https://");
  if (!endpoint.encrypted && !absl::ConsumePrefix(&rest, "http://")) {
    return Bad(url, "begins neither with http:// nor with https://");
  }
  if (!std::all_of(rest.begin(), rest.end(), absl::ascii_isgraph)) {
    return Bad(url, "has a blank or another letter that a URL cannot have");
  }
  if (rest.find_first_of("?#") != absl::string_view::npos) {
    return Bad(url, "has a query or a fragment");
  }
  const size_t slash = rest.find('/');
  const absl::string_view authority = rest.substr(0, slash);
  if (authority.find('@') != absl::string_view::npos) {
    return Bad(url, "has a user (a token goes into a file, see --otlp-token-file)");
  }
  const absl::StatusOr<HostPort> address = ParseAuthority(authority, endpoint.encrypted ? 443 : 80);
  if (!address.ok()) return Bad(url, "names no host, or no port from 1 to 65535");
  absl::string_view path = slash == absl::string_view::npos ? "" : rest.substr(slash);
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  endpoint.address = *address;
  endpoint.path =
      absl::EndsWith(path, kTracesPath) ? std::string(path) : absl::StrCat(path, kTracesPath);
  return endpoint;
}

}  // namespace penstock
