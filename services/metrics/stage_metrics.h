// Metrics of a worker about each stage: every metric is one row of the tables in stage_metrics.cc, which are also
// the stages' part of docs/metrics.md.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "services/metrics/catalog.h"
#include "services/metrics/metric_set.h"

namespace penstock {

std::vector<MetricGroup> StageMetricGroups();

void AddStageMetrics(const std::string& job_id, const std::string& worker,
                     const v1::StageReport& stage, MetricSet& metrics);

}  // namespace penstock
