#include "services/coordinator/coordinator_metrics.h"

#include "coordinator/job_state.h"
#include "coordinator/worker_state.h"
#include "services/metrics/cluster_metrics.h"
#include "services/metrics/process_metrics.h"

namespace penstock {
namespace {

// With a zero for each state that no job or worker is in.
ClusterCounts CountsOf(const CoordinatorSnapshot& snapshot) {
  ClusterCounts counts;
  for (int state = v1::JOB_STATE_QUEUED; state <= v1::JobState_MAX; ++state) {
    counts.jobs[JobStateName(static_cast<v1::JobState>(state))] = 0;
  }
  for (const v1::JobSummary& job : snapshot.jobs.jobs()) ++counts.jobs[JobStateName(job.state())];
  for (const WorkerState state : kWorkerStates) counts.workers[WorkerStateName(state)] = 0;
  for (const v1::WorkerSummary& worker : snapshot.workers.workers()) {
    ++counts.workers[WorkerStateName(StateOf(worker))];
  }
  return counts;
}

}  // namespace

void AddCoordinatorMetrics(const CoordinatorSnapshot& snapshot, MetricSet& metrics) {
  AddClusterMetrics(CountsOf(snapshot), snapshot.workers, metrics);
  for (const v1::JobSummary& job : snapshot.jobs.jobs()) {
    const auto result = snapshot.results.find(job.job_id());
    if (result == snapshot.results.end()) continue;
    AddJobMetrics(job, result->second, metrics);
    const auto ratios = snapshot.slow_ratios.find(job.job_id());
    if (ratios != snapshot.slow_ratios.end()) AddSlowMetrics(job, ratios->second, metrics);
  }
  AddRoleMetrics(/*leads=*/true, metrics);  // only a leader has jobs to look at
  AddLossMetrics(snapshot.losses, metrics);
  AddStateMetrics(snapshot.state, metrics);
  AddRejectedMessages(snapshot.rejected, metrics);
}

}  // namespace penstock
