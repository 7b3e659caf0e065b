// TimelineGatherer: the timelines of all workers of a run as one, on the coordinator's clock: of all
// there is, or of the last moments together with the stages' reports.
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
  std::string worker;
  v1::GetRunTimelineResponse response;
  int64_t offset_ns = 0;
  bool answered = true;
};

// Puts them on one clock, in order of their start, and names those that did not answer. Beyond `spans_max` the oldest
// are left out, up to the same moment on all workers.
v1::GetTimelineResponse MergeTimelines(const std::vector<WorkerTimeline>& workers,
                                       int64_t spans_max);

// What the workers of a run do.
struct LiveRun {
  v1::GetTimelineResponse timeline;     // of the last moments
  std::vector<v1::StageReport> stages;  // so far, by stage
  int64_t gathered_ns = 0;              // on the coordinator's clock
};

// Thread safety: from any thread.
class TimelineGatherer {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(5);
  // A timeline of this length fits into one control message.
  static constexpr int64_t kSpansMax = 20'000;

  // REQUIRES: both outlive the gathering.
  TimelineGatherer(Clock& clock, WorkerCalls& calls) : clock_(clock), calls_(calls) {}

  // Asks all workers of `plan`; those that do not answer have no spans and are among the missing. `done` is called
  // exactly once, on a polling thread. `trace`: of the job.
  void Gather(const std::string& job_id, const v1::Plan& plan,
              std::function<void(v1::GetTimelineResponse)> done, const CallTrace& trace = {});
  // The same of the last `window` alone, with the reports of the stages whose workers answer.
  void GatherLive(const std::string& job_id, const v1::Plan& plan, absl::Duration window,
                  std::function<void(LiveRun)> done);

 private:
  void Ask(const v1::Plan& plan, const v1::GetRunTimelineRequest& request,
           std::function<void(std::vector<WorkerTimeline>)> done, const CallTrace& trace);

  Clock& clock_;
  WorkerCalls& calls_;
};

}  // namespace penstock
