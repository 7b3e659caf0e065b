// Timelines as a self-contained SVG picture: a row for each worker, time from left to right; several timelines are
// groups of rows under each other.
//
// Few spans carry the number of their microbatch and a tooltip each; many are drawn as one path for
// each row and colour, so that the file stays small.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "schedule/drawn_timeline.h"
#include "schedule/nice_time.h"

namespace penstock {

struct SvgOptions {
  std::string title = "Timeline";
  std::string subtitle;  // absent: length and busy share of the whole; of several: the length
  int width = 1200;      // in pixels, all of the picture
  TimeUnit unit = TimeUnit::kSeconds;
};

std::string RenderSvg(absl::Span<const DrawnTimeline> drawn, const SvgOptions& options = {});
std::string RenderSvg(const Timeline& timeline, const SvgOptions& options = {});

}  // namespace penstock
