// What the coordinator shows Prometheus: jobs and workers by state, and how far each job under way
// is.
//
// Pure functions.
#pragma once

#include "services/coordinator/coordinator_server.h"
#include "services/metrics/metric_set.h"

namespace penstock {

void AddCoordinatorMetrics(const CoordinatorSnapshot& snapshot, MetricSet& metrics);

}  // namespace penstock
