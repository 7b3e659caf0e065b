// RunLimits: every bound a run keeps, with its unit. main() may change them; tests make them small.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "schedule/schedule.h"

namespace penstock {

struct RunLimits {
  // Longest wait at a cut for the files of the previous checkpoint.
  absl::Duration checkpoint_timeout = absl::Minutes(10);
  // Longest wait between Hold and CutAt.
  absl::Duration hold_timeout = absl::Minutes(1);
  // Longest that a stage works on a microbatch, forward and backward, or on the snapshot of a checkpoint.
  absl::Duration work_timeout = absl::Minutes(5);
  // Longest wait for a message or for credit in a pipeline of `depth` stages: the first stage waits while a
  // microbatch goes down and back through all of them. Any of them may first have to wait itself, at a cut or
  // while it is held, and it is that wait which then ends the run, with its own reason.
  absl::Duration receive_timeout(int32_t depth) const {
    return std::max(checkpoint_timeout, hold_timeout) + depth * work_timeout;
  }

  // Messages in flight per edge, where the plan does not say, and the most it may say.
  int edge_capacity = kChannelCapacity;
  int edge_capacity_max = kChannelCapacityMax;
  // Largest tensor that may cross an edge.
  int64_t tensor_bytes_max = int64_t{1} << 30;

  // Largest training text; it is held in memory.
  int64_t data_bytes_max = int64_t{16} << 30;
  // Records of this many bytes are checked against their digests when they are opened, which reads them all: about
  // two seconds. Of more, the index and the shards' headers are.
  int64_t data_checked_bytes_max = int64_t{4} << 30;

  // Spans kept for RecentTimeline.
  int64_t timeline_spans_max = 1 << 16;
  // Most recent durations of one kind of action of a stage that its median is taken from.
  int64_t duration_samples_max = 1 << 10;
};

// Messages in flight between two workers that reduce or combine norms. A worker can be one exchange
// ahead of another, for which 2 suffice. A reduction of several buckets sends a part of the next one before it takes the
// sums of the last, and would wait for ever with fewer than 3 (worker/replica_sum.cc).
inline constexpr int kCollectiveCapacity = 4;

// Bound on the text of an event; it travels on in the job's record.
inline constexpr size_t kErrorBytesMax = 2000;

}  // namespace penstock
