#include "services/etcd/etcd_location.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr absl::string_view kScheme = "etcd://";
constexpr int64_t kPemBytesMax = 1 << 20;

absl::Status Wrong(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\": ", what, "; expected etcd://HOST:PORT,HOST:PORT,... and perhaps /PREFIX"));
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  if (path.empty()) return std::string();
  return RealFiles().Read(path, kPemBytesMax);
}

}  // namespace

std::string EtcdLocation::ToString() const {
  return absl::StrCat(
      kScheme,
      absl::StrJoin(members, ",",
                    [](std::string* out, const HostPort& member) { *out += member.ToString(); }),
      prefix);
}

bool IsEtcdLocation(absl::string_view text) { return absl::StartsWith(text, kScheme); }

absl::StatusOr<EtcdLocation> ParseEtcdLocation(absl::string_view text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kScheme)) return Wrong(text, "does not begin with etcd://");
  EtcdLocation location;
  const size_t slash = rest.find('/');
  if (slash != absl::string_view::npos) {
    const absl::string_view path = rest.substr(slash);
    if (absl::StrContains(path, "//")) return Wrong(text, "the prefix has an empty part");
    const absl::string_view prefix = absl::StripSuffix(path, "/");
    if (!prefix.empty()) location.prefix = std::string(prefix);
    rest = rest.substr(0, slash);
  }
  for (const absl::string_view member : absl::StrSplit(rest, ',')) {
    absl::StatusOr<HostPort> address = ParseHostPort(member);
    if (!address.ok() || address->port == 0 || address->host.empty()) {
      return Wrong(text, absl::StrCat("\"", member, "\" is no address of a member"));
    }
    location.members.push_back(*std::move(address));
  }
  return location;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeEtcdCredentials(
    const EtcdTls& tls, const EtcdLocation& location, bool plaintext_allowed) {
  if (tls.certificate.empty() != tls.key.empty() ||
      (tls.authority.empty() && !tls.certificate.empty())) {
    return absl::InvalidArgumentError(
        "TLS to etcd: name the authority of its members (--etcd-ca), and to show a certificate "
        "both "
        "--etcd-cert and --etcd-key");
  }
  if (tls.authority.empty()) {
    const auto far = std::find_if(location.members.begin(), location.members.end(),
                                  [](const HostPort& member) { return !member.IsLoopback(); });
    if (far != location.members.end() && !plaintext_allowed) {
      return absl::InvalidArgumentError(
          absl::StrCat("etcd member ", far->ToString(),
                       " is on another machine, where others could read and change the state of "
                       "all jobs in plain "
                       "text; name the authority of its certificates with --etcd-ca, or say "
                       "--insecure-network"));
    }
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions options;
  PENSTOCK_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(tls.authority));
  PENSTOCK_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem(tls.certificate));
  PENSTOCK_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem(tls.key));
  return grpc::SslCredentials(options);
}

}  // namespace penstock
