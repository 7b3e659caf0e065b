// ProbeLinks: latency and bandwidth between every two workers, through the edges that training uses.
//
// All workers of a probe call it together. They go through rounds that all derive alike: in a round each worker
// is in one pair at most, and no two pairs have a host in common, whose NIC they would share. Worker 0 opens
// and closes the rounds, and lets all go together at the end, so that no worker disturbs a measurement.
//
// A latency is half of a ping there and back, the median of several; a bandwidth that of a burst of messages,
// less one ping where that is the smaller part of its time.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "compute/buffer_pool.h"
#include "worker/transport.h"

namespace penstock {

struct LinkProbeOptions {
  int self = 0;            // this worker
  int workers = 0;         // that take part
  std::vector<int> hosts;  // of each worker, as any numbers; empty: every worker has its own
  int pings = 21;
  int64_t message_bytes = int64_t{1} << 20;  // a multiple of 4
  int burst = 16;                            // messages
  // Bound on each message of a measurement, and on worker 0's wait for another to be through with its
  // pair. The others wait for as many rounds.
  absl::Duration timeout = absl::Seconds(30);
  // Called before this worker has to do with another: an error that follows is of the edges between them.
  std::function<void(int peer)> on_peer = [](int) {};
  // Called before the links between this worker and another are measured.
  std::function<void(int peer)> on_pair = [](int) {};
};

// The link from one worker to another.
struct LinkMeasurement {
  int from = 0;
  int to = 0;
  double latency_s = 0.0;
  double bytes_per_second = 0.0;
};

// Which pairs are measured when: every two workers once, the smaller first.
using ProbeRound = std::vector<std::pair<int, int>>;
std::vector<ProbeRound> ProbeRounds(const LinkProbeOptions& options);

// The links from this worker to each of the others, in their order. REQUIRES: 0 <= self < workers; there are as
// many hosts as workers, or none; counts are at least 1; `pool` is of the host and outlives the call.
// Errors: those of the edges (DeadlineExceeded, Unavailable, Aborted name the peer),
// ResourceExhausted.
absl::StatusOr<std::vector<LinkMeasurement>> ProbeLinks(Transport& transport, BufferPool& pool,
                                                        Clock& clock,
                                                        const LinkProbeOptions& options);

}  // namespace penstock
