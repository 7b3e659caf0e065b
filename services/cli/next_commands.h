// Suggests the next things to do with a job, as commands to copy.
//
// They name a coordinator and the way to reach it as the user did, but not what the environment says already.
#pragma once

#include <string>

#include "services/cli/coordinator_client.h"

namespace penstock {

// "--coordinator node1:7070 --certificates /etc/penstock", or empty.
std::string FlagsOf(const CoordinatorOptions& options);

// A line for each: watch it, look at it, draw it, end it. `flags`: as of FlagsOf.
std::string NextCommands(const std::string& job_id, const std::string& flags);

// The one that watches it to its end.
std::string FollowCommand(const std::string& job_id, const std::string& flags);

// The one that writes the schedule of its steps to `file`.
std::string ShowOrderCommand(const std::string& job_id, const std::string& file,
                             const std::string& flags);

// Says how to use the model of a job that has trained on this machine or, if none was kept, how to keep the next one.
// `data_root`: where the relative paths of its data start.
std::string ModelCommands(const v1::GetJobResponse& job, const std::string& data_root);

// Returns the line for a user who stops watching a job that goes on.
std::string DetachedText(const std::string& job_id, const std::string& flags);

}  // namespace penstock
