// Spans as OpenTelemetry's protocol has them in JSON: an ExportTraceServiceRequest, which a collector takes by POST
// at /v1/traces (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/tracing/span.h"

namespace penstock {

// Who sends: the attributes of the resource.
struct TraceSender {
  std::string name;      // service.name: "penstock-coordinator"
  std::string version;   // service.version
  std::string instance;  // service.instance.id: tells two of a name apart
};

std::string OtlpJson(const TraceSender& sender, absl::Span<const TraceSpan> spans);

// About how much of it a span is, from above for any text that needs no escaping.
int64_t OtlpBytes(const TraceSpan& span);

// A collector's answer to a request that it took, without all of its spans.
struct OtlpPartialSuccess {
  int64_t rejected_spans = 0;
  std::string message;
};
// Reads an ExportTraceServiceResponse; any other text means that nothing is rejected.
OtlpPartialSuccess ReadOtlpResponse(absl::string_view body);

}  // namespace penstock
