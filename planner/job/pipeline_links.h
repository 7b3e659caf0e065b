// The links and speeds of a pipeline's workers that are placed on a cluster, as device times, so that a placement can
// be simulated and emulated.
//
// The simulator and emulated workers know links between two workers, while the streams over a host's NIC, or over a
// path between two hosts, share it: each gets a part in proportion to the bytes that it carries. Where a link carries
// one direction at a time, each gets half.
//
// A pure function.
#pragma once

#include <vector>

#include "penstock/v1/device_times.pb.h"
#include "planner/graph/cluster.h"
#include "schedule/schedule.h"

namespace penstock {

// Adds `speeds` and `links`. `workers`: of the cluster, by worker of the pipeline.
void AddWorkers(const Cluster& cluster, const std::vector<int>& workers, const Topology& topology,
                v1::DeviceTimes& times);

}  // namespace penstock
