// The coordinator's service for workers without a checkpoint disk (checkpoint_files.proto) as a table of handlers. They wait for
// the disk, on the lane of files (Callers::kData): no job, and no other call, waits for them.
#pragma once

#include "base/files.h"
#include "services/rpc/server.h"

namespace penstock {

// Adds CheckpointFiles to `server`. `files`: what workers may read and write (CheckpointParts); null if this coordinator has
// no directory for checkpoints, so that all calls are refused; outlives the server.
void AddCheckpointFilesService(RpcServer& server, Files* files);

}  // namespace penstock
