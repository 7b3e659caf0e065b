// A timeline in the Chrome trace event format, for ui.perfetto.dev and chrome://tracing.
//
// A process for each worker, a thread for each lane. Spans have the names of their actions, waiting
// spans say for what; arrows follow each activation and gradient from stage to stage. A title is a mark over all of it,
// at its beginning.
#pragma once

#include <string>

#include "schedule/timeline.h"

namespace penstock {

// `title`: quotes, backslashes and control characters are left out of it; empty: no mark.
std::string RenderTrace(const Timeline& timeline, const std::string& title = "");

}  // namespace penstock
