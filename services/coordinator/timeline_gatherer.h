// TimelineGatherer: the timelines of all workers of a run as one, on the coordinator's clock.
//
// A worker answers with its own clock's time; its offset is taken from the middle of the round
// trip, so it is right within half of one. Processes of one machine share a clock, where the offset
// is near zero.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "penstock/v1/cluster.pb.h"
#include "services/coordinator/worker_calls.h"

namespace penstock {

// One worker's spans and what to add to its times.
struct WorkerTimeline {
  v1::GetRunTimelineResponse response;
  int64_t offset_ns = 0;
};

// Puts them on one clock, in order of their start. Beyond `spans_max` the oldest are left out, up
// to the same moment on all workers.
v1::GetTimelineResponse MergeTimelines(const std::vector<WorkerTimeline>& workers,
                                       int64_t spans_max);

// Thread safety: from any thread.
class TimelineGatherer {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(5);
  // A timeline of this length fits into one control message.
  static constexpr int64_t kSpansMax = 20'000;

  // REQUIRES: both outlive the gathering.
  TimelineGatherer(Clock& clock, WorkerCalls& calls) : clock_(clock), calls_(calls) {}

  // Asks all workers of `plan`; those that do not answer have no spans. `done` is called exactly
  // once, on a polling thread.
  void Gather(const std::string& job_id, const v1::Plan& plan,
              std::function<void(v1::GetTimelineResponse)> done);

 private:
  Clock& clock_;
  WorkerCalls& calls_;
};

}  // namespace penstock
