// Metrics of every program about itself: CPU time, memory, files, start, build.
//
// Thread safety: any thread.
#pragma once

#include <string>
#include <vector>

#include "base/rejected_messages.h"
#include "services/metrics/metric_set.h"

namespace penstock {

// `program`: "penstock-worker", ...
void AddProcessMetrics(const std::string& program, const std::string& version, MetricSet& metrics);

// Until when the certificate in `directory` is good; nothing if there is none that can be read.
void AddCertificateMetrics(const std::string& directory, MetricSet& metrics);

void AddRejectedMessages(const RejectionCounts& counts, MetricSet& metrics);
// `counts`: added up.
void AddRejectedMessages(const std::vector<const RejectedMessages*>& counts, MetricSet& metrics);

}  // namespace penstock
