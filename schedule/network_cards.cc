#include "schedule/network_cards.h"

#include <algorithm>
#include <cmath>

namespace penstock {

int64_t NetworkCards::TimeOf(double bytes) const {
  return std::llround(bytes / bytes_per_second_ * 1e9);
}

int64_t NetworkCards::Leave(WorkerId from, double bytes, int64_t at_ns) {
  int64_t& free_ns = out_free_ns_[from.value];
  const int64_t begin_ns = std::max(free_ns, at_ns);
  free_ns = begin_ns + TimeOf(bytes);
  return begin_ns;
}

int64_t NetworkCards::Arrive(WorkerId to, double bytes, int64_t left_ns) {
  std::deque<Interval>& busy = in_busy_[to.value];
  int64_t rest_ns = TimeOf(bytes);
  if (rest_ns == 0) return left_ns;
  // The message fills gaps, which join the intervals around them.
  const auto first =
      std::lower_bound(busy.begin(), busy.end(), left_ns,
                       [](const Interval& interval, int64_t at) { return interval.end_ns < at; });
  Interval joined = {.begin_ns = left_ns, .end_ns = left_ns};
  auto next = first;
  for (; next != busy.end(); ++next) {
    const int64_t gap_ns = std::max<int64_t>(0, next->begin_ns - joined.end_ns);
    if (gap_ns >= rest_ns) break;
    rest_ns -= gap_ns;
    joined = {.begin_ns = std::min(joined.begin_ns, next->begin_ns), .end_ns = next->end_ns};
  }
  joined.end_ns += rest_ns;
  busy.insert(busy.erase(first, next), joined);
  if (busy.size() > kBusyMax) busy.pop_front();
  return joined.end_ns;
}

}  // namespace penstock
