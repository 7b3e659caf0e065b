// Fills in the coordinator's metrics (services/metrics/cluster_metrics.h) from its state at one moment.
//
// Pure functions.
#pragma once

#include "services/coordinator/cluster_view.h"
#include "services/metrics/metric_set.h"

namespace penstock {

void AddCoordinatorMetrics(const CoordinatorSnapshot& snapshot, MetricSet& metrics);

}  // namespace penstock
