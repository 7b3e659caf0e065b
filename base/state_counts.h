// StateCounts: how the coordinator's state file takes what is to be kept, for metrics.
//
// Plain value.
#pragma once

#include <cstdint>

namespace penstock {

struct StateCounts {
  bool writable = true;       // the last write succeeded
  int64_t failed_writes = 0;  // of whole transactions
  int64_t pending = 0;        // records, timelines, times of layers and events that wait in memory
  int64_t dropped_events = 0;
};

}  // namespace penstock
