// ProbeLinks: latency and bandwidth between every two workers, through the edges that training uses.
//
// All workers of a probe call it together. Each takes the others in ascending order, so that it is in one pair
// at a time and no two wait for each other; pairs without a common worker may be measured at the same time. A
// latency is half of a ping there and back, the median of several; a bandwidth that of a burst of
// messages, less one ping where that is the smaller part of its time. All leave together, when the last pair is
// done: what a worker does next disturbs no measurement.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "compute/buffer_pool.h"
#include "worker/transport.h"

namespace penstock {

struct LinkProbeOptions {
  int self = 0;     // this worker
  int workers = 0;  // that take part
  int pings = 21;
  int64_t message_bytes = int64_t{1} << 20;  // a multiple of 4
  int burst = 16;                            // messages
  // Of a worker's wait for its pair's turn or for the last pair, and of each message.
  absl::Duration timeout = absl::Seconds(30);
  // Called before this worker has to do with another: an error that follows is of the edges between them.
  std::function<void(int peer)> on_peer = [](int) {};
};

// From one worker to another.
struct LinkMeasurement {
  int from = 0;
  int to = 0;
  double latency_s = 0.0;
  double bytes_per_second = 0.0;
};

// The links from this worker to each of the others, in their order. REQUIRES: 0 <= self < workers; counts
// are at least 1; `pool` is of the host and outlives the call.
// Errors: those of the edges (DeadlineExceeded, Unavailable, Aborted name the peer),
// ResourceExhausted.
absl::StatusOr<std::vector<LinkMeasurement>> ProbeLinks(Transport& transport, BufferPool& pool,
                                                        Clock& clock,
                                                        const LinkProbeOptions& options);

}  // namespace penstock
