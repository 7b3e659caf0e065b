// StageMeter: where one stage's time went and what it counted, readable while it runs.
//
// Only training is metered; cuts and validation are left out.
//
// Thread safety: written by the executor's thread without locks or allocations, read by any. A reader
// may see the numbers of one moment a little apart.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "schedule/action.h"
#include "schedule/machine.h"
#include "schedule/timeline.h"
#include "worker/counter.h"

namespace penstock {

// How often and how long one kind of action was at work, waiting left out.
class DurationMeter {
 public:
  explicit DurationMeter(int64_t samples_max) : samples_(samples_max) {}

  void Add(int64_t duration_ns);

  int64_t count() const { return count_.value(); }
  int64_t total_ns() const { return total_ns_.value(); }
  // Of the most recent ones; 0 if there are none.
  int64_t MedianNs() const;

 private:
  Counter count_;
  Counter total_ns_;
  std::vector<Counter> samples_;  // a ring
};

class StageMeter {
 public:
  explicit StageMeter(int64_t duration_samples_max);

  // A span of this stage; of kWait spans the cause is counted.
  void AddSpan(const Span& span);
  // How long an action was at work.
  void AddDuration(Op op, int64_t work_ns) { durations_[static_cast<int>(op)].Add(work_ns); }
  // What the machine has counted so far.
  void Publish(const StageCounts& counts, int64_t updates);

  int64_t lane_ns(Lane lane) const { return lane_ns_[static_cast<int>(lane)].value(); }
  int64_t waiting_ns(Wait cause) const { return waiting_ns_[static_cast<int>(cause)].value(); }
  const DurationMeter& durations(Op op) const { return durations_[static_cast<int>(op)]; }
  StageCounts counts() const;
  int64_t updates() const { return updates_.value(); }

 private:
  std::array<Counter, kLanes> lane_ns_;
  std::array<Counter, kWaits> waiting_ns_;
  std::deque<DurationMeter> durations_;  // by Op
  std::array<Counter, 12> counts_;       // the fields of StageCounts
  Counter updates_;
};

}  // namespace penstock
