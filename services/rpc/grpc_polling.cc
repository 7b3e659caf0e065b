#include "services/rpc/grpc_polling.h"

#include <cstdlib>

namespace penstock {

void PollIdleChannelsOften() {
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*replace=*/0);
}

}  // namespace penstock
