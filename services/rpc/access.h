// Who may call what: one table for all methods of all servers. What does not stand in it nobody may call, so
// a new method needs a line here (a test compares it with the services' descriptions).
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

// Whether `caller` may speak for the worker `name`: a certificate that names a worker is that worker's alone.
// Errors: PermissionDenied.
absl::Status CheckSpeaksFor(const Identity& caller, absl::string_view name);

}  // namespace penstock
