// The coordinator's services as one that does not lead answers them: it refuses each call and names the leader.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "services/rpc/server.h"

namespace penstock {

// Adds WorkerRegistry, JobService, CheckpointFiles and DataService to `server`. `refuse` is called for each call, on any thread, and must not wait; it
// outlives the server, and returns an error (base/leader_note.h).
void AddFollowerServices(RpcServer& server, const std::function<absl::Status()>& refuse);

}  // namespace penstock
