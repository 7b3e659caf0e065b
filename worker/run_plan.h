// RunPlan: everything a worker derives from a PrepareRunRequest before it touches data or devices.
//
// The coordinator derived the same and compares digests; nothing here is taken on trust.
//
// Plain values without I/O.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/run/stage_options.h"
#include "job/snapshot_rule.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/machine.h"
#include "schedule/schedule.h"
#include "worker/limits.h"

namespace penstock {

struct RunPlan {
  ResolvedJob job;
  ScheduleOptions schedule;          // its topology is the plan's
  std::vector<LayerRange> layers;    // by stage
  std::vector<std::string> workers;  // names by worker index
  WorkerId worker;                   // this one
  int64_t first_step = 0;            // steps done before the run
  std::vector<Cut> cuts;
  SnapshotRule snapshots;
  int edge_capacity = 1;
  std::string digest;
  std::vector<StageCounts> counts;      // by stage (CountsOfRun)
  std::vector<StageLateness> lateness;  // by stage

  const Topology& topology() const { return schedule.topology; }
  RunLayout layout() const {
    return {.job = job,
            .schedule = schedule,
            .layers = layers,
            .first_step = first_step,
            .cuts = cuts,
            .counts = counts};
  }
  // By stage; of a worker that takes what is ready.
  std::vector<int64_t> InFlightMax() const;
};

// Errors: InvalidArgument (the job or the plan makes no sense: names the field), FailedPrecondition (the
// digest differs from the plan's, or the schedule does not verify).
absl::StatusOr<RunPlan> MakeRunPlan(const v1::PrepareRunRequest& request, const RunLimits& limits);

}  // namespace penstock
