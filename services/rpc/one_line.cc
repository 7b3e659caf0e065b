#include "services/rpc/one_line.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"

namespace penstock {

std::string OneLine(absl::string_view text) {
  constexpr size_t kBytesMax = 4096;
  std::string line;
  for (const char c : CleanUtf8(text, kBytesMax)) {
    if (c == '\n') {
      absl::StrAppend(&line, "\\n");
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&line, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      line.push_back(c);
    }
  }
  return line;
}

std::string LogLine(absl::Time time, char level, absl::string_view name, absl::string_view text) {
  return absl::StrFormat("%s %c %s: %s\n",
                         absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", time, absl::UTCTimeZone()),
                         level, name, OneLine(text));
}

}  // namespace penstock
