// What can be done with a job next, as commands to copy.
//
// Those for a job at a coordinator name the coordinator and how it is reached as the user did, but for what the environment says already.
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

// Says how to use the model of a job that has trained on this machine or, if none was kept, how to keep the next one.
std::string ModelCommands(const v1::GetJobResponse& job);

// What is said to somebody who stops watching a job that goes on, in one line.
std::string DetachedText(const std::string& job_id, const std::string& flags);

}  // namespace penstock
