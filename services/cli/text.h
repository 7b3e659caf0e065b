// How numbers look to people. JSON output never uses these.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

std::string FormatDuration(double seconds);  // "85 ms", "12.3 s", "3m 20s", "2h 05m"
std::string FormatCount(double count);       // "950", "12.3 k", "4.56 M"
std::string FormatBytes(int64_t bytes);      // "950 B", "12.3 KiB", "4.56 GiB"
std::string FormatPercent(double ratio);     // 0.123 is "12.3 %"
std::string FormatFixed(double value, int decimals);

// A moment in local time, "2026-07-01 14:03:05"; "-" for 0 (it has not come).
std::string FormatUnixMs(int64_t unix_ms);

}  // namespace penstock
