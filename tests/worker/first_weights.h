// The weights that a job's whole model starts with, for tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/stage.h"
#include "penstock/v1/job.pb.h"
#include "tests/support/memory_files.h"

namespace penstock {

// By the names of parameters and buffers, through LoadFirstWeights.
absl::StatusOr<std::map<std::string, NamedArray>> LoadAllFirstWeights(const v1::JobSpec& spec,
                                                                      MemoryFiles& files);

// DigestPretrained of the job. REQUIRES: the job is one that can be resolved.
absl::StatusOr<std::vector<std::string>> DigestsOfPretrained(const v1::JobSpec& spec,
                                                             MemoryFiles& files);

}  // namespace penstock
