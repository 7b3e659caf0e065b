#include "services/rpc/server_flags.h"

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/status.h"

namespace penstock {
namespace {

// The addresses as the command line has them.
struct Addresses {
  std::string listen;
  std::string metrics;
  std::string health = "off";
};

absl::Status ReadAddresses(const Addresses& text, ServerFlags& flags) {
  const auto listen = ParseHostPort(text.listen);
  const auto metrics = ParseHostPortOrOff(text.metrics);
  const auto health = ParseHostPortOrOff(text.health);
  PENSTOCK_RETURN_IF_ERROR(Annotate(listen.status(), "--listen"));
  PENSTOCK_RETURN_IF_ERROR(Annotate(metrics.status(), "--metrics"));
  PENSTOCK_RETURN_IF_ERROR(Annotate(health.status(), "--health"));
  flags.listen = *listen;
  flags.metrics = *metrics;
  flags.health = *health;
  return absl::OkStatus();
}

}  // namespace

std::function<absl::Status()> AddServerFlags(CLI::App& app, ServerFlags& flags,
                                             const ServerDefaults& defaults) {
  const auto text = std::make_shared<Addresses>(Addresses{defaults.listen, defaults.metrics});
  app.add_option("--listen", text->listen, "HOST:PORT to listen on; port 0 takes any free one");
  app.add_option("--metrics", text->metrics, defaults.metrics_help);
  app.add_option("--metrics-token-file", flags.metrics_token_file,
                 "file with a token that may be shown there instead of a certificate")
      ->type_name("FILE");
  app.add_option("--health", text->health,
                 "HOST:PORT where the gRPC health service also answers, in plain text, for probes");
  AddSecurityFlags(app, flags.security);
  app.add_flag("--reflection", flags.reflection, "answer gRPC reflection (for grpcurl)");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  return [text, &flags] { return ReadAddresses(*text, flags); };
}

absl::StatusOr<TransportSecurity> MakeTransportSecurity(const ServerFlags& flags,
                                                        std::vector<HostPort> others) {
  std::vector<HostPort> addresses = std::move(others);
  addresses.push_back(flags.listen);
  if (flags.metrics.has_value()) addresses.push_back(*flags.metrics);
  return MakeTransportSecurity(flags.security, addresses, absl::Now());
}

}  // namespace penstock
