// OrderReplay: what each forward of a recorded run read, found by counting in its log.
//
// A stage updates after a fixed number of its own backwards, so the weight version that a forward
// finds is the number of backwards before it in its worker's log, divided by that number. No
// schedule is asked. Replicas of a stage make an update together: none of them goes on before all have done their
// part of it.
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
    int64_t microbatches_per_update = 1;  // 1: with replicas one of each
    // All stages update together at the end of a step, before any forward of the next.
    bool drains = false;
    // Microbatch k reads the version of microbatch k - lag * microbatches_per_update, not the newest; 0: that. With
    // replicas these are updates of the first place, and a replica reads what the first of its place does.
    int64_t lag = 0;
  };

  // Errors: InvalidArgument naming microbatches, worker and block: a backward before its forward, a block whose
  // input cannot have been there, one that had to wait for an update.
  static absl::StatusOr<OrderReplay> Make(const RecordedOrder& order, const Rules& rules);

  // Updates that the stage at `place` which the microbatch goes through had made in its range when it ran the forward.
  int64_t UpdatesBeforeForward(size_t place, int64_t microbatch) const {
    return updates_[place][microbatch - first_];
  }
  // The fewest of this microbatch and those after it in its range, which another replica may have run earlier.
  int64_t FewestFrom(size_t place, int64_t microbatch) const {
    return fewest_[place][microbatch - first_];
  }
  // The most by which these lag behind those that a single process would have made by then.
  int64_t LateMax(size_t place) const { return late_max_[place]; }

 private:
  int64_t first_ = 0;                                   // microbatch
  std::vector<std::vector<int64_t>> updates_, fewest_;  // by place and microbatch
  std::vector<int64_t> late_max_;                       // by place
};

}  // namespace penstock
