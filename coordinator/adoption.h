// Adoption: a coordinator that was restarted goes on with the attempts under way, whose workers have trained on meanwhile.
//
// What it needs is in the job's record (RunUnderWay), as of the last time that the job was saved. Workers keep the events
// that came later, because the coordinator says up to which event its store has all (ReportRunResponse.stored_sequence), and
// report them again. So what the new process knows of the attempt in the end is what the old one knew, and no step is lost
// or done again.
//
// Pure functions, and the phase in which the workers are waited for (Adopt in training_phases.h).
#pragma once

#include <vector>

#include "checkpoint/start.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"

namespace penstock {

v1::RunStart RunStartOf(const FoundStart& start);
FoundStart FoundStartOf(const v1::RunStart& start);

// Returns whether the attempt in the record of an earlier process can be gone on with: it trained, nothing had gone wrong, and
// this build plans it in the same way. REQUIRES: `job` is the record's spec, resolved.
bool CanBeAdopted(const v1::GetJobResponse& record, const ResolvedJob& job);

// Returns the workers of the attempt, as they were offered.
std::vector<WorkerOffer> OffersOf(const v1::RunUnderWay& run);

}  // namespace penstock
