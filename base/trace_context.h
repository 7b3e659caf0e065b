// TraceContext: which trace something is part of, and under which span, as W3C Trace Context writes it
// (https://www.w3.org/TR/trace-context/, header `traceparent`):
//
//   00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//   version, trace id, id of the parent span, flags (bit 0: sampled)
//
// Plain values; pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

struct TraceContext {
  TraceId trace_id = {};
  SpanId span_id = {};
  bool sampled = true;  // whether the spans below it are wanted

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// The name of the metadata of a call, and of the header of HTTP, that carries one.
inline constexpr char kTraceparentKey[] = "traceparent";
// Longer than any that is read: of a later version there may be fields that this one does not know.
inline constexpr size_t kTraceparentBytesMax = 512;

// Reads version 00, and of later versions what version 00 has, as the standard asks.
// Errors: InvalidArgument that says what is expected.
absl::StatusOr<TraceContext> ParseTraceparent(absl::string_view text);

// Writes version 00, with no flag but `sampled`.
std::string FormatTraceparent(const TraceContext& context);

// Two lower-case hexadecimal digits for each byte.
std::string ToHex(absl::Span<const uint8_t> bytes);

}  // namespace penstock
