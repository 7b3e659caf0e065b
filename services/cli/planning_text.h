// Shows, for people, how the coordinator planned a job.
//
// Pure functions.
#pragma once

#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

// The candidates as a table, the chosen one first, and why it was chosen. Empty if nothing was planned.
std::string PlanningText(const v1::JobPlanning& planning);

// The lines of a job file that repeat the run: method, stages, layers, workers. Empty if the job has them. An order that
// was searched for them is in `order_file`, once `order_command` has written it.
std::string RepeatText(const v1::GetJobResponse& job, const std::string& order_file,
                       const std::string& order_command);

}  // namespace penstock
