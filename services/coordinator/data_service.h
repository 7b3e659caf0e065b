// The coordinator's service for files (data.proto) as a table of handlers. They wait for the disk, on a lane of their own
// (Callers::kData): no job, and no other call, waits for them.
#pragma once

#include "data/digest_store.h"
#include "services/coordinator/audited.h"
#include "services/rpc/server.h"

namespace penstock {

// Adds DataService to `server`. `store`: null if this coordinator keeps no files, so that all calls are refused; outlives
// the server. `audit`: records which files became usable, and which were removed.
void AddDataService(RpcServer& server, DigestStore* store, const Auditor& audit);

}  // namespace penstock
