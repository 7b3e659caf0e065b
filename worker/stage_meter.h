// StageMeter: where one stage's time went and what it counted, readable while it runs.
//
// Only training is metered; cuts and validation are left out, but for what validation sends.
//
// Thread safety: written by the executor's thread without locks or allocations, read by any. A reader
// may see the numbers of one moment a little apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "compute/pass_graphs.h"
#include "schedule/action.h"
#include "schedule/machine.h"
#include "schedule/timeline.h"
#include "worker/counter.h"

namespace penstock {

// Counts how often and how long one kind of action was at work, waiting left out.
class DurationMeter {
 public:
  explicit DurationMeter(int64_t samples_max) : samples_(samples_max) {}

  void Add(int64_t duration_ns);

  int64_t count() const { return count_.value(); }
  int64_t total_ns() const { return total_ns_.value(); }
  // Returns the median of the most recent ones; 0 if there are none.
  int64_t MedianNs() const;

 private:
  Counter count_;
  Counter total_ns_;
  std::vector<Counter> samples_;  // a ring
};

enum class CopyDirection : uint8_t { kToDevice, kToHost };

struct CopyMeter {
  Counter count;
  Counter total_ns;
};

// Counts like PassGraphs::Stats.
struct GraphMeter {
  Counter passes, replayed, recorded, kept;
};

class StageMeter {
 public:
  // Window of the recent bubble.
  static constexpr int kBubbleSteps = 16;
  // Numbers of the fields of v1::StageReport are below this.
  static constexpr int kFiguresMax = 64;

  explicit StageMeter(int64_t duration_samples_max);

  // A span of this stage; of kWait spans the cause is counted.
  void AddSpan(const Span& span);
  // Adds the time that an action was at work.
  void AddDuration(ActionKind kind, int64_t work_ns) {
    durations_[static_cast<int>(kind)].Add(work_ns);
  }
  // Adds the time of a copy to or from the device, which runs beside the lanes.
  void AddCopy(CopyDirection direction, int64_t copy_ns) {
    CopyMeter& copies = copies_[static_cast<int>(direction)];
    copies.total_ns.Add(copy_ns);
    copies.count.Add(1);
  }
  // The executor's own work between two actions, before one of this stage.
  void AddBetween(int64_t between_ns) { between_ns_.Add(between_ns); }
  void Publish(const StageCounts& counts, const StageDelays& delays);
  // Publishes those that change with every pass.
  void PublishLive(const StageCounts& counts) {
    versions_live_.Set(counts.versions_live);
    activations_live_.Set(counts.activations_live);
    resident_live_.Set(counts.resident_live);
  }
  // A number that is the stage's own: it is in the next report as the int64 field `field` of v1::StageReport, such as
  // v1::StageReport::kUpdatesFieldNumber. REQUIRES: below kFiguresMax.
  Counter& figure(int field) { return figures_[field]; }
  const Counter& figure(int field) const { return figures_[field]; }
  // Weight versions beside the current one now, on the device and on the host; the most is kept.
  void PublishStash(int64_t device_bytes, int64_t host_bytes) {
    stash_bytes_.Set(device_bytes);
    host_stash_bytes_.Set(host_bytes);
    stash_bytes_peak_.Set(std::max(stash_bytes_peak_.value(), device_bytes));
    host_stash_bytes_peak_.Set(std::max(host_stash_bytes_peak_.value(), host_bytes));
  }
  // A step of training ends, `window_ns` after it began (worker/training_window.h).
  void EndStep(int64_t window_ns);

  void PublishGraphs(const PassGraphs::Stats& graphs) {
    graphs_.passes.Set(graphs.passes);
    graphs_.replayed.Set(graphs.replayed);
    graphs_.recorded.Set(graphs.recorded);
    graphs_.kept.Set(graphs.kept);
  }

  int64_t lane_ns(Lane lane) const { return lane_ns_[static_cast<int>(lane)].value(); }
  int64_t waiting_ns(Wait cause) const { return waiting_ns_[static_cast<int>(cause)].value(); }
  // None where host and device are one.
  const CopyMeter& copies(CopyDirection direction) const {
    return copies_[static_cast<int>(direction)];
  }
  const DurationMeter& durations(ActionKind kind) const {
    return durations_[static_cast<int>(kind)];
  }
  const GraphMeter& graphs() const { return graphs_; }
  StageCounts counts() const;
  StageDelays delays() const;
  // Now, as of the last pass.
  int64_t versions_live() const { return versions_live_.value(); }
  int64_t activations_live() const { return activations_live_.value(); }
  int64_t resident_live() const { return resident_live_.value(); }
  int64_t between_ns() const { return between_ns_.value(); }
  // 1 - busy time / window over the last kBubbleSteps steps, or those there are; none before the first.
  std::optional<double> RecentBubble() const;
  int64_t stash_bytes() const { return stash_bytes_.value(); }
  int64_t host_stash_bytes() const { return host_stash_bytes_.value(); }
  int64_t stash_bytes_peak() const { return stash_bytes_peak_.value(); }
  int64_t host_stash_bytes_peak() const { return host_stash_bytes_peak_.value(); }

 private:
  // Window and busy time at the end of a step.
  struct StepMark {
    Counter window_ns, busy_ns;
  };
  static constexpr int kDelayFields = 2 * (DelayCounts::kExact + 1);

  std::array<Counter, kLanes> lane_ns_;
  std::array<Counter, kWaits> waiting_ns_;
  std::array<CopyMeter, 2> copies_;      // by CopyDirection
  std::deque<DurationMeter> durations_;  // by ActionKind
  std::array<Counter, 17> counts_;       // the fields of StageCounts
  std::array<Counter, kFiguresMax> figures_;
  std::array<Counter, kDelayFields> delays_;
  Counter versions_live_, activations_live_, resident_live_;
  Counter between_ns_;
  // A ring, by number of the step; twice as long as what is read, so that a reader is not overtaken.
  std::array<StepMark, 2 * kBubbleSteps> marks_;
  Counter steps_;
  GraphMeter graphs_;
  Counter stash_bytes_, host_stash_bytes_, stash_bytes_peak_, host_stash_bytes_peak_;
};

}  // namespace penstock
