// Formats numbers for people. JSON output never uses these.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

std::string FormatDuration(double seconds);  // "85 ms", "12.3 s", "3m 20s", "2h 05m"
std::string FormatCount(double count);       // "950", "12.3 k", "4.56 M"
std::string FormatBytes(int64_t bytes);      // "950 B", "12.3 KiB", "4.56 GiB"
std::string FormatPercent(double ratio);     // 0.123 is "12.3 %"
// Write `value` with a number of decimals or of significant digits: "2.1e+23" where it would be too long to read,
// "infinite" or "not a number" where it is none.
std::string FormatFixed(double value, int decimals);
std::string FormatDigits(double value, int digits);
std::string FormatLoss(double loss);  // "2.3412"; one that has diverged "2.1e+23"

// A moment as logs have it, in UTC: "2026-07-01T14:03:05Z"; "-" for 0 (it has not come).
std::string FormatUnixMs(int64_t unix_ms);

}  // namespace penstock
