// SentBytes: what each worker of a schedule sends the others.
//
// Pure functions.
#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock {

// By worker, of the whole schedule, collectives included. Of a REDUCE whose messages `traffic` does not tell nothing is
// counted. REQUIRES: the schedule is complete (its messages are in it), and `traffic` is of its topology.
std::vector<double> SentBytesOf(const Schedule& schedule, const Traffic& traffic);

}  // namespace penstock
