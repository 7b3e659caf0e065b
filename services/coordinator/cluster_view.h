// ClusterView: what one can see of a cluster from a coordinator, for its page and its metrics.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/loss_counts.h"
#include "base/rejected_messages.h"
#include "base/state_counts.h"
#include "penstock/v1/cluster.pb.h"
#include "services/coordinator/timeline_gatherer.h"

namespace penstock {

// Numbers for metrics, at one moment.
struct CoordinatorSnapshot {
  v1::ListJobsResponse jobs;
  v1::ListWorkersResponse workers;
  // The results of jobs under way or ended less than FinishedJobs::kKeptFor ago, by job id; without curves.
  std::map<std::string, v1::JobResult> results;
  // JobRun::SlowRatios of jobs under way, by job id.
  std::map<std::string, std::map<std::string, double>> slow_ratios = {};
  RejectionCounts rejected = {};  // messages
  StateCounts state = {};
  LossCounts losses = {};  // of workers
};

// The jobs and workers of the cluster, at one moment.
struct ClusterLists {
  v1::ListJobsResponse jobs;
  v1::ListWorkersResponse workers;
};

// A job and what its workers do; of one that has ended, what they did last.
struct JobView {
  v1::GetJobResponse record;
  std::shared_ptr<const LiveRun> live;  // null: nothing is known, or not yet
};

// Thread safety: all methods may be called from any thread. Errors of all: Unavailable (shut down, or another coordinator
// leads).
class ClusterView {
 public:
  virtual ~ClusterView() = default;

  virtual absl::StatusOr<CoordinatorSnapshot> Snapshot() = 0;
  // Serves those who look again and again: the lists are made at most once in kListsKeptFor, however many look, and so
  // may be as old.
  static constexpr absl::Duration kListsKeptFor = absl::Seconds(1);
  virtual absl::StatusOr<std::shared_ptr<const ClusterLists>> Lists() = 0;
  // Returns a job with its result so far. Errors also: NotFound, DataLoss.
  virtual absl::StatusOr<v1::GetJobResponse> Job(const std::string& job_id) = 0;
  // Returns a job for somebody who looks on: live_runs.h says what that costs. Does not wait for workers.
  virtual absl::StatusOr<JobView> Look(const std::string& job_id) = 0;
};

}  // namespace penstock
