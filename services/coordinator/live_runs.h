// LiveRuns: what the workers of jobs under way do at this moment, for people who look.
//
// Workers are asked only while somebody looks, and however many look, once a second at most. Looking never waits: it
// gets what was gathered last, and starts the next gathering. Runs that nobody looks at any more are forgotten.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.pb.h"
#include "services/coordinator/timeline_gatherer.h"

namespace penstock {

class LiveRuns {
 public:
  // The least and the most of the timeline that is gathered: the least is more than lies between two gatherings, so
  // that nothing is missed.
  static constexpr absl::Duration kWindowMin = absl::Milliseconds(2500);
  static constexpr absl::Duration kWindowMax = absl::Seconds(60);
  static constexpr absl::Duration kRefreshInterval = absl::Seconds(1);
  static constexpr absl::Duration kForgetAfter = absl::Seconds(30);
  // The jobs that are looked at; beyond it the one that was looked at longest ago is forgotten.
  static constexpr size_t kJobsMax = 16;

  // Starts a gathering; `done` is called once, from any thread. (TimelineGatherer::GatherLive.)
  using Gather = std::function<void(const std::string& job_id, const v1::Plan& plan,
                                    absl::Duration window, std::function<void(LiveRun)> done)>;

  // REQUIRES: `clock` outlives it, and it outlives the gatherings.
  LiveRuns(Clock& clock, Gather gather) : clock_(clock), gather_(std::move(gather)) {}

  // Returns the latest of `job_id`; null if nothing has been gathered yet. `epoch`: of the attempt at it;
  // nothing of another is shown. `wanted`: this much of the timeline, within the limits.
  std::shared_ptr<const LiveRun> Look(const std::string& job_id, int64_t epoch,
                                      const v1::Plan& plan, absl::Duration wanted)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Job {
    int64_t epoch = 0;
    std::shared_ptr<const LiveRun> latest;
    bool gathering = false;
    int64_t looked_ns = 0;
    std::optional<int64_t> asked_ns;  // when the last gathering began
  };
  void MakeRoom(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock& clock_;
  const Gather gather_;
  Mutex mutex_;
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
