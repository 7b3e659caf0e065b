// The flags of programs that send spans to a collector:
//
//   --otlp URL (OTEL_EXPORTER_OTLP_ENDPOINT)   where it takes OTLP over HTTP
//   --otlp-token-file FILE                     with a bearer token for it
//   --otlp-ca FILE                             who signs its certificate
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/tracing/otlp_client.h"

namespace penstock {

struct OtlpFlags {
  std::string url;  // empty: none
  std::string token_file;
  std::string ca_file;
};

// `use_environment`: the variable is the default of --otlp. `help`: of --otlp.
void AddOtlpFlags(CLI::App& app, OtlpFlags& flags, bool use_environment, const std::string& help);

// Null if no collector is named. Errors: InvalidArgument naming the flag, those of OtlpClient::Make.
absl::StatusOr<std::unique_ptr<OtlpClient>> MakeOtlpClient(const OtlpFlags& flags);

}  // namespace penstock
