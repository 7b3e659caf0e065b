#include "services/cli/text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace penstock {
namespace {

// Three significant digits: 1.23, 12.3, 123.
std::string ThreeDigits(double value) {
  const double magnitude = std::fabs(value);
  return FormatFixed(value, magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0);
}

}  // namespace

std::string FormatFixed(double value, int decimals) {
  return absl::StrFormat("%.*f", decimals, value);
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return absl::StrFormat("%dm %02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh %02dm", whole / 3600, whole % 3600 / 60);
}

std::string FormatCount(double count) {
  if (count < 999.5) return absl::StrFormat("%.0f", count);
  for (const char* unit : {" k", " M", " G"}) {
    count /= 1e3;
    if (count < 999.5) return absl::StrCat(ThreeDigits(count), unit);
  }
  return absl::StrCat(ThreeDigits(count / 1e3), " T");
}

std::string FormatBytes(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  for (const char* unit : {" KiB", " MiB", " GiB"}) {
    value /= 1024;
    if (value < 1023.5) return absl::StrCat(ThreeDigits(value), unit);
  }
  return absl::StrCat(ThreeDigits(value / 1024), " TiB");
}

std::string FormatPercent(double ratio) { return absl::StrFormat("%.1f %%", ratio * 100); }

std::string FormatUnixMs(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

}  // namespace penstock
