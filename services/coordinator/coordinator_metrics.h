// The metrics that the coordinator shows Prometheus: jobs and workers by state, how far each job under way is, and what
// became of its spans.
//
// Pure functions.
#pragma once

#include "services/coordinator/coordinator_server.h"
#include "services/metrics/metric_set.h"
#include "services/tracing/span_exporter.h"

namespace penstock {

void AddCoordinatorMetrics(const CoordinatorSnapshot& snapshot, MetricSet& metrics);

// Adds what became of spans; all zero where none are exported.
void AddTracingMetrics(const SpanExporter::Counts& counts, MetricSet& metrics);

}  // namespace penstock
