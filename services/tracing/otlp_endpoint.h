// OtlpEndpoint: where a collector takes spans, and how one is asked to.
//
// Plain values and pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/rpc/address.h"

namespace penstock {

struct OtlpEndpoint {
  bool encrypted = false;  // https
  HostPort address;
  std::string path;  // "/v1/traces"
  std::string ToString() const;
};

// `url`: http:// or https://, the base URL of a collector's OTLP over HTTP (then /v1/traces is appended), or that of its
// traces, which ends so. Errors: InvalidArgument that says what is expected.
absl::StatusOr<OtlpEndpoint> ParseOtlpUrl(absl::string_view url);

}  // namespace penstock
