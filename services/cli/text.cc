#include "services/cli/text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace penstock {
namespace {

constexpr double kFixedMax = 1e9;  // from here on digits tell nothing more

// Three significant digits: 1.23, 12.3, 123.
std::string ThreeDigits(double value) {
  const double magnitude = std::fabs(value);
  return FormatFixed(value, magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0);
}

}  // namespace

std::string FormatFixed(double value, int decimals) {
  return std::fabs(value) < kFixedMax ? absl::StrFormat("%.*f", decimals, value)
                                      : FormatDigits(value, 2);
}

std::string FormatDigits(double value, int digits) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  return absl::StrFormat("%.*g", digits, value);
}

std::string FormatLoss(double loss) {
  constexpr double kDiverged = 1e4;  // far above that of a model that knows nothing
  return std::fabs(loss) < kDiverged ? FormatFixed(loss, 4) : FormatDigits(loss, 2);
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
  if (!(count >= 999.5)) return FormatFixed(count, 0);
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

std::string FormatPercent(double ratio) { return absl::StrCat(FormatFixed(ratio * 100, 1), " %"); }

std::string FormatUnixMs(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", absl::FromUnixMillis(unix_ms),
                          absl::UTCTimeZone());
}

}  // namespace penstock
