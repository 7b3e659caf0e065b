// The part of a job that its checkpoints carry (checkpoint/fingerprint.h): one answer for the
// coordinator that writes them, the workers that load them and the command line that asks first.
//
// A pure function.
#pragma once

#include "checkpoint/fingerprint.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// REQUIRES: `job` is `spec`, resolved.
Fingerprint FingerprintOf(const v1::JobSpec& spec, const ResolvedJob& job);

}  // namespace penstock
