#include "services/tracing/otlp_flags.h"

#include <utility>

#include "base/status.h"

namespace penstock {

void AddOtlpFlags(CLI::App& app, OtlpFlags& flags, bool use_environment, const std::string& help) {
  CLI::Option* url = app.add_option("--otlp", flags.url, help)->type_name("URL");
  if (use_environment) url->envname("OTEL_EXPORTER_OTLP_ENDPOINT");
  app.add_option("--otlp-token-file", flags.token_file,
                 "file with a bearer token for the collector")
      ->type_name("FILE")
      ->needs(url);
  app.add_option("--otlp-ca", flags.ca_file,
                 "file with the authorities that sign the collector's certificate; default: the "
                 "system's")
      ->type_name("FILE")
      ->needs(url);
}

absl::StatusOr<std::unique_ptr<OtlpClient>> MakeOtlpClient(const OtlpFlags& flags) {
  if (flags.url.empty()) return nullptr;
  absl::StatusOr<OtlpEndpoint> endpoint = ParseOtlpUrl(flags.url);
  PENSTOCK_RETURN_IF_ERROR(Annotate(endpoint.status(), "--otlp"));
  return OtlpClient::Make(
      {.endpoint = *std::move(endpoint), .token_file = flags.token_file, .ca_file = flags.ca_file});
}

}  // namespace penstock
