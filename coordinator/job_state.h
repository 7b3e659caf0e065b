// A job's public state: whether it is an end, and its name.
//
// Pure functions.
#pragma once

#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

// Whether the job has ended, for better or worse.
bool IsTerminal(v1::JobState state);
// "queued", "running", ...
std::string JobStateName(v1::JobState state);

}  // namespace penstock
