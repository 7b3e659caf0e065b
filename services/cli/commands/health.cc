// penstock health: whether a coordinator or a worker serves, for the health checks of containers.
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "services/cli/commands/commands.h"
#include "services/rpc/address.h"
#include "services/rpc/health_check.h"

namespace penstock {
namespace {

struct HealthOptions {
  std::string address;
  double timeout_seconds = 3;
  std::string part;  // empty: the whole
};

absl::Status RunHealth(const HealthOptions& options) {
  const absl::StatusOr<HostPort> address = ParseHostPort(options.address);
  if (!address.ok()) return Annotate(address.status(), "ADDRESS");
  return CheckHealth(*address, absl::Seconds(options.timeout_seconds), options.part);
}

}  // namespace

CommandRunner DeclareHealth(CLI::App& app) {
  const auto options = std::make_shared<HealthOptions>();
  app.add_option("address", options->address, "HOST:PORT of a health service")
      ->required()
      ->type_name("ADDRESS");
  app.add_option("--timeout", options->timeout_seconds, "Longest wait for an answer")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--part", options->part, "Ask for this part of it instead: penstock.member")
      ->type_name("NAME");
  return [options](Console&) { return RunHealth(*options); };
}

}  // namespace penstock
