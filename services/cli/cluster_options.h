// ClusterOptions: the flags of commands that start a cluster on this machine.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "services/cli/train_job.h"

namespace penstock {

struct ClusterOptions {
  std::string device = "auto";  // of each worker (compute/device.h)
  std::string emulate_path;     // times of a device that each worker emulates; empty: none
};

// Declares --workers and --data-root, which are the job's, --device and --emulate. Returns --emulate.
CLI::Option* AddClusterOptions(CLI::App& app, TrainJobOptions& job, ClusterOptions& cluster);

// A bad file should be found before the work. Errors: those of ReadDeviceTimes.
absl::Status CheckClusterOptions(const ClusterOptions& cluster);

}  // namespace penstock
