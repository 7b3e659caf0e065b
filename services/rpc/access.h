// Who may call what: one table for all methods of all servers. Nobody may call a method that is not in it,
// so a new method needs a line here (a test compares it with the services' descriptions).
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/security/identity.h"

namespace penstock {

struct AccessRule {
  absl::string_view method;  // "/penstock.v1.JobService/SubmitJob"
  std::vector<Role> callers;
};

absl::Span<const AccessRule> AccessTable();

// Errors: PermissionDenied, saying who may call it.
absl::Status CheckAccess(absl::string_view method, const Identity& caller);

// Checks that `caller` may speak for worker `name`: a certificate that names a worker is its alone.
// Errors: PermissionDenied.
absl::Status CheckSpeaksFor(const Identity& caller, absl::string_view name);

}  // namespace penstock
