#include "services/security/identity.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr size_t kNameLettersMax = 64;
constexpr Role kRoles[] = {Role::kClient, Role::kWorker, Role::kCoordinator, Role::kMonitor};

bool IsTrustDomain(absl::string_view text) {
  return !text.empty() && text.size() <= kNameLettersMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.';
         });
}

bool IsName(absl::string_view text) {
  return text.size() <= kNameLettersMax && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

absl::Span<const Role> AllRoles() { return kRoles; }

const char* RoleName(Role role) {
  switch (role) {
    case Role::kClient:
      return "client";
    case Role::kWorker:
      return "worker";
    case Role::kCoordinator:
      return "coordinator";
    case Role::kMonitor:
      return "monitor";
  }
  return "unknown";
}

absl::StatusOr<Role> ParseRole(absl::string_view text) {
  for (const Role role : kRoles) {
    if (text == RoleName(role)) return role;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("role '", text, "': expected one of client, worker, coordinator and monitor"));
}

std::string Identity::ToUri() const {
  return absl::StrCat("spiffe://", trust_domain, "/", RoleName(role), name.empty() ? "" : "/",
                      name);
}

absl::Status CheckIdentity(const Identity& identity) {
  if (!IsTrustDomain(identity.trust_domain)) {
    return absl::InvalidArgumentError(absl::StrCat("trust domain '", identity.trust_domain,
                                                   "': expected 1 to ", kNameLettersMax,
                                                   " of a to z, 0 to 9, '-' and '.'"));
  }
  if (!IsName(identity.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("name '", identity.name, "' of a certificate: expected at most ",
                     kNameLettersMax, " letters, digits, '-', '.' and '_'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Identity> ParseIdentity(absl::string_view uri) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("identity '", uri, "': expected spiffe://TRUST_DOMAIN/ROLE or .../ROLE/NAME"));
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, "spiffe://")) return bad;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  if (parts.size() < 2 || parts.size() > 3 || (parts.size() == 3 && parts[2].empty())) return bad;
  const absl::StatusOr<Role> role = ParseRole(parts[1]);
  if (!role.ok()) return Annotate(role.status(), bad.message());
  Identity identity = {std::string(parts[0]), *role,
                       parts.size() == 3 ? std::string(parts[2]) : std::string()};
  PENSTOCK_RETURN_IF_ERROR(CheckIdentity(identity));
  return identity;
}

}  // namespace penstock
