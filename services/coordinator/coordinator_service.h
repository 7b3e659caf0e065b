// The coordinator's services for workers and users as tables of handlers: each asks the event loop and translates. (For files:
// data_service.h and checkpoint_files_service.h.)
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/files.h"
#include "data/digest_store.h"
#include "services/coordinator/audited.h"
#include "services/coordinator/checkpoint_keeper.h"
#include "services/coordinator/event_loop.h"
#include "services/coordinator/job_watchers.h"
#include "services/coordinator/timeline_gatherer.h"
#include "services/rpc/server.h"

namespace penstock {

// The parts that the handlers use; all of them outlive the server.
struct CoordinatorParts {
  EventLoop& loop;
  JobWatchers& watchers;
  TimelineGatherer& timelines;
  CheckpointKeeper& keeper;
  // Records submissions and cancellations, before and after (AuditLog::Record): what it cannot write down is not done.
  // Null: nobody.
  Auditor audit;
  // Called for each worker that was refused because it speaks another version of the protocol.
  std::function<void(const absl::Status&, const CallInfo&)> on_other_version;
  // Workers must be reached at addresses of this machine: in plain text, which others shall not read.
  bool local_workers_only = false;
  // The files that users put; null: this coordinator keeps none.
  DigestStore* data = nullptr;
  // The checkpoints of workers that have no disk for them; null: they are refused.
  Files* checkpoint_files = nullptr;
};

// Adds WorkerRegistry, JobService, DataService and CheckpointFiles to `server`.
void AddCoordinatorServices(RpcServer& server, const CoordinatorParts& parts);

}  // namespace penstock
