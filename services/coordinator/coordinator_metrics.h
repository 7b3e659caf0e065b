// What the coordinator shows Prometheus: jobs and workers by state, and how far each job under way
// is.
//
// Pure functions.
#pragma once

#include <vector>

#include "services/coordinator/coordinator_server.h"
#include "services/metrics/metric.h"

namespace penstock {

std::vector<MetricFamily> CoordinatorMetrics(const CoordinatorSnapshot& snapshot);

}  // namespace penstock
