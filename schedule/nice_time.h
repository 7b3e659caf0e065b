// Times for people: "1.25 ms" instead of 1250000, and round numbers for the ticks of an axis.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

// Says how 10^9 ns of a timeline read: as a second, or as 1 where times have no unit.
enum class TimeUnit { kSeconds, kNone };

// Up to four digits with the fitting unit: ns, µs, ms or s; or none.
std::string NiceTime(int64_t ns, TimeUnit unit = TimeUnit::kSeconds);

// The largest distance of 1, 2 or 5 times a power of ten nanoseconds with at least `ticks` ticks in
// `length_ns`, but at least 1.
int64_t NiceTickNs(int64_t length_ns, int64_t ticks);

}  // namespace penstock
