// WorkerControl over gRPC: one line per method, each forwarding to the RunHost.
#pragma once

#include "base/clock.h"
#include "services/rpc/server.h"
#include "services/worker/run_host.h"

namespace penstock {

// Adds the service to `server`. REQUIRES: the server is not started; `host` and `clock` outlive it.
void AddWorkerControl(RpcServer& server, RunHost& host, Clock& clock);

}  // namespace penstock
