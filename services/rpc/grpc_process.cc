#include "services/rpc/grpc_process.h"

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace penstock {

void PrepareProcessForGrpc() {
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*replace=*/0);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace penstock
