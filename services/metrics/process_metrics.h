// Metrics of every program about itself: CPU time, memory, files, start, build, certificate, refused messages. Every
// metric is one row of the tables in process_metrics.cc, which are also their part of docs/metrics.md.
//
// Thread safety: any thread.
#pragma once

#include <string>
#include <vector>

#include "base/rejected_messages.h"
#include "services/metrics/catalog.h"
#include "services/metrics/metric_set.h"

namespace penstock {

std::vector<MetricGroup> ProcessMetricGroups();

// `program`: "penstock-worker", ...
void AddProcessMetrics(const std::string& program, const std::string& version, MetricSet& metrics);

// Until when the certificate in `directory` is good; nothing if there is none that can be read.
void AddCertificateMetrics(const std::string& directory, MetricSet& metrics);

void AddRejectedMessages(const RejectionCounts& counts, MetricSet& metrics);
// `counts`: added up.
void AddRejectedMessages(const std::vector<const RejectedMessages*>& counts, MetricSet& metrics);

}  // namespace penstock
