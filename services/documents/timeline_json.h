// A timeline as JSON for the coordinator's page.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "schedule/timeline.h"

namespace penstock {

// {"workers", "columns", "spans"} (docs/status-page.md): each span an array in the order of the columns,
// times in microseconds of the timeline's clock. If there are more than `spans_max`, the latest are kept;
// spans of the transfer lane, which run beside everything else, are left out.
nlohmann::ordered_json TimelineJson(const Timeline& timeline, size_t spans_max);

}  // namespace penstock
