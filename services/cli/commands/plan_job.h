// penstock plan JOB.yaml: the methods and splits that a job could run with, as a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "planner/graph/cluster.h"
#include "services/cli/console.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/job_file.h"

namespace penstock {

struct JobPlanOptions {
  JobFileOptions job;                // without a path no job is planned
  CoordinatorOptions coordinator;    // whose cluster is profiled; empty: there is a file
  std::vector<std::string> methods;  // empty: all
  std::vector<int32_t> stages;       // empty: any number
  bool shows_all = false;
  bool explains = false;
  bool races = false;
  std::optional<double> until_loss;
  int64_t race_steps = 0;     // of the fastest candidate, at most; 0: a quarter of the job's
  double race_seconds = 600;  // of this machine
  std::string output_path;
  std::string times_path;
};

// Declares JOB.yaml, which is optional, and what belongs to it.
void AddJobPlanOptions(CLI::App& app, JobPlanOptions& options);

inline constexpr char kDawnPiperName[] = "dawnpiper";

struct JobPlanInput {
  std::string profile_path;  // empty with a coordinator
  Cluster cluster;           // without workers: that of the profile, which is of one
  std::string planner;       // empty: the job's
  double budget_s = 0;
  std::string svg_path;  // empty: no picture
  bool json = false;
};
absl::Status RunJobPlan(const JobPlanOptions& options, JobPlanInput input, Console& console);

}  // namespace penstock
