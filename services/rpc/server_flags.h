// The flags that both programs of a cluster have because they are servers: where they listen, what else they answer,
// how they are secured (security_flags.h), and how much they log.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/rpc/address.h"
#include "services/rpc/security_flags.h"
#include "services/rpc/transport_security.h"

namespace penstock {

struct ServerFlags {
  HostPort listen;
  std::optional<HostPort> metrics;  // none: off
  std::string metrics_token_file;   // empty: none
  std::optional<HostPort> health;   // none: off
  bool reflection = false;
  SecurityFlags security;
  std::string log_level = "info";
};

struct ServerDefaults {
  std::string listen;        // as on the command line
  std::string metrics;       // HOST:PORT or off
  std::string metrics_help;  // what is answered there
};

// Declares them. The returned function reads the addresses once the command line is parsed, into `flags`, which must
// live until then. Errors of it: InvalidArgument naming the flag.
std::function<absl::Status()> AddServerFlags(CLI::App& app, ServerFlags& flags,
                                             const ServerDefaults& defaults);

// Works like MakeTransportSecurity of security_flags.h, with all that the flags name and `others`.
absl::StatusOr<TransportSecurity> MakeTransportSecurity(const ServerFlags& flags,
                                                        std::vector<HostPort> others);

}  // namespace penstock
