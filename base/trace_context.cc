#include "base/trace_context.h"

#include <algorithm>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

// Where the fields of version 00 begin, and their lengths in letters.
constexpr size_t kTraceAt = 3;
constexpr size_t kSpanAt = 36;
constexpr size_t kFlagsAt = 53;
constexpr size_t kLength = 55;
constexpr uint8_t kSampled = 1;
constexpr uint8_t kForbiddenVersion = 0xff;

std::optional<uint8_t> DigitOf(char letter) {
  if (letter >= '0' && letter <= '9') return static_cast<uint8_t>(letter - '0');
  if (letter >= 'a' && letter <= 'f') return static_cast<uint8_t>(letter - 'a' + 10);
  return std::nullopt;
}

// False unless `text` begins with the lower-case digits of all `bytes`. REQUIRES: it is long enough.
bool ReadHex(absl::string_view text, absl::Span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::optional<uint8_t> high = DigitOf(text[2 * i]);
    const std::optional<uint8_t> low = DigitOf(text[2 * i + 1]);
    if (!high.has_value() || !low.has_value()) return false;
    bytes[i] = static_cast<uint8_t>(*high << 4 | *low);
  }
  return true;
}

bool IsZero(absl::Span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

absl::Status Malformed(absl::string_view text, absl::string_view why) {
  constexpr size_t kShown = 80;
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(text.substr(0, kShown)), "\" ", why,
      "; expected VERSION-TRACE-PARENT-FLAGS of 2, 32, 16 and 2 lower-case hexadecimal "
      "digits, as in 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
}

}  // namespace

absl::StatusOr<TraceContext> ParseTraceparent(absl::string_view text) {
  if (text.size() < kLength || text.size() > kTraceparentBytesMax) {
    return Malformed(text, absl::StrCat("has ", text.size(), " letters"));
  }
  uint8_t version = 0;
  uint8_t flags = 0;
  TraceContext context;
  if (!ReadHex(text, absl::MakeSpan(&version, 1)) || text[kTraceAt - 1] != '-' ||
      !ReadHex(text.substr(kTraceAt), absl::MakeSpan(context.trace_id)) ||
      text[kSpanAt - 1] != '-' || !ReadHex(text.substr(kSpanAt), absl::MakeSpan(context.span_id)) ||
      text[kFlagsAt - 1] != '-' || !ReadHex(text.substr(kFlagsAt), absl::MakeSpan(&flags, 1))) {
    return Malformed(text, "is not of its form");
  }
  if (version == kForbiddenVersion) return Malformed(text, "has the invalid version ff");
  const bool more = text.size() > kLength;
  if (more && (version == 0 || text[kLength] != '-')) {
    return Malformed(text, "goes on after its flags");
  }
  if (IsZero(context.trace_id)) return Malformed(text, "has an invalid trace id of zeros");
  if (IsZero(context.span_id)) return Malformed(text, "has an invalid parent id of zeros");
  context.sampled = (flags & kSampled) != 0;
  return context;
}

std::string FormatTraceparent(const TraceContext& context) {
  return absl::StrCat("00-", ToHex(context.trace_id), "-", ToHex(context.span_id),
                      context.sampled ? "-01" : "-00");
}

std::string ToHex(absl::Span<const uint8_t> bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace penstock
