#include "schedule/drawn_timeline.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace penstock {

std::string RowName(const DrawnTimeline& drawn, int32_t worker) {
  const auto index = static_cast<size_t>(worker);
  const bool named = index < drawn.workers.size() && !drawn.workers[index].empty();
  return named ? drawn.workers[index] : absl::StrCat("worker ", worker);
}

size_t RowNameLength(absl::Span<const DrawnTimeline> drawn) {
  size_t longest = 0;
  for (const DrawnTimeline& one : drawn) {
    for (int32_t worker = 0; worker < one.timeline->workers; ++worker) {
      longest = std::max(longest, RowName(one, worker).size());
    }
  }
  return longest;
}

DrawnWindow WindowOf(absl::Span<const DrawnTimeline> drawn) {
  std::optional<DrawnWindow> window;
  for (const DrawnTimeline& one : drawn) {
    if (one.timeline->spans.empty()) continue;
    const DrawnWindow own = {one.timeline->start_ns(), one.timeline->end_ns()};
    if (!window.has_value()) window = own;
    window->start_ns = std::min(window->start_ns, own.start_ns);
    window->end_ns = std::max(window->end_ns, own.end_ns);
  }
  return window.value_or(DrawnWindow());
}

}  // namespace penstock
