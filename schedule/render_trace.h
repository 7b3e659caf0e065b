// Timelines in the Chrome trace event format, for ui.perfetto.dev and chrome://tracing.
//
// A process for each worker of each timeline ("worker 0"; of several timelines "predicted: worker 0"), a thread for
// each lane. Spans have the names of their actions, waiting spans say for what; arrows follow each activation and
// gradient from stage to stage. A title is a mark over all of it, at its beginning.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "schedule/drawn_timeline.h"

namespace penstock {

// `title`: quotes, backslashes and control characters are left out of it, and of names; empty: no mark.
std::string RenderTrace(absl::Span<const DrawnTimeline> drawn, const std::string& title = "");
std::string RenderTrace(const Timeline& timeline, const std::string& title = "");

}  // namespace penstock
