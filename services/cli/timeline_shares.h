// Where the time of a job's workers went, as text and JSON.
//
// Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "results/job_timeline.h"

namespace penstock {

// Where the time of every worker went.
std::string SharesText(const JobTimeline& timeline);
// Returns the keys that docs/cli.md has for `timeline --json`, but for `feedback`.
nlohmann::ordered_json SharesJson(const JobTimeline& timeline);

}  // namespace penstock
