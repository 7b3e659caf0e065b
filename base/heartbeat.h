// How soon a silent worker counts as lost. The coordinator decides by it, and timeouts of connections are chosen by it.
//
// Constants; any thread.
#pragma once

#include <cstdint>

namespace penstock {

// Between two heartbeats of a worker, at least.
inline constexpr int64_t kHeartbeatIntervalMs = 500;
// Of all workers together a coordinator asks for about as many in a second, as long as each has kHeartbeatChecks of them within the timeout.
inline constexpr int64_t kHeartbeatsPerSecond = 1000;
// A worker that was silent for so long is lost.
inline constexpr int64_t kHeartbeatTimeoutMs = 3000;
// The coordinator looks at least this many times within that timeout.
inline constexpr int64_t kHeartbeatChecks = 4;
// The latest moment, counted from a worker's last heartbeat, at which it is known to be lost.
inline constexpr int64_t kHeartbeatLostMs =
    kHeartbeatTimeoutMs + kHeartbeatTimeoutMs / kHeartbeatChecks;

}  // namespace penstock
