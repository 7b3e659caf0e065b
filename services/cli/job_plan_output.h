// A plan of a job as text for people and as JSON.
//
// Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "services/cli/job_planning.h"

namespace penstock {

// A table of the best candidate of each method, or of all; what cannot run and why; what is fastest and what is
// smallest; and the race.
std::string JobPlanText(const PlannedJob& planned, bool shows_all);

nlohmann::ordered_json JobPlanJson(const PlannedJob& planned);

}  // namespace penstock
