#include "coordinator/worker_state.h"

namespace penstock {

WorkerState StateOf(const v1::WorkerSummary& worker) {
  if (!worker.alive()) return WorkerState::kLost;
  if (!worker.unusable_reason().empty()) return WorkerState::kStuck;
  if (worker.leaving()) return WorkerState::kLeaving;
  return worker.job_id().empty() ? WorkerState::kFree : WorkerState::kBusy;
}

std::string WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kFree:
      return "free";
    case WorkerState::kBusy:
      return "busy";
    case WorkerState::kLeaving:
      return "leaving";
    case WorkerState::kStuck:
      return "stuck";
    case WorkerState::kLost:
      return "lost";
  }
  return "";
}

}  // namespace penstock
