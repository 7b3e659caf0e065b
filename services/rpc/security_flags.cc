#include "services/rpc/security_flags.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "services/security/credential_directory.h"

namespace penstock {
namespace {

constexpr char kEnvironment[] = "PENSTOCK_CERTIFICATES";

}  // namespace

void AddSecurityFlags(CLI::App& app, SecurityFlags& flags) {
  app.add_option("--certificates", flags.certificates,
                 "Directory with ca.crt, tls.crt and tls.key (`penstock certs init` makes one)")
      ->type_name("DIR")
      ->envname(kEnvironment);
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
  const char* const surroundings = std::getenv(kEnvironment);
  const bool from_environment = surroundings != nullptr && flags.certificates == surroundings;
  if (plaintext && !flags.certificates.empty() && !from_environment) {
    return absl::InvalidArgumentError(
        absl::StrCat("--certificates ", flags.certificates, " and ",
                     flags.insecure_network ? "--insecure-network" : "--insecure",
                     ", which is plain text without certificates: say one of them"));
  }
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

std::optional<std::string> WarningOf(const TransportSecurity& security) {
  if (security.encrypted()) return KeyWarning(security.directory());
  return "everything is plain text and nobody shows a certificate: anybody who reaches the ports "
         "may do anything";
}

}  // namespace penstock
