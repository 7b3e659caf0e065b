#include "schedule/timeline.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "schedule/schedule.h"

namespace penstock {

absl::string_view LaneName(Lane lane) {
  constexpr std::array<absl::string_view, kLanes> kNames = {
      "compute", "collective", "send", "receive", "wait", "transfer", "offload", "prefetch"};
  return kNames[static_cast<int>(lane)];
}

absl::string_view WaitName(Wait wait) {
  constexpr std::array<absl::string_view, kWaits> kNames = {"none",       "input", "credit",
                                                            "collective", "data",  "host"};
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

namespace {

constexpr int32_t kWorkersMax = 1 << 16;
constexpr int32_t kIndexMax = 1 << 16;  // of stages and groups

// Checks that everything the span names exists.
bool IsKnown(const Span& span, int32_t workers) {
  const Action& action = span.action;
  return span.worker.value >= 0 && span.worker.value < workers &&
         static_cast<int>(span.lane) < kLanes && static_cast<int>(span.wait) < kWaits &&
         (span.wait != Wait::kNone) == (span.lane == Lane::kWait) &&
         static_cast<int>(action.kind) < kActionKinds && action.index >= 0 &&
         action.index < kIndexMax && action.microbatch >= 0 && action.microbatch < kMicrobatchMax;
}

bool HasPossibleTimes(const Span& span) {
  // Halves, so that the difference of any two fits.
  constexpr int64_t kMax = kTimelineNsMax / 2;
  return span.start_ns >= -kMax && span.end_ns <= kMax && span.end_ns >= span.start_ns;
}

}  // namespace

absl::Status CheckTimeline(const Timeline& timeline) {
  if (timeline.workers < 0 || timeline.workers > kWorkersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a timeline may have 0 to ", kWorkersMax, " workers, got ", timeline.workers));
  }
  int64_t left_ns = kTimelineNsMax;  // for the durations that are still to come
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    const Span& span = timeline.spans[i];
    if (IsKnown(span, timeline.workers) && HasPossibleTimes(span) &&
        span.duration_ns() <= left_ns) {
      left_ns -= span.duration_ns();
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "span ", i, " of a timeline of ", timeline.workers, " workers is not valid: worker ",
        span.worker.value, ", lane ", static_cast<int>(span.lane), ", wait ",
        static_cast<int>(span.wait), ", operation ", static_cast<int>(span.action.kind), " of ",
        span.action.index, ", microbatch ", span.action.microbatch, ", from ", span.start_ns,
        " to ", span.end_ns, " ns"));
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
