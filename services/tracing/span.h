// TraceSpan: something that took time, as OpenTelemetry describes it: part of a trace, below another span.
//
// Plain values. (A timeline's spans, schedule/timeline.h, are something else: thousands a second, with fewer words.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/trace_context.h"

namespace penstock {

using SpanValue = std::variant<std::string, int64_t, double, bool>;

struct SpanAttribute {
  std::string key;
  SpanValue value;
  friend bool operator==(const SpanAttribute&, const SpanAttribute&) = default;
};

// Something that happened at one moment of a span.
struct SpanEvent {
  int64_t unix_ns = 0;
  std::string name;
  friend bool operator==(const SpanEvent&, const SpanEvent&) = default;
};

struct TraceSpan {
  TraceId trace_id = {};
  SpanId id = {};
  std::optional<SpanId> parent;  // none: a trace's first
  std::string name;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  std::vector<SpanAttribute> attributes;
  std::vector<SpanEvent> events;
  int64_t dropped_events = 0;        // that it also has
  std::vector<SpanId> links;         // spans of the same trace that it follows from
  std::optional<std::string> error;  // it failed, and why
  friend bool operator==(const TraceSpan&, const TraceSpan&) = default;
};

}  // namespace penstock
