// A plan of a job as text for people and as JSON.
//
// Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "planner/job/planned_job.h"

namespace penstock {

// A table of the best candidate of each method, or of all; what cannot run and why; what is fastest and what is
// smallest; and the race.
std::string JobPlanText(const PlannedJob& planned, bool shows_all);

// Why nothing of the plan can run, and what would do if memory alone is missing: "no candidate can run on these
// workers; 1f1b, 2 stages, 8 microbatches would with 1.2 GiB on the worker that needs most".
std::string NothingRunsText(const JobPlan& plan);

nlohmann::ordered_json JobPlanJson(const PlannedJob& planned);

}  // namespace penstock
