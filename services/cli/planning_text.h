// Shows, for people, how the coordinator planned a job.
//
// Pure functions.
#pragma once

#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

// The candidates as a table, the chosen one first, and why it was chosen. Empty if nothing was planned.
std::string PlanningText(const v1::JobPlanning& planning);

// The lines of a job file that repeat the run: method, stages, layers, workers. Empty if the job has them.
std::string RepeatText(const v1::GetJobResponse& job);

}  // namespace penstock
