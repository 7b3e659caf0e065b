// Metrics of the coordinator about its jobs, their predictions, its workers and how they were lost, its state file and their
// spans. Every metric is one row of the tables in cluster_metrics.cc, which are also their part of docs/metrics.md.
//
// Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/loss_counts.h"
#include "base/span_counts.h"
#include "base/state_counts.h"
#include "penstock/v1/cluster.pb.h"
#include "services/metrics/catalog.h"
#include "services/metrics/metric_set.h"

namespace penstock {

// How many jobs and workers the coordinator knows, by the name of their state.
struct ClusterCounts {
  std::map<std::string, int> jobs;
  std::map<std::string, int> workers;
};

std::vector<MetricGroup> ClusterMetricGroups();

void AddClusterMetrics(const ClusterCounts& counts, const v1::ListWorkersResponse& workers,
                       MetricSet& metrics);
void AddJobMetrics(const v1::JobSummary& job, const v1::JobResult& result, MetricSet& metrics);
// `ratios`: by worker, how many times as long as before its passes take.
void AddSlowMetrics(const v1::JobSummary& job, const std::map<std::string, double>& ratios,
                    MetricSet& metrics);
void AddLossMetrics(const LossCounts& losses, MetricSet& metrics);
// Whether the coordinator leads its cluster.
void AddRoleMetrics(bool leads, MetricSet& metrics);
void AddStateMetrics(const StateCounts& counts, MetricSet& metrics);
void AddSpanMetrics(const SpanCounts& counts, MetricSet& metrics);

}  // namespace penstock
