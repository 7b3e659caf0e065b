#include "schedule/timeline.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace penstock {

absl::string_view LaneName(Lane lane) {
  constexpr std::array<absl::string_view, kLanes> kNames = {"compute", "collective", "send",
                                                            "receive", "wait",       "transfer"};
  return kNames[static_cast<int>(lane)];
}

absl::string_view WaitName(Wait wait) {
  constexpr std::array<absl::string_view, kWaits> kNames = {"none", "input", "credit", "collective",
                                                            "data"};
  return kNames[static_cast<int>(wait)];
}

int64_t Timeline::start_ns() const {
  if (spans.empty()) return 0;
  return std::min_element(spans.begin(), spans.end(),
                          [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; })
      ->start_ns;
}

int64_t Timeline::end_ns() const {
  if (spans.empty()) return 0;
  return std::max_element(spans.begin(), spans.end(),
                          [](const Span& a, const Span& b) { return a.end_ns < b.end_ns; })
      ->end_ns;
}

absl::Status CheckTimeline(const Timeline& timeline) {
  constexpr int32_t kWorkersMax = 1 << 16;
  if (timeline.workers < 0 || timeline.workers > kWorkersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a timeline may have 0 to ", kWorkersMax, " workers, got ", timeline.workers));
  }
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    const Span& span = timeline.spans[i];
    const bool known = span.worker.value >= 0 && span.worker.value < timeline.workers &&
                       static_cast<int>(span.lane) < kLanes &&
                       static_cast<int>(span.wait) < kWaits &&
                       static_cast<int>(span.action.op) < kOps && span.action.index >= 0 &&
                       span.action.microbatch >= 0;
    const bool has_cause = span.wait != Wait::kNone;
    if (known && has_cause == (span.lane == Lane::kWait) && span.end_ns >= span.start_ns) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "span ", i, " of a timeline of ", timeline.workers, " workers is not valid: worker ",
        span.worker.value, ", lane ", static_cast<int>(span.lane), ", wait ",
        static_cast<int>(span.wait), ", operation ", static_cast<int>(span.action.op), ", from ",
        span.start_ns, " to ", span.end_ns, " ns"));
  }
  return absl::OkStatus();
}

int64_t TimeShares::waiting_ns() const {
  return std::accumulate(waiting_ns_.begin(), waiting_ns_.end(), int64_t{0});
}

std::vector<TimeShares> SharesOf(const Timeline& timeline) {
  std::vector<TimeShares> shares(timeline.workers);
  for (const Span& span : timeline.spans) shares[span.worker.value].Add(span);
  return shares;
}

}  // namespace penstock
