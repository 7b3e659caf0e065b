// A worker's public state: what the command line, the status page and metrics call it.
//
// Pure functions.
#pragma once

#include <array>
#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

enum class WorkerState { kFree, kBusy, kLeaving, kStuck, kLost };

inline constexpr std::array kWorkerStates = {WorkerState::kFree, WorkerState::kBusy,
                                             WorkerState::kLeaving, WorkerState::kStuck,
                                             WorkerState::kLost};

// Of several that fit, the one that says most about why a worker gets no work: lost before stuck before leaving.
WorkerState StateOf(const v1::WorkerSummary& worker);
// "free", "busy", ...
std::string WorkerStateName(WorkerState state);

}  // namespace penstock
