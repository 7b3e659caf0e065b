#include "schedule/nice_time.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace penstock {

std::string NiceTime(int64_t ns, TimeUnit unit) {
  const auto value = static_cast<double>(ns);
  if (unit == TimeUnit::kNone) {
    const double units = value / 1e9;
    return units < 1e4 ? absl::StrFormat("%.4g", units) : absl::StrFormat("%.0f", units);
  }
  if (ns < 1'000) return absl::StrFormat("%d ns", ns);
  if (ns < 1'000'000) return absl::StrFormat("%.4g µs", value / 1e3);
  if (ns < 1'000'000'000) return absl::StrFormat("%.4g ms", value / 1e6);
  if (ns < 10'000'000'000'000) return absl::StrFormat("%.4g s", value / 1e9);
  return absl::StrFormat("%.0f s", value / 1e9);
}

int64_t NiceTickNs(int64_t length_ns, int64_t ticks) {
  const int64_t distance_max = length_ns / std::max<int64_t>(1, ticks);
  int64_t power = 1;
  while (power <= distance_max / 10) power *= 10;
  for (const int64_t factor : {5, 2}) {
    if (factor * power <= distance_max) return factor * power;
  }
  return power;
}

}  // namespace penstock
