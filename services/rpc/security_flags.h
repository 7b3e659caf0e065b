// The flags of every program that say how it is secured:
//
//   --certificates DIR (PENSTOCK_CERTIFICATES)   mutual TLS with the credentials in DIR
//   --insecure                                   plain text, at addresses of this machine alone
//   --insecure-network                           plain text at any address
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "services/rpc/address.h"
#include "services/rpc/transport_security.h"

namespace penstock {

struct SecurityFlags {
  std::string certificates;  // directory; empty: none
  bool insecure = false;
  bool insecure_network = false;
};

void AddSecurityFlags(CLI::App& app, SecurityFlags& flags);

// `addresses`: where the program listens and whom it calls.
// Errors: InvalidArgument (neither certificates nor plain text asked for, or both; plain text at an address that others
// can reach), those of TransportSecurity::Tls.
absl::StatusOr<TransportSecurity> MakeTransportSecurity(const SecurityFlags& flags,
                                                        absl::Span<const HostPort> addresses,
                                                        absl::Time now);

// Returns a warning for the operator of a server: that everything is plain text, or that its key is open to
// others. Nothing if all is well.
std::optional<std::string> WarningOf(const TransportSecurity& security);

}  // namespace penstock
