// A job's public state: whether it is an end, its name, and how far the job is.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

// Returns whether the job has ended, for better or worse.
bool IsTerminal(v1::JobState state);
// "queued", "running", ...
std::string JobStateName(v1::JobState state);
// Returns whether a cut of the job is saved, so that it can go on from there. A profile has none.
bool IsSaved(const v1::GetJobResponse& job);
// Returns how much of the job is done, 0 to 100, rounded down; nothing for a profile that does not know its total yet.
std::optional<int> ProgressPercentage(const v1::JobSummary& job);

}  // namespace penstock
