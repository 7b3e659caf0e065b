// SpanCounts: what became of the spans that a program exports, for metrics.
//
// A plain value.
#pragma once

#include <cstdint>

namespace penstock {

// All zero where none are exported.
struct SpanCounts {
  int64_t exported = 0;  // spans that a collector has taken
  int64_t dropped = 0;   // spans that none will
  int64_t failed_requests = 0;
};

}  // namespace penstock
