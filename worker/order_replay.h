// OrderReplay: what each forward of a recorded run read, found by counting in its log.
//
// A stage updates after a fixed number of its own backwards, so the weight version that a forward
// finds is the number of backwards before it in its worker's log, divided by that number. No
// schedule is asked.
//
// The log is not believed: it is run through, all workers against each other, and refused where no run can have
// been in this order.
//
// A value; thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/recorded_order.h"

namespace penstock {

class OrderReplay {
 public:
  struct Rules {
    int64_t microbatches_per_update = 1;
    // All stages update together at the end of a step, before any forward of the next.
    bool drains = false;
    // Microbatch k reads the version of microbatch k - lag * microbatches_per_update, not the newest; 0: that.
    int64_t lag = 0;
  };

  // Errors: InvalidArgument naming microbatches, worker and block: a backward before its forward, a block whose
  // input cannot have been there, one that had to wait for an update.
  static absl::StatusOr<OrderReplay> Make(const RecordedOrder& order, const Rules& rules);

  // Updates that the stage had made in its range when it ran the forward of `microbatch`.
  int64_t UpdatesBeforeForward(size_t stage, int64_t microbatch) const {
    return updates_[stage][microbatch - first_];
  }
  // The most by which these lag behind those that a single process would have made by then.
  int64_t LateMax(size_t stage) const { return late_max_[stage]; }

 private:
  int64_t first_ = 0;                          // microbatch
  std::vector<std::vector<int64_t>> updates_;  // by stage and microbatch
  std::vector<int64_t> late_max_;              // by stage
};

}  // namespace penstock
