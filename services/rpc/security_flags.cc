#include "services/rpc/security_flags.h"

#include "absl/strings/str_cat.h"

namespace penstock {

void AddSecurityFlags(CLI::App& app, SecurityFlags& flags) {
  app.add_option("--certificates", flags.certificates,
                 "Directory with ca.crt, tls.crt and tls.key (`penstock certs init` makes one)")
      ->type_name("DIR")
      ->envname("PENSTOCK_CERTIFICATES");
  app.add_flag("--insecure", flags.insecure,
               "Plain text without certificates, at addresses of this machine alone");
  app.add_flag("--insecure-network", flags.insecure_network,
               "Plain text without certificates at any address: anybody there can do anything");
}

absl::StatusOr<TransportSecurity> MakeTransportSecurity(const SecurityFlags& flags,
                                                        absl::Span<const HostPort> addresses,
                                                        absl::Time now) {
  const bool plaintext = flags.insecure || flags.insecure_network;
  // A flag says more than the environment, which the directory may come from.
  if (!plaintext && !flags.certificates.empty()) {
    return TransportSecurity::Tls(flags.certificates, now);
  }
  if (!plaintext) {
    return absl::InvalidArgumentError(
        "no certificates: say --certificates DIR (or set PENSTOCK_CERTIFICATES), which `penstock "
        "certs init` makes, "
        "or --insecure for a cluster on this machine alone");
  }
  for (const HostPort& address : addresses) {
    if (flags.insecure_network || address.IsLoopback()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--insecure is for addresses of this machine, and ", address.ToString(),
                     " is not one: use --certificates, or --insecure-network on a network where "
                     "you trust everybody"));
  }
  return TransportSecurity::Plaintext();
}

}  // namespace penstock
