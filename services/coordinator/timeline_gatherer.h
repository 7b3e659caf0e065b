// TimelineGatherer: merges the timelines of all workers of a run, on the coordinator's clock: all there is, or the last
// moments together with the stages' reports.
//
// A worker answers with its own clock's time; its offset is taken from the middle of the round trip, so it is right
// within half of one. The shortest of all round trips so far counts, for a while, because a large answer takes longer
// than a question. Processes of one machine share a clock, whose offset is taken for zero.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/effects.h"
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

// The clocks of workers against one's own, from round trips.
//
// Thread safety: from any thread.
class ClockOffsets {
 public:
  // Adds a round trip: a worker's process was asked at `asked_ns` of one's own clock, answered at `answered_ns` of its
  // own, and the answer was there at `back_ns`. Returns what to add to its times.
  int64_t Add(const std::string& worker, uint64_t incarnation, int64_t asked_ns, int64_t back_ns,
              int64_t answered_ns) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Best {
    uint64_t incarnation = 0;
    int64_t offset_ns = 0;
    int64_t error_ns = 0;  // at most, at `at_ns`
    int64_t at_ns = 0;
  };
  Mutex mutex_;
  std::map<std::string, Best> best_ ABSL_GUARDED_BY(mutex_);  // by worker
};

// Puts them on one clock, in order of their start, and names those that did not answer. Beyond `spans_max` the oldest
// are left out, up to the same moment on all workers.
v1::GetTimelineResponse MergeTimelines(const std::vector<WorkerTimeline>& workers,
                                       int64_t spans_max);

// The present work of a run's workers.
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
  // Gathers the reports of the stages, by worker and with none of those that do not answer, and the passes of the last
  // `window` alone (GetRunTimelineRequest.passes_only).
  void GatherPasses(const std::string& job_id, const v1::Plan& plan, absl::Duration window,
                    std::function<void(v1::GetTimelineResponse, std::vector<StageReports>)> done);
  // Gathers all of the last `window`, with the reports of the stages whose workers answer.
  void GatherLive(const std::string& job_id, const v1::Plan& plan, absl::Duration window,
                  std::function<void(LiveRun)> done);

 private:
  void Ask(const v1::Plan& plan, const v1::GetRunTimelineRequest& request,
           std::function<void(std::vector<WorkerTimeline>)> done, const CallTrace& trace);

  Clock& clock_;
  WorkerCalls& calls_;
  ClockOffsets offsets_;
};

}  // namespace penstock
