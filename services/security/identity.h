// Identity: who holds a certificate, and so what he may do (services/rpc/access.h).
//
// It stands in the certificate as its only URI, in the form of SPIFFE:
//
//   spiffe://TRUST_DOMAIN/ROLE[/NAME]
//
// A worker's certificate with a NAME serves the worker of that name alone, one without serves any.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

enum class Role {
  kClient,  // people and scripts that submit jobs
  kWorker,
  kCoordinator,
  kMonitor,  // reads only metrics, health and the status page
};

absl::Span<const Role> AllRoles();
// "client", "worker", "coordinator", "monitor".
const char* RoleName(Role role);
// Errors: InvalidArgument.
absl::StatusOr<Role> ParseRole(absl::string_view text);

struct Identity {
  std::string trust_domain;
  Role role = Role::kClient;
  std::string name;  // empty: of the role as a whole

  std::string ToUri() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

// Errors: InvalidArgument for anything but the form above. Trust domains have the letters a to z, digits, '-'
// and '.'; names those, capitals and '_'; both at most 64 of them.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);
absl::Status CheckIdentity(const Identity& identity);

}  // namespace penstock
