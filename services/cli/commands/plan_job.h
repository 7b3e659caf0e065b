// penstock plan JOB.yaml: the methods and splits that a job could run with, as a table.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "planner/cluster.h"
#include "services/cli/console.h"
#include "services/cli/job_file.h"

namespace penstock {

struct JobPlanOptions {
  JobFileOptions job;  // without a path no job is planned
  std::vector<std::string> methods;
  bool shows_all = false;
  std::string output_path;
  std::string times_path;
};

// Declares JOB.yaml, which is optional, and what belongs to it.
void AddJobPlanOptions(CLI::App& app, JobPlanOptions& options);

absl::Status RunJobPlan(const JobPlanOptions& options, const std::string& profile_path,
                        Cluster cluster, double budget_s, bool json, Console& console);

}  // namespace penstock
