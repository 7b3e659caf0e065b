// WorkerControl over gRPC: one line per method, each forwarding to the RunHost.
#pragma once

#include "base/clock.h"
#include "services/rpc/server.h"
#include "services/worker/run_host.h"
#include "services/worker/term_fence.h"

namespace penstock {

// Adds the service to `server`. REQUIRES: the server is not started; `host`, `terms` and `clock` outlive it.
void AddWorkerControl(RpcServer& server, RunHost& host, const TermFence& terms, Clock& clock);

}  // namespace penstock
