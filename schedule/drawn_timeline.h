// DrawnTimeline: a timeline as one group of rows in a picture, which may have several under each other on one axis
// of time: measured and predicted.
//
// A plain value.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct DrawnTimeline {
  const Timeline* timeline = nullptr;  // not null; outlives the picture's making
  std::string name;  // "measured", to tell groups apart; may be empty where there is one
  std::string note;  // what is said of it beside its name
  std::vector<std::string> workers;  // their names; those without one are "worker N"
  // Says which stage feeds which; null: each stage the one with the next number. Outlives the picture's making.
  const Topology* topology = nullptr;
};

// "worker-a", "worker 0".
std::string RowName(const DrawnTimeline& drawn, int32_t worker);
// The letters of the longest one, of all of them; 0 without workers.
size_t RowNameLength(absl::Span<const DrawnTimeline> drawn);

// The window of all of them together; both 0 without spans.
struct DrawnWindow {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t length_ns() const { return end_ns - start_ns; }
};
DrawnWindow WindowOf(absl::Span<const DrawnTimeline> drawn);

}  // namespace penstock
