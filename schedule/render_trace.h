// A timeline in the Chrome trace event format, for ui.perfetto.dev and chrome://tracing.
//
// A process for each worker, a thread for each lane. Spans have the names of their actions, waiting
// spans say for what; arrows follow each activation and gradient from stage to stage.
#pragma once

#include <string>

#include "schedule/timeline.h"

namespace penstock {

std::string RenderTrace(const Timeline& timeline);

}  // namespace penstock
