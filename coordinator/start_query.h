// The query that a job makes of its checkpoints: the coordinator asks it when it starts a job, and the command line
// before it starts anything.
//
// Pure functions. REQUIRES, of both: `job` is `spec`, resolved.
#pragma once

#include "checkpoint/start.h"
#include "job/fingerprint.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

StartQuery StartQueryOf(const v1::JobSpec& spec, const ResolvedJob& job);

}  // namespace penstock
