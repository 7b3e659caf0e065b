// The coordinator's two services as tables of handlers: each asks the event loop and translates.
#pragma once

#include <functional>

#include "base/clock.h"
#include "services/coordinator/audit_log.h"
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
  std::function<void(const AuditEntry&, const CallInfo&, AuditLog::Done)> audit;
  // Called for each worker that was refused because it speaks another version of the protocol.
  std::function<void(const absl::Status&, const CallInfo&)> on_other_version;
  // Workers must be reached at addresses of this machine: in plain text, which others shall not read.
  bool local_workers_only = false;
};

// Adds WorkerRegistry and JobService to `server`.
void AddCoordinatorServices(RpcServer& server, const CoordinatorParts& parts);

}  // namespace penstock
